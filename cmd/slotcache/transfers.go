package main

import (
	"encoding/json"
	"fmt"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/proto"
)

type transfersCommand struct {
	JSON bool `name:"json" help:"As a JSON array."`
}

// A transferRow is a transfer as --json prints it.
type transferRow struct {
	Handle      string `json:"handle"`
	Kind        string `json:"kind"`
	State       string `json:"state"`
	Keys        uint32 `json:"keys"`
	Bytes       uint64 `json:"bytes"`
	AgeMs       uint64 `json:"age_ms"`
	Instance    string `json:"instance"`
	Incarnation uint32 `json:"incarnation"`
	Owner       string `json:"owner_state"`
	PID         int32  `json:"pid"`
	Name        string `json:"name"`
}

// An owner is one life of an instance.
type owner struct {
	id          uint64
	incarnation uint32
}

// Run prints the transfers and whose they are.
func (cmd *transfersCommand) Run(s *session) error {
	return s.ask(func(c *client.Conn) error {
		transfers, err := c.Transfers(s.ctx)
		if err != nil {
			return fmt.Errorf("transfers of %s: %w", s.Addr, err)
		}
		instances, err := c.Instances(s.ctx)
		if err != nil {
			return fmt.Errorf("instances of %s: %w", s.Addr, err)
		}
		owners := make(map[owner]*client.InstanceInfo, len(instances))
		for i := range instances {
			owners[owner{instances[i].ID, instances[i].Incarnation}] = &instances[i]
		}
		rows := make([]transferRow, len(transfers))
		t := s.table()
		t.row("HANDLE\tKIND\tSTATE\tKEYS\tBYTES\tAGE\tINSTANCE\tINC\tOWNER\tPID\tNAME")
		for i := range transfers {
			x := &transfers[i]
			r := transferRow{
				Handle: hexID(x.Handle), Kind: x.Kind.String(), State: transferState(x.State), Keys: x.Keys, Bytes: x.Bytes,
				AgeMs: x.AgeMs, Instance: hexID(x.Instance), Incarnation: x.Incarnation, Owner: "gone",
			}
			if o := owners[owner{x.Instance, x.Incarnation}]; o != nil { // else it ended between the two questions
				r.Owner, r.PID, r.Name = instanceState(o.State), o.PID, o.Name
			}
			rows[i] = r
			t.row("%s\t%s\t%s\t%d\t%v\t%v\t%s\t%d\t%s\t%d\t%s", r.Handle, r.Kind, r.State, r.Keys, flags.Size(r.Bytes),
				age(r.AgeMs), r.Instance, r.Incarnation, r.Owner, r.PID, dash(r.Name))
		}
		if cmd.JSON {
			return json.NewEncoder(s.out).Encode(rows)
		}
		return t.Flush()
	})
}

func transferState(state uint8) string {
	switch state {
	case proto.TransferOpen:
		return "open"
	case proto.TransferExpired:
		return "expired, quarantined"
	case proto.TransferLoading:
		return "loading"
	case proto.TransferWaiting:
		return "waiting"
	case proto.TransferMoving:
		return "moving"
	case proto.TransferEnding:
		return "moving, abandoned"
	}
	return fmt.Sprintf("state %d", state)
}
