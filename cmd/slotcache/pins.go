package main

import (
	"fmt"
	"os"
	"time"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/proto"
)

type pinCommand struct {
	Keys []string      `arg:"" help:"Names of the values."`
	Hard bool          `help:"Keep them though memory is short; without it they are the last to go."`
	TTL  time.Duration `name:"ttl" help:"How long. Default: as the server has it, and its --pin-time at most." placeholder:"TIME"`
}

// Run pins the values, and loads first what is only on disk.
func (c *pinCommand) Run(s *session) error {
	if c.TTL < 0 {
		return flags.Usagef("--ttl: %v is less than nothing", c.TTL)
	}
	return s.work(func(w *client.Worker) error {
		r, err := w.Pin(s.ctx, client.PinRequest{Keys: keysOf(c.Keys), TTL: c.TTL, Hard: c.Hard, Load: true})
		if err != nil {
			return fmt.Errorf("pin: %w", err)
		}
		missing, last := 0, error(nil)
		for i, st := range r.Results {
			if st == proto.StatusMiss {
				missing++
				_, _ = fmt.Fprintf(os.Stderr, "%s: pin %q: not cached\n", name, c.Keys[i]) // the exit code says it too
			} else if st != proto.StatusOK {
				last = fmt.Errorf("pin %q: %w", c.Keys[i], &client.StatusError{Op: proto.OpPin, Status: st})
			}
		}
		if r.Pinned > 0 {
			if err := s.printf("%d of %d pinned for %v\n", r.Pinned, len(c.Keys), r.TTL); err != nil {
				return err
			}
		}
		if last != nil {
			return last
		}
		if missing > 0 {
			return &flags.ExitError{Code: flags.NotFound, Err: fmt.Errorf("pin: %d of %d keys were not cached", missing, len(c.Keys))}
		}
		return nil
	})
}

type unpinCommand struct {
	Keys []string `arg:"" help:"Names of the values."`
}

// Run ends the pins. It is no failure if there are none.
func (c *unpinCommand) Run(s *session) error {
	return s.work(func(w *client.Worker) error {
		n, err := w.Unpin(s.ctx, 0, keysOf(c.Keys))
		if err != nil {
			return fmt.Errorf("unpin: %w", err)
		}
		return s.printf("%d of %d were pinned\n", n, len(c.Keys))
	})
}

func keysOf(names []string) []client.Key {
	keys := make([]client.Key, len(names))
	for i, text := range names {
		keys[i] = key(text)
	}
	return keys
}
