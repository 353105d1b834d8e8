package observe

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stolenField is which field of a line of /proc/stat is the time that a virtual CPU was ready to run and its host ran something
// else; the first is the CPU's name.
const stolenField = 8

// Stolen is the time that some CPUs were kept from running by the host of this machine, all together, since it started.
func Stolen(cpus []int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("observe: %w", err)
	}
	return stolen(string(text), cpus)
}

// stolen is what a text of /proc/stat says of it, in hundredths of a second.
func stolen(text string, cpus []int) (sum time.Duration, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		number, ok := strings.CutPrefix(fields[0], "cpu")
		cpu, err := strconv.Atoi(number)
		if !ok || err != nil || !slices.Contains(cpus, cpu) {
			continue
		}
		if len(fields) <= stolenField {
			return 0, fmt.Errorf("observe: /proc/stat does not tell what was stolen: %q", line)
		}
		n, err := strconv.ParseInt(fields[stolenField], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("observe: /proc/stat: %w", err)
		}
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum, nil
}
