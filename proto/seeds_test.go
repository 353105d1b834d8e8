package proto

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// corpusFile writes one seed of a fuzz target, if asked to.
func corpusFile(t *testing.T, target, name string, values ...any) {
	t.Helper()
	dir := filepath.Join("testdata", "fuzz", target)
	path := filepath.Join(dir, name)
	var b strings.Builder
	b.WriteString("go test fuzz v1\n")
	for _, v := range values {
		switch v := v.(type) {
		case []byte:
			fmt.Fprintf(&b, "[]byte(%q)\n", v)
		case byte:
			fmt.Fprintf(&b, "byte(%q)\n", rune(v))
		default:
			fmt.Fprintf(&b, "%T(%v)\n", v, v)
		}
	}
	if *update {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(content))
}

// TestCorporaHoldEveryGoldenFrame keeps the seeds of the fuzz targets in step with
// the golden frames.
func TestCorporaHoldEveryGoldenFrame(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(goldenDir, "*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for i, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		g := readGolden(t, path)
		// Two frames in a row, cut at places that differ from seed to seed.
		next := readGolden(t, paths[(i+1)%len(paths)])
		corpusFile(t, "FuzzSplitter", name, append(g.data[:len(g.data):len(g.data)], next.data...), []byte{byte(i), 7, 200, 33})
		h, err := ParseHeader(g.data)
		if err == nil {
			corpusFile(t, "FuzzParse", name, byte(h.Op), h.Reply(), g.data[HeaderSize:HeaderSize+h.Body])
		}
	}
}
