package server_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/l2/l2test"
	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// leading asks how many leading keys are there, and loads none.
func (p *peer) leading(keys ...proto.Key) int {
	p.t.Helper()
	h, body, _ := p.call(proto.OpLookup, proto.AppendLookup(nil, &proto.Lookup{Group: 1, Keys: keys}), nil)
	require.Equal(p.t, proto.StatusOK, h.Status)
	var out proto.LookupReply
	require.NoError(p.t, proto.ParseLookupReply(body, &out))
	return int(out.Hits)
}

// segments returns the segment files of a disk tier.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "seg-*.slc"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// Wrong data served after a failed load, and one bad file that stalls a request: what becomes
// of a segment file between the lookup that says *hit* and the load is a miss of exactly the
// keys it held, within a second, whatever bytes of others the memory had before.
func TestAFileThatGoesBadBetweenLookupAndLoadIsAMiss(t *testing.T) {
	const keys, length = 16, 300_000
	harm := map[string]func(t *testing.T, file string){
		"deleted":   func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) },
		"truncated": func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 0)) },
		"cut":       func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 1<<20+100)) },
		"forbidden": func(t *testing.T, file string) { require.NoError(t, os.Chmod(file, 0)) },
		"zeroed": func(t *testing.T, file string) {
			require.NoError(t, os.WriteFile(file, make([]byte, 4<<20), 0o600))
		},
		"a directory": func(t *testing.T, file string) {
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.Mkdir(file, 0o700))
		},
	}
	for name, do := range harm {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			dir := filepath.Join(filepath.Dir(path), "l2")
			var log lineCounter
			config := func(c *server.Config) {
				c.L2Dir, c.L2Size, c.L1Size = dir, 128<<20, 8<<20
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			}
			r := start(t, config)
			p := greet(t, r)
			p.register(1 << 20)
			for i := range keys {
				p.put(keyOf(i), valueOf(i, length))
			}
			for i := range 200 { // all of the memory has bytes of others
				p.put(keyOf(1000+i), valueOf(1000+i, 100_000))
			}
			for i := range keys {
				require.Equal(t, 1, p.leading(keyOf(i)), "key %d", i)
			}
			do(t, segments(t, dir)[0])
			before := p.stats()
			gone := 0
			for i := range keys {
				asked := time.Now()
				status, got := p.fetchLoaded(keyOf(i))
				if took := time.Since(asked); took > time.Second {
					t.Logf("key %d took %v", i, took)
				}
				if status == proto.StatusMiss {
					gone++
					require.Empty(t, got)
					require.Zero(t, p.leading(keyOf(i)), "key %d", i)
					continue
				}
				require.Equal(t, proto.StatusOK, status, "key %d", i)
				require.True(t, bytes.Equal(valueOf(i, length), got), "key %d has wrong bytes", i)
			}
			after := p.stats()
			require.EqualValues(t, gone, after["l2_bad_records_total"]-before["l2_bad_records_total"])
			t.Logf("%d of %d are gone", gone, keys)
			lines := log.with("a value could not be read back as it was written, and is gone")
			require.Equal(t, gone > 0, lines > 0, "%d are gone, and %d lines say so", gone, lines)
			require.LessOrEqual(t, lines, gone)
			if name == "truncated" || name == "zeroed" {
				require.Positive(t, gone)
			}
			for i := range keys {
				if p.leading(keyOf(i)) == 0 {
					p.put(keyOf(i), valueOf(i, length))
				}
			}
			status, got := p.fetchLoaded(keyOf(0))
			require.Equal(t, proto.StatusOK, status)
			require.True(t, bytes.Equal(valueOf(0, length), got))
			p.ping()
		})
	}
}

// A lineCounter is a log that is counted.
type lineCounter struct {
	mu    sync.Mutex
	lines []string
}

func (l *lineCounter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

// with counts the lines that have a text.
func (l *lineCounter) with(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.lines {
		if strings.Contains(s, text) {
			n++
		}
	}
	return n
}

// A disk filled by somebody else under load: stores go on in memory, the log has a line and
// not a flood, spills resume by themselves when there is room again, and a start on the full
// disk works.
func TestADiskFilledByOthersCostsTheDiskTierOnly(t *testing.T) {
	mount := l2test.Disk(t, 128<<20)
	dir := filepath.Join(mount, "l2")
	var log lineCounter
	config := func(c *server.Config) {
		c.L2Dir, c.L2Size, c.L1Size = dir, 1<<30, 8<<20 // more than there is
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	}
	r := start(t, config)
	p := greet(t, r)
	p.register(1 << 20)
	p.put(keyOf(1), valueOf(1, 300_000))
	eventually(t, "the first value is on disk", func() bool { return p.stats()["l2_records"] == 1 })
	ballast := l2test.Fill(t, mount)
	for i := range 400 { // 80 MiB: more than the segments there are can take
		p.put(keyOf(10+i), valueOf(10+i, 200_000))
		if i%50 == 0 {
			status, got := p.get(keyOf(10 + i))
			require.Equal(t, proto.StatusOK, status)
			require.True(t, bytes.Equal(valueOf(10+i, 200_000), got))
		}
	}
	require.LessOrEqual(t, log.with("level=WARN"), 10)
	require.LessOrEqual(t, log.with("degraded"), 3)
	p.ping()
	r.stop()

	r = start(t, config) // on the full disk
	p = greet(t, r)
	p.register(1 << 20)
	p.put(keyOf(2), valueOf(2, 300_000))
	require.NoError(t, os.Remove(ballast))
	next := 1000
	eventually(t, "spills resume", func() bool {
		before := p.stats()["l2_records"]
		p.put(keyOf(next), valueOf(next, 300_000))
		next++
		return p.stats()["l2_records"] > before
	})
	r.stop()
}
