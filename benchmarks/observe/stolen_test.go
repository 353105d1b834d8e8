package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStolenIsThatOfSomeCPUs(t *testing.T) {
	const text = "cpu  10 0 0 0 0 0 0 60 0 0\ncpu0 1 2 3 4 5 6 7 10 9 10\ncpu1 0 0 0 0 0 0 0 20 0 0\ncpu11 0 0 0 0 0 0 0 30 0 0\nintr 1 2\n"
	for _, c := range []struct {
		cpus []int
		want time.Duration
	}{{[]int{0}, 100 * time.Millisecond}, {[]int{0, 1}, 300 * time.Millisecond}, {[]int{11}, 300 * time.Millisecond}, {nil, 0}} {
		got, err := stolen(text, c.cpus)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := stolen("cpu0 1 2 3\n", []int{0})
	require.Error(t, err)
	_, err = Stolen([]int{0})
	require.NoError(t, err)
}
