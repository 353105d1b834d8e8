package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/slotcache/slotcache/benchmarks/floor"
	"github.com/slotcache/slotcache/benchmarks/load"
	"github.com/slotcache/slotcache/benchmarks/peers"
)

// peer starts a peer.
func (r *Rig) peer(ctx context.Context, p Place) (*server, error) {
	cmd, err := peers.Command(peers.Kind(p.Name), r.dir, r.socket(p))
	if errors.Is(err, peers.ErrAbsent) {
		return nil, fmt.Errorf("%w: %w", ErrSkipped, err)
	}
	if err != nil {
		return nil, err
	}
	return r.foreign(ctx, p, cmd)
}

// epollC starts the floor in C.
func (r *Rig) epollC(ctx context.Context, p Place) (*server, error) {
	if r.program == "" {
		var err error
		if r.program, err = floor.BuildC(r.dir); err != nil {
			return nil, err
		}
		if r.program == "" {
			return nil, fmt.Errorf("%w: no gcc on this machine", ErrSkipped)
		}
	}
	return r.foreign(ctx, p, exec.Command(r.program, r.socket(p)))
}

// pickle takes a sample of the pickle peer, whose client is a Python process too.
func (r *Rig) pickle(ctx context.Context, what string, size int64) (Sample, error) {
	s, err := r.server(ctx, Place{Name: Pickle})
	if err != nil {
		return Sample{}, err
	}
	cmd, err := peers.PickleClient(r.dir, what, s.socket, size, r.opts.Span.Measure.Seconds())
	if err != nil {
		return Sample{}, err
	}
	out, err := r.output(cmd)
	if err != nil {
		return Sample{}, err
	}
	var times []int64
	if err := json.Unmarshal(out, &times); err != nil {
		return Sample{}, fmt.Errorf("pickle: its times: %w", err)
	}
	h := load.NewTimes()
	var took int64
	for _, t := range times {
		took += t
		_ = h.RecordValue(t) // a set of a minute would be the longest there is
	}
	return sampleOf(int64(len(times)), time.Duration(took), size, h), nil
}
