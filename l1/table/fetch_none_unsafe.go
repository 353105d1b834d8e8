//go:build !amd64 && !arm64

package table

import "unsafe"

func prefetch(unsafe.Pointer, *uint32, int, uint32, uintptr) {}
