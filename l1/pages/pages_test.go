package pages_test

import (
	"testing"

	"github.com/slotcache/slotcache/l1/pages"
)

func TestAdviseTakesMemoryOfAnySize(t *testing.T) {
	for _, n := range []int{0, 1, pages.Huge - 1, pages.Huge, pages.Huge + 1, 2*pages.Huge - 1, 5 * pages.Huge} {
		memory := make([]byte, n)
		pages.Advise(memory)
		for i := range memory {
			if memory[i] != 0 {
				t.Fatalf("byte %d of %d is %d", i, n, memory[i])
			}
			memory[i] = 1
		}
	}
}
