package client_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/l1"
	"github.com/slotcache/slotcache/l1/mounttest"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
	"github.com/slotcache/slotcache/server"
)

// childEnv holds the config of the server that a copy of the test binary is to be.
const childEnv = "SLOTCACHE_CLIENT_TEST_SERVER"

// patience bounds what would otherwise hang.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	mounttest.Private()
	if addr := os.Getenv(workerEnv); addr != "" {
		if err := work(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if addr := os.Getenv(puppetEnv); addr != "" {
		perform(addr)
		return
	}
	if cfg := os.Getenv(childEnv); cfg != "" {
		if err := serve(cfg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type childConfig struct {
	Path    string
	Size    int64
	ShmName *string
	L2Dir   string
	Limits  server.Limits

	ShmDir    string
	HugePages l1.HugePages
	Placement l1.Placement
}

// serve runs a server until its standard input ends, which it does with the parent.
func serve(text string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	cfg := server.Config{Listen: []string{"unix:" + c.Path, "tcp:127.0.0.1:0"}, L1Size: c.Size, ShmName: c.ShmName, L2Dir: c.L2Dir, Limits: c.Limits}
	cfg.ShmDir, cfg.HugePages, cfg.Placement = c.ShmDir, c.HugePages, c.Placement
	if c.L2Dir != "" {
		cfg.L2Size = 64 << 20
	}
	engine, err := ring.ParseEngine(os.Getenv(ringtest.EngineVariable))
	if err != nil {
		return err
	}
	cfg.Engine = engine
	s, err := server.New(cfg)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // any end is the end
		s.Shutdown()
	}()
	go func() {
		<-s.Ready()
		fmt.Println("ready", strings.Join(s.Addrs(), " "))
	}()
	return s.Run()
}

// A child is a server in a process of its own.
type child struct {
	t     *testing.T
	cfg   childConfig
	cmd   *exec.Cmd
	stdin io.Closer
	addrs []string // "ready" and the addresses
}

func startChild(t *testing.T, change func(*childConfig)) *child {
	dir, err := os.MkdirTemp("", "slot")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &child{t: t, cfg: childConfig{Path: filepath.Join(dir, "s"), Size: 16 << 20}}
	if change != nil {
		change(&c.cfg)
	}
	c.start()
	t.Cleanup(c.stop)
	return c
}

func (c *child) addr() string { return "unix:" + c.cfg.Path }

func (c *child) start() {
	c.t.Helper()
	text, err := json.Marshal(&c.cfg)
	require.NoError(c.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	c.stdin, err = cmd.StdinPipe()
	require.NoError(c.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())
	line, _ := bufio.NewReader(out).ReadString('\n') // what is missing is seen below
	c.addrs = strings.Fields(line)
	if len(c.addrs) == 0 {
		err := cmd.Wait()
		c.t.Fatalf("the server did not start: %v\n%s", err, stderr.String())
	}
	c.cmd = cmd
}

// kill ends the server as kill -9 does.
func (c *child) kill() {
	require.NoError(c.t, c.cmd.Process.Kill())
	var exit *exec.ExitError
	require.ErrorAs(c.t, c.cmd.Wait(), &exit)
	c.cmd = nil
}

// stop ends the server gracefully.
func (c *child) stop() {
	if c.cmd == nil {
		return
	}
	require.NoError(c.t, c.stdin.Close())
	require.NoError(c.t, c.cmd.Wait())
	c.cmd = nil
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

var chunk = client.Layout{Name: "chunk", Dims: []uint32{2, 4}, Size: 1 << 20}

func worker(t testing.TB, addr string, reg client.Registration) *client.Worker {
	t.Helper()
	if reg.Layouts == nil {
		reg.Layouts = []client.Layout{chunk}
	}
	w, err := client.Open(within(t), addr, client.Options{Logger: slog.New(slog.DiscardHandler), Name: t.Name()[:min(len(t.Name()), 60)]}, reg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

func key(i int) client.Key {
	var k client.Key
	binary.LittleEndian.PutUint64(k[8:], uint64(i))
	return k
}

func keys(first, n int) []client.Key {
	list := make([]client.Key, n)
	for i := range list {
		list[i] = key(first + i)
	}
	return list
}

// value is what is stored under key(i), of a length that depends on i.
func value(i int) []byte {
	b := make([]byte, 100+i*977%60000)
	for j := range b {
		b[j] = byte(i ^ j ^ j>>8)
	}
	return b
}

// store stores the first n values in one transfer.
func store(t testing.TB, w *client.Worker, n int) {
	t.Helper()
	sizes := make([]uint64, n)
	for i := range sizes {
		sizes[i] = uint64(len(value(i)))
	}
	st, err := w.PrepareStore(within(t), 0, keys(0, n), sizes, time.Second)
	require.NoError(t, err)
	for i := range n {
		require.Equal(t, "reserved", st.Status(i).String())
		copy(st.Slot(i), value(i))
	}
	require.NoError(t, st.Commit(within(t)))
	require.Equal(t, n, st.Published())
}

func requireValues(t testing.TB, first int, values [][]byte) {
	t.Helper()
	for i := range values {
		if string(values[i]) != string(value(first+i)) {
			t.Fatalf("value %d is not what was stored", first+i)
		}
	}
}

// idle waits until the server keeps nothing for anybody.
func idle(t testing.TB, c *client.Conn) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		err = nil
		list, e := c.Transfers(within(t))
		require.NoError(t, e)
		if len(list) > 0 {
			err = fmt.Errorf("transfers are left: %+v", list)
			continue
		}
		instances, e := c.Instances(within(t))
		require.NoError(t, e)
		for _, i := range instances {
			if i.Staged+i.Held+i.Quarantined > 0 {
				err = errors.Join(err, fmt.Errorf("instance %+v holds something", i))
			}
		}
		if err == nil {
			return
		}
	}
	t.Fatal(err)
}
