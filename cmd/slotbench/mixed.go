package main

import (
	"context"
	"errors"
	"os"

	"github.com/slotcache/slotcache/benchmarks/rig"
)

type mixedCommand struct {
	rigFlags
	output
}

// Run measures latencies beside a busy disk.
func (c *mixedCommand) Run(ctx context.Context) error {
	run, err := c.measure(ctx, func(_ *rig.Rig, s *rig.Selection) { s.Figures, s.Only = true, rig.BesideDisk })
	if err != nil {
		return err
	}
	if !c.JSON {
		if err := run.WriteFigureTable(os.Stdout); err != nil {
			return errors.Join(err, run.Err())
		}
	}
	return c.print(run)
}
