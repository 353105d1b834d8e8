package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/proto"
)

type instancesCommand struct {
	List  listCommand  `cmd:"" default:"withargs" help:"List the registered workers and what they hold. The default."`
	Evict evictCommand `cmd:"" help:"End an instance and take back what its process cannot touch; with --kill all of it."`
}

type listCommand struct {
	JSON bool `name:"json" help:"As a JSON array."`
}

// An instanceRow is an instance as --json prints it.
type instanceRow struct {
	ID          string `json:"id"`
	Incarnation uint32 `json:"incarnation"`
	State       string `json:"state"`
	PID         int32  `json:"pid"`
	Transport   string `json:"transport"`
	AgeMs       uint64 `json:"age_ms"`
	Staged      uint64 `json:"staged"`
	Held        uint64 `json:"held"`
	Quarantined uint64 `json:"quarantined"`
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
}

// Run prints the instances.
func (cmd *listCommand) Run(s *session) error {
	return s.ask(func(c *client.Conn) error {
		instances, err := c.Instances(s.ctx)
		if err != nil {
			return fmt.Errorf("instances of %s: %w", s.Addr, err)
		}
		rows := make([]instanceRow, len(instances))
		t := s.table()
		t.row("ID\tINC\tSTATE\tPID\tTRANSPORT\tAGE\tSTAGED\tHELD\tQUARANTINED\tNAME\tNAMESPACE")
		for i := range instances {
			n := &instances[i]
			rows[i] = instanceRow{
				ID: hexID(n.ID), Incarnation: n.Incarnation, State: instanceState(n.State), PID: n.PID, Transport: n.Transport.String(),
				AgeMs: n.AgeMs, Staged: n.Staged, Held: n.Held, Quarantined: n.Quarantined, Name: n.Name, Namespace: n.Namespace,
			}
			t.row("%s\t%d\t%s\t%d\t%v\t%v\t%v\t%v\t%v\t%s\t%s", hexID(n.ID), n.Incarnation, instanceState(n.State), n.PID, n.Transport,
				age(n.AgeMs), flags.Size(n.Staged), flags.Size(n.Held), flags.Size(n.Quarantined), dash(n.Name), dash(n.Namespace))
		}
		if cmd.JSON {
			return json.NewEncoder(s.out).Encode(rows)
		}
		return t.Flush()
	})
}

// hexID is an instance's id as all lists show it.
func hexID(id uint64) string { return fmt.Sprintf("%016x", id) }

// age is a time in milliseconds, to be read by people.
func age(ms uint64) time.Duration { return time.Duration(ms) * time.Millisecond }

func instanceState(state uint8) string {
	switch state {
	case proto.InstanceLive:
		return "live"
	case proto.InstanceDraining:
		return "draining"
	case proto.InstanceDetached:
		return "detached"
	}
	return fmt.Sprintf("state %d", state)
}

type evictCommand struct {
	ID   string `arg:"" help:"Instance, as the list shows it: hexadecimal."`
	Kill bool   `help:"Kill its process (SIGKILL), if it has shared memory, and wait until the server has all of its memory back."`
}

// evictPause is the time between two looks at whether a killed instance is gone.
const evictPause = 5 * time.Millisecond

// Run ends the instance, and says what only the end of its process gives back.
func (cmd *evictCommand) Run(s *session) error {
	id, err := strconv.ParseUint(strings.TrimPrefix(cmd.ID, "0x"), 16, 64)
	if err != nil {
		return flags.Usagef("instances evict: %q is no id, which has up to 16 hexadecimal digits", cmd.ID)
	}
	return s.ask(func(c *client.Conn) error {
		before, err := s.livesOf(c, id)
		if err != nil {
			return err
		}
		out, err := c.EvictInstance(s.ctx, id, cmd.Kill)
		if errors.Is(err, client.ErrStale) {
			return &flags.ExitError{Code: flags.NotFound, Err: fmt.Errorf("evict %s: no such instance at %s", hexID(id), s.Addr)}
		}
		if errors.Is(err, &client.StatusError{Status: proto.StatusDenied}) && cmd.Kill {
			return fmt.Errorf("evict %s: %w: the server may not kill %s, or was asked over TCP; end it yourself", hexID(id), err, pids(before))
		}
		if err != nil {
			return fmt.Errorf("evict %s: %w", hexID(id), err)
		}
		if !cmd.Kill {
			return s.evicted(id, out, before)
		}
		if err := s.gone(c, id, before); err != nil {
			return err
		}
		end := "its process is gone"
		if !shares(before) {
			end = "it had no shared memory, so that its process was not killed"
		}
		return s.printf("evicted %s: %s, %v are back\n", hexID(id), end, flags.Size(out.Freed+out.Draining))
	})
}

// evicted tells what an eviction without a kill has done.
func (s *session) evicted(id uint64, out client.Eviction, lives []client.InstanceInfo) error {
	if out.Draining == 0 {
		return s.printf("evicted %s: %v are back\n", hexID(id), flags.Size(out.Freed))
	}
	return s.printf("evicted %s: %v are back; %v stay with %s, which may still touch them, until it ends: --kill ends it\n",
		hexID(id), flags.Size(out.Freed), flags.Size(out.Draining), pids(lives))
}

// livesOf lists the lives of an id.
func (s *session) livesOf(c *client.Conn, id uint64) ([]client.InstanceInfo, error) {
	all, err := c.Instances(s.ctx)
	if err != nil {
		return nil, fmt.Errorf("instances of %s: %w", s.Addr, err)
	}
	lives := all[:0]
	for i := range all {
		if all[i].ID == id {
			lives = append(lives, all[i])
		}
	}
	return lives, nil
}

// gone waits until none of these lives is there any more. A new one may be: who starts
// workers may have started another.
func (s *session) gone(c *client.Conn, id uint64, lives []client.InstanceInfo) error {
	last := uint32(0)
	for i := range lives {
		last = max(last, lives[i].Incarnation)
	}
	for {
		now, err := s.livesOf(c, id)
		if err != nil {
			return err
		}
		left := now[:0]
		for i := range now {
			if now[i].Incarnation <= last {
				left = append(left, now[i])
			}
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-s.ctx.Done():
			return fmt.Errorf("evict %s: %s does not end: %w", hexID(id), pids(left), s.ctx.Err())
		case <-time.After(evictPause):
		}
	}
}

// shares says that one of these lives has shared memory: only such processes are killed.
func shares(lives []client.InstanceInfo) bool {
	return slices.ContainsFunc(lives, func(i client.InstanceInfo) bool { return i.Transport == proto.TransportShared })
}

// pids names the processes of instances.
func pids(lives []client.InstanceInfo) string {
	var names []string
	for i := range lives {
		if lives[i].PID != 0 {
			names = append(names, strconv.Itoa(int(lives[i].PID)))
		}
	}
	if len(names) == 0 {
		return "its process"
	}
	return "process " + strings.Join(names, ", ")
}
