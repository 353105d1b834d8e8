package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/proto"
)

// valueLayout is what put stores under. It is part of a value's identity, so it is the
// same for every size of value and never changes.
var valueLayout = client.Layout{Name: "bytes", Size: proto.MaxPayload}

// key names the value stored under a text.
func key(text string) client.Key { return sha256.Sum256([]byte(text)) }

// checkKey refuses what is rather a shell's variable that is not set.
func checkKey(text string) error {
	if text == "" {
		return flags.Usagef("the key is empty")
	}
	return nil
}

// work registers as a worker, does the job and closes.
func (s *session) work(job func(*client.Worker) error) error {
	w, err := client.Open(s.ctx, s.Addr, s.options(), client.Registration{
		Name:      name,
		Namespace: s.Namespace,
		Layouts:   []client.Layout{valueLayout},
	})
	if err != nil {
		return &dialError{s.Addr, err}
	}
	return errors.Join(job(w), w.Close())
}

type putCommand struct {
	Key  string `arg:"" help:"Name of the value. One that is cached already stays as it is, and that is no failure: equal keys stand for equal values. Remove it first to replace it."`
	File string `arg:"" help:"File to store, - for standard input."`
}

// Run stores the file. A value that is cached already is replaced only by removing it
// first: equal keys are equal values here, as they are in the cache.
func (c *putCommand) Run(s *session) error {
	if err := checkKey(c.Key); err != nil {
		return err
	}
	value, err := readFile(c.File)
	if err != nil {
		return err
	}
	return s.work(func(w *client.Worker) error {
		status, err := w.Put(s.ctx, 0, key(c.Key), value)
		if err != nil {
			return fmt.Errorf("put %q: %w", c.Key, err)
		}
		if status == proto.StatusOK {
			return s.printf("stored %q, %d bytes\n", c.Key, len(value))
		}
		if status == proto.StatusExists {
			return s.printf("%q is cached already and stays as it is; remove it first to replace it\n", c.Key)
		}
		return fmt.Errorf("put %q (%d bytes): %w", c.Key, len(value), &client.StatusError{Status: status})
	})
}

// readFile reads a whole value, refusing at once what no value can be.
func readFile(path string) ([]byte, error) {
	in := os.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("put: %w", err)
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	value, err := io.ReadAll(io.LimitReader(in, proto.MaxPayload+1))
	if err != nil {
		return nil, fmt.Errorf("put: %w", err) // it names the file
	}
	if len(value) > proto.MaxPayload {
		return nil, fmt.Errorf("put: %s is larger than the largest value, %v; split it", path, flags.Size(proto.MaxPayload))
	}
	return value, nil
}

type getCommand struct {
	Key  string `arg:"" help:"Name of the value."`
	File string `arg:"" help:"File to write, - for standard output."`
}

// Run writes the value to the file, which is not touched when there is none.
func (c *getCommand) Run(s *session) error {
	return s.work(func(w *client.Worker) error {
		value, ok, err := w.Fetch(s.ctx, 0, key(c.Key), nil)
		if err != nil {
			return fmt.Errorf("get %q: %w", c.Key, err)
		}
		if !ok {
			return &flags.ExitError{Code: flags.NotFound, Err: fmt.Errorf("get %q: not cached", c.Key)}
		}
		if c.File == "-" {
			_, err = s.out.Write(value)
		} else {
			err = os.WriteFile(c.File, value, 0o666)
		}
		if err != nil {
			return fmt.Errorf("get %q: %w", c.Key, err)
		}
		return nil
	})
}

type rmCommand struct {
	Keys []string `arg:"" help:"Names of the values."`
}

// Run removes the values. Each is asked for by itself, to tell which were cached.
func (c *rmCommand) Run(s *session) error {
	return s.work(func(w *client.Worker) error {
		missing := 0
		for _, text := range c.Keys {
			n, err := w.Delete(s.ctx, 0, []client.Key{key(text)})
			if err != nil {
				return fmt.Errorf("rm %q: %w", text, err)
			}
			if n == 0 {
				missing++
				_, _ = fmt.Fprintf(os.Stderr, "%s: rm %q: not cached\n", name, text) // the exit code says it too
			}
		}
		if missing > 0 {
			return &flags.ExitError{Code: flags.NotFound, Err: fmt.Errorf("rm: %d of %d keys were not cached", missing, len(c.Keys))}
		}
		return nil
	})
}

type clearCommand struct{}

// Run removes the namespace's values.
func (*clearCommand) Run(s *session) error {
	return s.work(func(w *client.Worker) error {
		n, err := w.Clear(s.ctx)
		if err != nil {
			return fmt.Errorf("clear namespace %q: %w", s.Namespace, err)
		}
		if n == 1 {
			return s.printf("removed 1 value from memory, and all on disk\n")
		}
		return s.printf("removed %d values from memory, and all on disk\n", n)
	})
}
