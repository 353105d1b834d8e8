package l1

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/zeebo/xxh3"

	"github.com/slotcache/slotcache/l1/table"
)

// ErrFault is returned when pool bytes could not be touched: their page is gone
// because somebody truncated the file, or memory ran out.
var ErrFault = errors.New("l1: fault while touching the pool")

// Sum returns the xxh3-64 of pool bytes. They may change while it reads, so
// that the sum tells nothing about a later read.
func Sum(b []byte) (sum uint64, err error) {
	old := debug.SetPanicOnFault(true)
	defer settle(old, &err)
	return xxh3.Hash(b), nil
}

// CopyIn copies all of src to the beginning of dst, which are pool bytes. After
// an error any part of them may have been written.
func CopyIn(dst, src []byte) (err error) {
	if len(dst) < len(src) {
		panic("l1: copy into too few bytes")
	}
	old := debug.SetPanicOnFault(true)
	defer settle(old, &err)
	copy(dst, src)
	return nil
}

// CopyOut copies all of src, which are pool bytes, to the beginning of dst.
// After an error any part of dst may have been written.
func CopyOut(dst, src []byte) (err error) {
	if len(dst) < len(src) {
		panic("l1: copy into too few bytes")
	}
	old := debug.SetPanicOnFault(true)
	defer settle(old, &err)
	copy(dst, src)
	return nil
}

// touch reads a byte of each unit, which maps the pages that are there.
func touch(b []byte) (err error) {
	old := debug.SetPanicOnFault(true)
	defer settle(old, &err)
	var x byte
	for i := int64(0); i < int64(len(b)); i += table.Unit {
		x |= b[i]
	}
	runtime.KeepAlive(x)
	return nil
}

// settle is deferred by who touches pool bytes. It turns the panic of a fault
// into an error and lets others pass; old is the goroutine's setting before.
func settle(old bool, err *error) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	fault, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		panic(r)
	}
	*err = fmt.Errorf("%w at address %#x", ErrFault, fault.Addr())
}
