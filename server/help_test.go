package server

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/server/engine"
)

var update = flag.Bool("update", false, "write the table of docs/OPERATIONS.md anew")

const operations = "../docs/OPERATIONS.md"

// tableOf is the table of all numbers, in their order.
func tableOf(names []string) string {
	var table strings.Builder
	table.WriteString("| name | what it is |\n|---|---|\n")
	for _, name := range names {
		fmt.Fprintf(&table, "| `%s` | %s |\n", name, help[name])
	}
	return table.String()
}

func TestEveryNumberSaysWhatItIs(t *testing.T) {
	s := snapshot{engine: engine.Metrics{IOEngine: `io_engine{engine="epoll"}`, DiskOn: true}}
	var names []string
	s.each(func(name string, _ uint64) {
		family, _, _ := strings.Cut(name, "{")
		names = append(names, family)
		require.Regexp(t, `^[A-Z0-9].*\.$`, help[family], name)
	})
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(help)), "each number once, and no others")
	text, err := os.ReadFile(operations)
	require.NoError(t, err)
	table := regexp.MustCompile(`(?s)\| name \| what it is \|\n.*?\n\n`)
	if *update {
		require.True(t, table.Match(text))
		text = table.ReplaceAllLiteral(text, []byte(tableOf(names)+"\n"))
		require.NoError(t, os.WriteFile(operations, text, 0o644))
	}
	require.Contains(t, string(text), tableOf(names), "run the test with -update")
}

func TestOnlyEmptyHelpIsLeftOut(t *testing.T) {
	require.Equal(t, "# TYPE a gauge\na 1\n# HELP b What b is.\nb 2\n", withoutEmptyHelp("# HELP a\n# TYPE a gauge\na 1\n# HELP b What b is.\nb 2\n"))
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	require.NoError(t, (&snapshot{populated: 1 << 30}).unready())
	require.EqualError(t, (&snapshot{life: lifeStopping}).unready(), "it is stopping")
	require.EqualError(t, (&snapshot{populated: 128 << 20, readyAt: 1 << 30}).unready(), "12 % of the memory it starts with is reserved (128 of 1024 MiB)")
}

// A recovery of a large disk tier takes long: a probe of liveness that waited for it would have the server killed.
func TestAServerThatStartsIsAliveAndSaysHowFarItIs(t *testing.T) {
	w := newWeb(&scrape{}, slog.New(slog.DiscardHandler))
	get := func(path string) (int, string) {
		out := httptest.NewRecorder()
		w.server.Handler.ServeHTTP(out, httptest.NewRequest(http.MethodGet, path, nil))
		return out.Code, out.Body.String()
	}
	code, body := get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not ready: starting\n", body)
	recovering(w, slog.New(slog.DiscardHandler), 0)(2, 5, 17)
	_, body = get("/readyz")
	require.Equal(t, "not ready: 40 % of the disk tier is read (2 of 5 segments)\n", body)
	code, _ = get("/healthz")
	require.Equal(t, http.StatusOK, code)
	code, _ = get("/metrics")
	require.Equal(t, http.StatusServiceUnavailable, code)
}
