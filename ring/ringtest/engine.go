package ringtest

import (
	"os"
	"testing"

	"github.com/slotcache/slotcache/ring"
)

// EngineVariable names the environment variable that chooses the engine of tests, and of the commands, which read it too: auto,
// uring or epoll. Auto, and no variable, runs them wherever they are; uring has them fail where io_uring is missing.
const EngineVariable = "SLOTCACHE_IO_ENGINE"

// Engine is the engine that the environment chooses for tests.
func Engine(t testing.TB) ring.Engine {
	t.Helper()
	e, err := ring.ParseEngine(os.Getenv(EngineVariable))
	if err != nil {
		t.Fatal(err)
	}
	return e
}
