//go:build race

package cmdtest

// Race says that the race detector is on.
const Race = true
