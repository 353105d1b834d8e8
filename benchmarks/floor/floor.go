// Package floor has the servers that a cache server's figures are held against: what the
// same machine does when nothing but the exchange itself is done. Each runs as a process of
// its own, so that it can be pinned and its processor time told.
package floor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"

	"github.com/slotcache/slotcache/benchmarks/load"
)

// A Kind is what a floor does with what it receives.
type Kind string

// The kinds.
const (
	Epoll Kind = "epoll" // one thread, epoll_wait, recv and send: as a C program would
	Spin  Kind = "spin"  // one connection at a time, which it never stops asking
	Net   Kind = "net"   // package net, a goroutine a connection
	Raw   Kind = "raw"   // values of any length in or out, see load.Raw
)

// Serve serves on a Unix socket until it fails. Ready is called when it listens.
func Serve(kind Kind, path string, ready func()) error {
	// A process that is pinned to one CPU starts with one, and a wait that keeps its P
	// would then stop everything else.
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	switch kind {
	case Epoll:
		return serveEpoll(path, ready)
	case Spin:
		return serveSpin(path, ready)
	case Net:
		return serveNet(path, ready, echo)
	case Raw:
		return serveNet(path, ready, raw)
	}
	return fmt.Errorf("floor: no kind %q", kind)
}

// serveNet gives each connection a goroutine.
func serveNet(path string, ready func(), f func(net.Conn) error) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	ready()
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		go func() {
			_ = f(c) // the client has gone
			_ = c.Close()
		}()
	}
}

func echo(c net.Conn) error {
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// raw takes values and gives some, of the length that is asked for.
func raw(c net.Conn) error {
	value, err := load.NewBuffer(64 << 20)
	if err != nil {
		return err
	}
	defer load.FreeBuffer(value)
	var head [load.RawHead]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		set, size := load.ParseRawHead(head[:])
		if size < 0 || size > len(value) {
			return errors.New("floor: a value too large")
		}
		if set {
			if _, err := io.ReadFull(c, value[:size]); err != nil {
				return err
			}
			size = 1
		}
		if _, err := c.Write(value[:size]); err != nil {
			return err
		}
	}
}
