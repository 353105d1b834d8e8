package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/proto"
)

// stageSlot is the size of each slot.
const stageSlot = 1 << 20

type stageCommand struct {
	Addr      string `help:"Address of the server. Default: that of slotcache." env:"SLOTCACHE_ADDR" placeholder:"ADDR"`
	Token     string `help:"Word the server asks for." env:"SLOTCACHE_TOKEN" placeholder:"WORD"`
	TokenFile string `name:"token-file" help:"File with that word in its first line." env:"SLOTCACHE_TOKEN_FILE" placeholder:"FILE"`
	Slots     int    `help:"How many slots of 1MiB to take." default:"8"`
}

// Run is a worker in the middle of a store, for as long as it lives: it takes slots, writes
// to them, and never commits.
func (cmd *stageCommand) Run(ctx context.Context) error {
	if cmd.Slots < 1 || cmd.Slots > proto.MaxKeys {
		return flags.Usagef("--slots: %d is not between 1 and %d", cmd.Slots, proto.MaxKeys)
	}
	if err := flags.CheckToken(cmd.Token); err != nil {
		return err
	}
	if cmd.Addr == "" {
		addr, err := flags.DefaultAddr()
		if err != nil {
			return err
		}
		cmd.Addr = addr
	}
	w, err := client.Open(ctx, cmd.Addr, client.Options{Name: "stage", Token: cmd.Token, TokenFile: cmd.TokenFile}, client.Registration{
		Name: "stage", Layouts: []client.Layout{{Name: "bytes", Size: stageSlot}},
	})
	if err != nil {
		return fmt.Errorf("attach to %s: %w", cmd.Addr, err)
	}
	defer func() { _ = w.Close() }()
	keys, sizes := make([]client.Key, cmd.Slots), make([]uint64, cmd.Slots)
	for i := range keys {
		_, _ = rand.Read(keys[i][:]) // never fails
		sizes[i] = stageSlot
	}
	s, err := w.PrepareStore(ctx, 0, keys, sizes, 0)
	if err != nil {
		return fmt.Errorf("take %d slots at %s: %w", cmd.Slots, cmd.Addr, err)
	}
	for i := range keys {
		clear(s.Slot(i))
	}
	fmt.Printf("process %d has %d slots of %v and does not commit; kill it, or press Ctrl-C\n", os.Getpid(), s.Reserved(), flags.Size(stageSlot))
	<-ctx.Done()
	return s.Abort(context.WithoutCancel(ctx))
}
