// Package pages asks the kernel for huge pages behind large arrays of the heap.
//
// A processor knows the places of a few thousand pages. What is read in random
// order out of many megabytes in pages of 4 KiB costs a walk through the page tables
// beside each cache miss, which takes about as long again.
package pages

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Huge is the size of a huge page, in bytes.
const Huge = 2 << 20

// Advise asks for huge pages behind those of memory's huge pages that lie whole in it.
// It is to be called before memory is used: what is there already stays as it is. It
// is a wish: where the kernel has none, or does not give them to those who ask
// (/sys/kernel/mm/transparent_hugepage/enabled), memory has common pages as before.
func Advise(memory []byte) {
	if len(memory) < Huge {
		return
	}
	start := uintptr(unsafe.Pointer(&memory[0]))
	first := (Huge - start%Huge) % Huge
	if first >= uintptr(len(memory)) {
		return
	}
	n := (uintptr(len(memory)) - first) / Huge * Huge
	if n == 0 {
		return
	}
	_ = unix.Madvise(memory[first:first+n], unix.MADV_HUGEPAGE)
}
