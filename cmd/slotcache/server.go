package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/proto"
)

type pingCommand struct {
	Wait time.Duration `help:"How long to wait for a server that starts, until it has memory." placeholder:"TIME"`
}

// pingPause is how long a server that is waited for is left alone between two questions.
const pingPause = 20 * time.Millisecond

// errStarting is a server that answers and has no memory yet.
var errStarting = errors.New("it answers, but has no memory yet")

// Run pings.
func (cmd *pingCommand) Run(s *session) error {
	if cmd.Wait < 0 {
		return flags.Usagef("--wait: %v is less than nothing", cmd.Wait)
	}
	end := time.Now().Add(cmd.Wait)
	for {
		err := s.pingOnce(cmd.Wait > 0)
		_, unreachable := errors.AsType[*dialError](err)
		if !unreachable && !errors.Is(err, errStarting) || time.Until(end) < pingPause {
			return err
		}
		select {
		case <-s.whole.Done():
			return err
		case <-time.After(pingPause):
		}
	}
}

// pingOnce asks within --timeout. Memory asks for a server that has some ready, too.
func (s *session) pingOnce(memory bool) error {
	ctx, cancel := context.WithTimeout(s.whole, s.Timeout)
	defer cancel()
	once := *s
	once.ctx = ctx
	return once.ping(memory)
}

func (s *session) ping(memory bool) error {
	return s.ask(func(c *client.Conn) error {
		begin := time.Now()
		pong, err := c.Ping(s.ctx)
		if err != nil {
			return fmt.Errorf("ping %s: %w", s.Addr, err)
		}
		if memory && pong.Ready == 0 {
			return fmt.Errorf("ping %s: %w", s.Addr, errStarting)
		}
		return s.printf("%s answers in %v: %s, up %v, %v of memory ready\n", s.Addr, time.Since(begin).Round(time.Microsecond),
			c.Server(), pong.Uptime.Round(time.Second), flags.Size(pong.Ready))
	})
}

type statsCommand struct {
	JSON bool `name:"json" help:"As one JSON object."`
}

// Run prints the counters in the server's order.
func (cmd *statsCommand) Run(s *session) error {
	return s.ask(func(c *client.Conn) error {
		counters, err := c.Stats(s.ctx)
		if err != nil {
			return fmt.Errorf("stats of %s: %w", s.Addr, err)
		}
		if cmd.JSON {
			values := make(map[string]uint64, len(counters))
			for _, k := range counters {
				values[k.Name] = k.Value
			}
			return json.NewEncoder(s.out).Encode(values)
		}
		t := table{tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)}
		for _, k := range counters {
			t.row("%d\t  %s", k.Value, k.Name)
		}
		return t.Flush()
	})
}

type versionCommand struct{}

// Run prints this command's version, and the server's if there is one: having none is
// not an error.
func (*versionCommand) Run(s *session) error {
	if err := s.printf("slotcache %s, protocol %d\n", flags.Version(), proto.Version); err != nil {
		return err
	}
	c, err := s.dial()
	if err != nil {
		return s.printf("no server: %v\n", err)
	}
	return errors.Join(s.printf("server at %s: %s\n", s.Addr, c.Server()), c.Close())
}

// A table has tab-separated columns, written when it is flushed.
type table struct{ *tabwriter.Writer }

func (s *session) table() table { return table{tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)} }

// row adds a line. What cannot be written is an error of Flush.
func (t table) row(format string, args ...any) { _, _ = fmt.Fprintf(t, format+"\n", args...) }

// dash is a name as a column: a dash where there is none, and quoted where it has what a
// terminal would obey.
func dash(s string) string {
	switch {
	case s == "":
		return "-"
	case strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }):
		return strconv.Quote(s)
	}
	return s
}
