package benchmarks

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const smallTrace = `{"timestamp": 0, "hash_ids": [0, 1, 2]}

{"timestamp": 5, "hash_ids": [0, 1, 3, 4], "output_length": 3}
{"hash_ids": [0, 5, 2]}
`

func TestTracesAreReadPlainAndGzipped(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write([]byte(smallTrace))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	dir := t.TempDir()
	for name, data := range map[string][]byte{"plain": []byte(smallTrace), "zipped": z.Bytes()} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		requests, err := ReadTrace(path, 0)
		require.NoError(t, err)
		require.Equal(t, []Request{{[]uint64{0, 1, 2}}, {[]uint64{0, 1, 3, 4}}, {[]uint64{0, 5, 2}}}, requests)
		requests, err = ReadTrace(path, 2)
		require.NoError(t, err)
		require.Len(t, requests, 2)
	}
}

func TestBrokenTracesNameTheLine(t *testing.T) {
	_, err := parseTrace(strings.NewReader("{\"hash_ids\": [1]}\n{\"hash_ids\": [-1]}\n"), 0)
	require.ErrorContains(t, err, "line 2")
	_, err = parseTrace(strings.NewReader("\n\n"), 0)
	require.ErrorContains(t, err, "no request")
	_, err = parseTrace(strings.NewReader("{\"timestamp\": 1}\n{\"hash_ids\": []}\n"), 0)
	require.ErrorContains(t, err, "has hash_ids")
	_, err = parseTrace(strings.NewReader("\x1f\x8bnot gzip at all"), 0)
	require.Error(t, err)
	var torn bytes.Buffer
	z := gzip.NewWriter(&torn)
	for i := range 20_000 {
		_, err = fmt.Fprintf(z, "{\"hash_ids\": [%d]}\n", i*i)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	torn.Truncate(torn.Len() / 2)
	_, err = parseTrace(&torn, 0)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "not the error of the line that it ends in")
	_, err = ReadTrace(filepath.Join(t.TempDir(), "none"), 0)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestInfiniteHitsCountsLeadingBlocksOnly(t *testing.T) {
	requests, err := parseTrace(strings.NewReader(smallTrace), 0)
	require.NoError(t, err)
	blocks, hits := InfiniteHits(requests)
	require.Equal(t, 10, blocks)
	require.Equal(t, 3, hits, "two of the second request, one of the third")
}

func TestBlockKeysDiffer(t *testing.T) {
	require.NotEqual(t, BlockKey(1), BlockKey(2))
	require.Equal(t, BlockKey(1), BlockKey(1))
}
