package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/cmd/cmdtest"
	"github.com/slotcache/slotcache/proto"
)

// hoarderEnv, in the environment, makes the test binary a worker of the server at that
// address. It keeps a slot, and a lease without one, until its standard input ends.
const hoarderEnv = "SLOTCACHE_TEST_HOARDER"

func hoard(addr string) {
	if err := hoarding(addr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func hoarding(addr string) error {
	ctx := context.Background()
	w, err := client.Open(ctx, addr, client.Options{}, client.Registration{
		Instance: 0xabc, Name: "hoarder", Namespace: "n", Layouts: []client.Layout{valueLayout},
	})
	if err != nil {
		return err
	}
	if _, err = w.Put(ctx, 0, key("held"), make([]byte, 1<<20)); err != nil {
		return err
	}
	if _, err = w.Lookup(ctx, client.LookupRequest{Keys: []client.Key{key("held")}, Hold: true}); err != nil {
		return err
	}
	if _, err = w.PrepareStore(ctx, 0, []client.Key{key("staged")}, []uint64{2 << 20}, 0); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startHoarder runs one until the end of the test.
func startHoarder(t *testing.T, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hoarderEnv+"="+addr)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill() // it may be dead
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return cmd
}

// rows parses a list that was asked for as JSON.
func rows[T any](t *testing.T, r cmdtest.Result) (list []T) {
	t.Helper()
	require.Zero(t, r.Code, r.Stderr)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &list))
	return list
}

func TestAnInstanceIsEvictedAndKilled(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	worker := startHoarder(t, cmdtest.Addr(dir))

	list := rows[instanceRow](t, cli(t, dir, "", "instances", "--json"))
	require.Len(t, list, 1)
	require.Equal(t, "0000000000000abc", list[0].ID)
	require.Equal(t, "live", list[0].State)
	require.EqualValues(t, worker.Process.Pid, list[0].PID)
	require.EqualValues(t, 2<<20, list[0].Staged)
	require.EqualValues(t, 1<<20, list[0].Held)
	transfers := rows[transferRow](t, cli(t, dir, "", "transfers", "--json"))
	require.Len(t, transfers, 2)
	for _, x := range transfers {
		require.Equal(t, "open", x.State)
		require.Equal(t, "live", x.Owner)
		require.Equal(t, "hoarder", x.Name)
		require.EqualValues(t, worker.Process.Pid, x.PID)
	}

	r := cli(t, dir, "", "instances", "evict", "abc")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "1MiB are back; 2MiB stay with process "+fmt.Sprint(worker.Process.Pid))
	transfers = rows[transferRow](t, cli(t, dir, "", "transfers", "--json"))
	require.Len(t, transfers, 1)
	require.Equal(t, "expired, quarantined", transfers[0].State)
	require.Equal(t, "draining", transfers[0].Owner)
	r = cli(t, dir, "", "transfers")
	require.Contains(t, r.Stdout, "quarantined")
	require.Contains(t, r.Stdout, "hoarder")

	r = cli(t, dir, "", "instances", "evict", "0000000000000abc", "--kill")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "its process is gone, 2MiB are back")
	require.Error(t, worker.Wait(), "it was killed")
	require.Equal(t, "killed", strings.TrimPrefix(worker.ProcessState.String(), "signal: "))
	require.Empty(t, rows[transferRow](t, cli(t, dir, "", "transfers", "--json")))
	require.Empty(t, rows[instanceRow](t, cli(t, dir, "", "instances", "list", "--json")))
	stats := map[string]uint64{}
	require.NoError(t, json.Unmarshal([]byte(cli(t, dir, "", "stats", "--json").Stdout), &stats))
	require.Zero(t, stats["l1_staged_bytes"]+stats["l1_held_bytes"]+stats["l1_quarantined_bytes"]+stats["quarantined_transfer_bytes"])
	require.Equal(t, stats["l1_resident_bytes"], stats["l1_used_bytes"])
	require.EqualValues(t, 2, stats["evicted_instances_total"])

	r = cli(t, dir, "", "instances", "evict", "abc")
	require.Equal(t, 3, r.Code)
	require.Contains(t, r.Stderr, "no such instance")
}

// A stopped process cannot be asked to end; a kill ends it all the same.
func TestAStoppedProcessIsKilledToo(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	worker := startHoarder(t, cmdtest.Addr(dir))
	require.NoError(t, worker.Process.Signal(syscall.SIGSTOP))
	begin := time.Now()
	r := cli(t, dir, "", "instances", "evict", "abc", "--kill")
	require.Zero(t, r.Code, r.Stderr)
	t.Logf("its memory was back after %v", time.Since(begin))
	require.Empty(t, rows[instanceRow](t, cli(t, dir, "", "instances", "--json")))
}

// A worker without shared memory can touch none: it is not killed, and nobody is told that it was. It may come back.
func TestAnInlineWorkerIsEvictedAndNotKilled(t *testing.T) {
	dir := cmdtest.Dir(t)
	cmdtest.Start(t, cmdtest.Small(dir)...)
	ctx := context.Background()
	w, err := client.Open(ctx, cmdtest.Addr(dir), client.Options{}, client.Registration{
		Instance: 0xdef, Namespace: "n", Inline: true, Layouts: []client.Layout{valueLayout},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	_, err = w.PrepareStore(ctx, 0, []client.Key{key("staged")}, []uint64{1 << 20}, 0)
	require.NoError(t, err)
	r := cli(t, dir, "", "instances", "evict", "def", "--kill")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "not killed, 1MiB are back")
	st, err := w.Put(ctx, 0, key("again"), []byte("x"))
	require.NoError(t, err)
	require.Equal(t, proto.StatusOK, st)
}
