package server_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/server"
)

// fetch gets a page of the server's.
func fetch(t *testing.T, r *running, path string) (int, []byte) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Get("http://" + r.HTTPAddr() + path)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, body
}

// scrape reads the metrics that are whole numbers.
func scrape(t *testing.T, r *running) map[string]uint64 {
	t.Helper()
	status, body := fetch(t, r, "/metrics")
	for end := time.Now().Add(patience); status == http.StatusServiceUnavailable && time.Now().Before(end); {
		status, body = fetch(t, r, "/metrics") // the machine is so busy that the loop did not answer in its time
	}
	require.Equal(t, http.StatusOK, status)
	all := make(map[string]uint64)
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			all[name] = n
		}
	}
	return all
}

func TestMetricsTellWhatHappened(t *testing.T) {
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	p := greet(t, r)
	p.register(1 << 20)
	p.put(keyOf(1), valueOf(1, 10_000))
	p.get(keyOf(1))
	all := scrape(t, r)
	require.EqualValues(t, 1, all["slotcache_connections"])
	require.EqualValues(t, 10_000, all["slotcache_stored_bytes_total"])
	require.EqualValues(t, 16<<20, all["slotcache_pool_populated_bytes"])
	require.EqualValues(t, 5, all["slotcache_frames_total"])
	require.Greater(t, all["slotcache_received_bytes_total"], uint64(10_000))
	// The loop knows of a send that it was whole one turn later.
	eventually(t, "what was sent is counted", func() bool { return scrape(t, r)["slotcache_sent_bytes_total"] > 10_000 })
	require.Zero(t, all["slotcache_ring_overflows_total"])
	require.Zero(t, all["slotcache_ring_stale_total"])
}

func TestHealthAndReadiness(t *testing.T) {
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/other": 404} {
		status, _ := fetch(t, r, path)
		require.Equal(t, want, status, path)
	}
}

// They would take the descriptors of the clients and of the disk tier.
func TestHTTPConnectionsAreLimited(t *testing.T) {
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	before := openFiles(t)
	var all []net.Conn
	for range 200 {
		c, err := net.Dial("tcp", r.HTTPAddr())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		all = append(all, c)
	}
	_, err := all[199].Read(make([]byte, 1)) // it is closed, and so everything before was seen
	require.Error(t, err)
	require.LessOrEqual(t, openFiles(t)-before-len(all), 20)
	for _, c := range all {
		require.NoError(t, c.Close())
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	eventually(t, "there is room again", func() bool {
		res, err := client.Get("http://" + r.HTTPAddr() + "/healthz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

func TestEachNumberOfMetricsHasItsHelpAndTypeBeforeIt(t *testing.T) {
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	_, body := fetch(t, r, "/metrics")
	lines := strings.Split(string(body), "\n")
	seen := 0
	for i, line := range lines {
		name, value, ok := strings.Cut(line, " ")
		if !ok || !strings.HasPrefix(name, "slotcache_") {
			continue
		}
		seen++
		_, err := strconv.ParseUint(value, 10, 64)
		require.NoError(t, err, line)
		family, _, _ := strings.Cut(name, "{")
		require.Regexp(t, `^# HELP `+family+` [A-Z0-9].*\.$`, lines[i-2])
		require.Regexp(t, `^# TYPE `+family+` (counter|gauge)$`, lines[i-1])
	}
	require.Greater(t, seen, 50)
}
