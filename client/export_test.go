package client

import (
	"fmt"
	"os"
	"testing"

	"github.com/slotcache/slotcache/proto"
)

// Break breaks the worker's connection, as a network would.
func (w *Worker) Break() {
	l := w.session.Load().link
	_ = l.conn.Close()
	<-l.gone
}

// StartFake starts the fake server where the real one can't run, and returns its address
// and what stops it.
func StartFake() (addr string, stop func()) {
	t := &exampleT{}
	s := newFake(t, fakeConfig{kind: proto.ShmFd, server: "slotcache"})
	return s.addr(), t.end
}

// An exampleT is as much of a test as the fake server needs.
type exampleT struct {
	testing.TB
	cleanups []func()
}

// Helper does nothing.
func (*exampleT) Helper() {}

// Cleanup registers f.
func (t *exampleT) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Errorf is a panic.
func (*exampleT) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// FailNow is a panic.
func (*exampleT) FailNow() { panic("failed") }

// TempDir makes a directory that is removed at the end.
func (t *exampleT) TempDir() string {
	dir, err := os.MkdirTemp("", "slot")
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (t *exampleT) end() {
	for i := len(t.cleanups); i > 0; i-- {
		t.cleanups[i-1]()
	}
}
