package benchmarks

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThePoolIsAwaitedThroughFailedScrapes(t *testing.T) {
	var scrapes atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := scrapes.Add(1)
		if now <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "slotcache_pool_populated_bytes", 1000*now) // or the scrape fails
	}))
	defer web.Close()
	n := &Node{http: strings.TrimPrefix(web.URL, "http://"), opts: NodeOptions{L1Size: 4000}}
	require.NoError(t, n.AwaitPool(context.Background()))
	require.EqualValues(t, 4, scrapes.Load())

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, n.AwaitPool(ctx), context.Canceled)
}
