package benchmarks

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/slotcache/slotcache/proto"
)

// A Request is one line of a trace: the ids of its blocks in prefix order. Equal ids are
// equal prefixes up to and including that block.
type Request struct {
	Blocks []uint64 `json:"hash_ids"`
}

// maxTraceLine is the longest line of a trace, in bytes.
const maxTraceLine = 16 << 20

// ReadTrace reads the first n requests (0: all) of a file of JSON lines, gzipped or not.
// A trace without a request, or without a block in any of them, is an error.
func ReadTrace(path string, n int) ([]Request, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	requests, err := parseTrace(f, n)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", path, err)
	}
	return requests, nil
}

func parseTrace(r io.Reader, n int) ([]Request, error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		buffered = bufio.NewReaderSize(z, 1<<16)
	}
	lines := bufio.NewScanner(buffered)
	lines.Buffer(nil, maxTraceLine)
	var requests []Request
	for number := 1; (n == 0 || len(requests) < n) && lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var request Request
		if err := json.Unmarshal(line, &request); err != nil {
			if cut := lines.Err(); cut != nil { // the line is what there is of it: the file is torn, say
				err = cut
			}
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		requests = append(requests, request)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(requests) == 0 {
		return nil, errors.New("no request in it")
	}
	if !slices.ContainsFunc(requests, func(r Request) bool { return len(r.Blocks) > 0 }) {
		return nil, errors.New("no request in it has hash_ids")
	}
	return requests, nil
}

// BlockKey is the key of a block: the SHA-256 of its id.
func BlockKey(id uint64) proto.Key {
	var text [8]byte
	binary.LittleEndian.PutUint64(text[:], id)
	return sha256.Sum256(text[:])
}

// InfiniteHits counts the blocks of the requests, and those among them that a cache of
// infinite size serves as prefix hits: the leading blocks of a request seen before it.
func InfiniteHits(requests []Request) (blocks, hits int) {
	seen := make(map[uint64]struct{})
	for i := range requests {
		ids := requests[i].Blocks
		blocks += len(ids)
		for _, id := range ids {
			if _, ok := seen[id]; !ok {
				break
			}
			hits++
		}
		for _, id := range ids {
			seen[id] = struct{}{}
		}
	}
	return blocks, hits
}
