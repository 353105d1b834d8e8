//go:build amd64 || arm64

package table

import "unsafe"

// prefetch asks the processor for the cache lines at base + (at[i]&mask)*size, i < n,
// and waits for none of them. It is in fetch_*.s.
//
//go:noescape
func prefetch(base unsafe.Pointer, at *uint32, n int, mask uint32, size uintptr)
