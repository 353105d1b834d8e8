package observe

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStolenIsThatOfSomeCPUs(t *testing.T) {
	const text = "cpu  10 0 0 0 0 0 0 60 0 0\ncpu0 1 2 3 4 5 6 7 10 9 10\ncpu1 0 0 0 0 0 0 0 20 0 0\ncpu11 0 0 0 0 0 0 0 30 0 0\nintr 1 2\n"
	for _, c := range []struct {
		cpus []int
		want time.Duration
	}{{[]int{0}, 100 * time.Millisecond}, {[]int{0, 1}, 300 * time.Millisecond}, {[]int{11}, 300 * time.Millisecond}, {nil, 0}} {
		got, err := stolen(text, c.cpus)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := stolen("cpu0 1 2 3\n", []int{0})
	require.Error(t, err)
	_, err = Stolen([]int{0})
	require.NoError(t, err)
}

// A server that is too busy to tell its metrics is asked again, while there is time.
func TestABusyServerIsScrapedAgain(t *testing.T) {
	var asked, busy atomic.Int64
	busy.Store(2)
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) <= busy.Load() {
			out.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(out, "a 1\nb{c=\"d\"} 2\n")
	}))
	defer s.Close()
	got, err := Scrape(t.Context(), strings.TrimPrefix(s.URL, "http://"))
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"a": 1, `b{c="d"}`: 2}, got)
	require.EqualValues(t, 3, asked.Load())

	busy.Store(1 << 30)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = Scrape(ctx, strings.TrimPrefix(s.URL, "http://"))
	require.Error(t, err)
}
