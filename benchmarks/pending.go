package benchmarks

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/slotcache/slotcache/client"
)

const (
	// settleTime is how long a server may take to notice that workers are gone and to
	// finish what its disk still does for them.
	settleTime = 20 * time.Second
	// pollTime is how often it is asked meanwhile.
	pollTime = 5 * time.Millisecond
)

// Pending is what a server says is open, held or under way. Between requests everything
// but Instances is zero, and Used is Resident.
type Pending struct {
	Instances   uint64 `json:"instances"`
	Transfers   uint64 `json:"transfers"`
	Waiting     uint64 `json:"waiting_requests"`
	Staged      uint64 `json:"staged_bytes"`
	Held        uint64 `json:"held_bytes"`
	Quarantined uint64 `json:"quarantined_bytes"`
	Loading     uint64 `json:"loading_bytes"`
	Doomed      uint64 `json:"doomed_bytes"`
	Used        uint64 `json:"used_bytes"`
	Resident    uint64 `json:"resident_bytes"`

	dirty uint64 // bytes that are not on disk yet
	queue uint64 // objects on the way there
}

// readPending asks the server. A counter it does not know is an error, not a zero.
func readPending(ctx context.Context, c *client.Conn) (Pending, error) {
	var p Pending
	counters, err := c.Stats(ctx)
	if err != nil {
		return p, err
	}
	wanted := map[string]*uint64{
		"instances": &p.Instances, "transfers": &p.Transfers, "waiting_requests": &p.Waiting,
		"l1_staged_bytes": &p.Staged, "l1_held_bytes": &p.Held, "l1_quarantined_bytes": &p.Quarantined,
		"l1_loading_bytes": &p.Loading, "l1_doomed_bytes": &p.Doomed,
		"l1_used_bytes": &p.Used, "l1_resident_bytes": &p.Resident, "l1_dirty_bytes": &p.dirty,
	}
	for _, k := range counters {
		if k.Name == "l2_queue" { // only with a disk store
			p.queue = k.Value
		}
		if field, ok := wanted[k.Name]; ok {
			*field = k.Value
			delete(wanted, k.Name)
		}
	}
	for name := range wanted {
		return p, fmt.Errorf("the server tells no %s", name)
	}
	return p, nil
}

// left lists what is pending beyond what was before, empty when the server is at rest.
func (p *Pending) left(before *Pending) string {
	var left []string
	add := func(name string, now, then uint64) {
		if now > then {
			left = append(left, fmt.Sprintf("%s %d", name, now-then))
		}
	}
	add("instances", p.Instances, before.Instances)
	add("transfers", p.Transfers, before.Transfers)
	add("waiting requests", p.Waiting, before.Waiting)
	add("staged bytes", p.Staged, before.Staged)
	add("held bytes", p.Held, before.Held)
	add("quarantined bytes", p.Quarantined, before.Quarantined)
	add("loading bytes", p.Loading, before.Loading)
	add("doomed bytes", p.Doomed, before.Doomed)
	busy := p.Staged + p.Quarantined + p.Loading + p.Doomed
	if p.Used != p.Resident+busy {
		left = append(left, fmt.Sprintf("used bytes %d, but %d resident and %d busy", p.Used, p.Resident, busy))
	}
	return strings.Join(left, ", ")
}

// settle waits until nothing is pending beyond what was before, and gives the last state
// seen; the error says what is left.
func settle(ctx context.Context, c *client.Conn, before *Pending) (Pending, error) {
	return await(ctx, c, func(p *Pending) string { return p.left(before) })
}

// Settled waits until nothing at all is pending.
func Settled(ctx context.Context, c *client.Conn) (Pending, error) { return settle(ctx, c, &Pending{}) }

// await asks the server until nothing is missing. The error says what still is.
func await(ctx context.Context, c *client.Conn, missing func(*Pending) string) (Pending, error) {
	for deadline := time.Now().Add(settleTime); ; {
		p, err := readPending(ctx, c)
		if err != nil {
			return p, err
		}
		what := missing(&p)
		if what == "" {
			return p, nil
		}
		if time.Now().After(deadline) {
			return p, fmt.Errorf("after %v the server still has: %s", settleTime, what)
		}
		if !Pause(ctx, pollTime) {
			return p, ctx.Err()
		}
	}
}
