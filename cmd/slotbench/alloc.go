package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/slotcache/slotcache/benchmarks"
)

type allocCommand struct {
	Seed uint64 `help:"Seed of the sizes." default:"1"`
	JSON bool   `name:"json" help:"Print the results as one JSON array."`
}

// Run measures the allocator of the pool, without a server.
func (c *allocCommand) Run(ctx context.Context) error {
	var draw func(int)
	results, err := benchmarks.Allocations(ctx, c.Seed, func(done, total int) {
		if draw == nil {
			draw = bar(total, "alloc")
		}
		draw(done)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(results)
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "mix\tutilisation\tns/op") // Flush gives the error
	for _, r := range results {
		_, _ = fmt.Fprintf(t, "%s\t%.4f\t%.1f\n", r.Mix, r.Utilisation, r.NsPerOp)
	}
	return t.Flush()
}
