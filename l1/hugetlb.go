package l1

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// hugetlbFree is how many pages of that size can still be set aside: those that
// are free and nobody's yet, and those that the kernel may make on demand.
func hugetlbFree(root string, pageSize int64) int64 {
	dir := filepath.Join(root, fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB", pageSize>>10))
	number := func(name string) int64 {
		n, _ := readNumber(filepath.Join(dir, name)) // what is not there is none
		return n
	}
	free := max(number("free_hugepages")-number("resv_hugepages"), 0)
	return free + max(number("nr_overcommit_hugepages")-number("surplus_hugepages"), 0)
}

// checkGroups returns a [*HugePagesError] if a control group above this process
// leaves less than size bytes of huge pages. The kernel itself would say so only
// when the pages are reserved.
func checkGroups(root string, size, pageSize int64) error {
	left, file := groupsLeft(root, pageSize)
	if size <= left {
		return nil
	}
	return &HugePagesError{
		Need: size / pageSize, Have: left / pageSize, Size: pageSize,
		Why: file + " allows no more",
	}
}

// groupsLeft is how many bytes of huge pages the control groups above this
// process leave, and the file that says so.
func groupsLeft(root string, pageSize int64) (int64, string) {
	suffix := strings.ReplaceAll(sizeName(pageSize), " ", "")
	suffix = strings.ReplaceAll(suffix, "iB", "B") // 2MB, 1GB
	least, file := int64(math.MaxInt64), ""
	for _, dir := range groupDirs(root, "hugetlb") {
		for _, kind := range []string{"", ".rsvd"} {
			base := filepath.Join(root, dir, "hugetlb."+suffix+kind)
			for _, names := range [][2]string{{".max", ".current"}, {".limit_in_bytes", ".usage_in_bytes"}} {
				limit, limited := readNumber(base + names[0])
				used, _ := readNumber(base + names[1])
				if left := max(limit-used, 0); limited && left < least {
					least, file = left, base+names[0]
				}
			}
		}
	}
	return least, file
}

// readNumber reads a file of one number; "max" and what is not there are none.
func readNumber(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
