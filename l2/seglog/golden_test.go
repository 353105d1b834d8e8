package seglog

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the store images in testdata/store anew")

// goldenSize is a segment that three values just fit in, one of which is not packed.
const goldenSize = 16 * BlockSize

// goldenRig is a log whose every byte on disk is determined.
func goldenRig(t *testing.T) *rig {
	return newRig(t, 4, func(c *Config) {
		c.Size, c.SegmentSize = 4*goldenSize, goldenSize
		copy(c.StoreID[:], "the golden store")
		n := byte(0)
		c.Nonce = func() (b [16]byte) {
			n++
			copy(b[:], "nonce of life ")
			b[15] = n
			return b
		}
	})
}

// goldenValue is mostly zero, so that its image is short.
func goldenValue(n int, size int) []byte {
	p := make([]byte, size)
	copy(p, fmt.Sprintf("value %d begins", n))
	copy(p[size-10:], fmt.Sprintf("%d ends here", n)[:10])
	return p
}

// goldenStore is the store in whole.txt: three puts, one of which is deleted, and a clear of another namespace.
func goldenStore(t *testing.T) *rig {
	r := goldenRig(t)
	r.run()
	for n, size := range []int{40, 33000, 24} {
		k := key(n)
		copy(r.pool[n*rigSlot:][:size], goldenValue(n, size))
		require.True(t, r.l.Put(&k, Mem{Off: int64(n) * rigSlot, Len: rigSlot}, int64(size), Token(n+1)))
	}
	r.run()
	require.Equal(t, ResultOK, r.ended[3].Result)
	require.True(t, r.l.Delete([]Key{key(2)}, 4))
	require.True(t, r.l.Clear(9, 5))
	r.run()
	r.close()
	return r
}

func TestStoreImagesReadAsTheySay(t *testing.T) {
	files, err := filepath.Glob("testdata/store/*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 5)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			expect, disk := parseImage(t, string(text))
			r := goldenRig(t)
			r.recall(disk)
			r.restart()
			got := fmt.Sprintf("records %d, tombstones %d, sealed %d, scanned %d, ignored %d",
				r.report.Records, r.report.Tombstones, r.report.Sealed, r.report.Scanned, len(r.report.Ignored))
			require.Equal(t, expect["report"], got, "%v", r.report.Ignored)
			hits := []string{}
			for n, size := range []int{40, 33000, 24} {
				if p := r.load(n); p != nil {
					require.True(t, bytes.Equal(goldenValue(n, size), p))
					hits = append(hits, strconv.Itoa(n))
				}
			}
			require.Equal(t, expect["hits"], strings.Join(hits, " "))
		})
	}
}

func TestTheWriterWritesTheWholeImage(t *testing.T) {
	r := goldenStore(t)
	whole := r.save()
	if *update {
		writeImages(t, whole)
	}
	text, err := os.ReadFile("testdata/store/whole.txt")
	require.NoError(t, err)
	_, disk := parseImage(t, string(text))
	require.Len(t, disk, len(whole))
	for id, p := range whole {
		require.True(t, bytes.Equal(p, disk[id]), "segment %d differs from testdata/store/whole.txt", id)
	}
}

// writeImages derives all images from the whole one.
func writeImages(t *testing.T, whole map[SegmentID][]byte) {
	image := func(name, about, report, hits string, change func(p []byte)) {
		disk := make(map[SegmentID][]byte)
		for id, p := range whole {
			disk[id] = bytes.Clone(p)
		}
		change(disk[0])
		text := "# " + about + "\nreport: " + report + "\nhits: " + hits + "\n" + dumpImage(disk)
		require.NoError(t, os.WriteFile("testdata/store/"+name+".txt", []byte(text), 0o644))
	}
	last := goldenSize - BlockSize
	image("whole", "Two sealed segments, and a spare that is ready.",
		"records 2, tombstones 2, sealed 2, scanned 1, ignored 0", "0 1", func([]byte) {})
	image("unsealed", "The first without its trailer: it is scanned.",
		"records 2, tombstones 2, sealed 1, scanned 2, ignored 0", "0 1", func(p []byte) { clear(p[last:]) })
	image("torn", "No trailer, and of the first group's header only the first sector: its records are gone.",
		"records 0, tombstones 2, sealed 1, scanned 2, ignored 0", "", func(p []byte) {
			clear(p[last:])
			clear(p[BlockSize+512 : 2*BlockSize])
			p[BlockSize+600] = 1
		})
	image("bad_checksum", "A byte of the first value is another: found when it is read.",
		"records 2, tombstones 2, sealed 2, scanned 1, ignored 0", "1", func(p []byte) { p[2*BlockSize+3]++ })
	image("bad_footer", "A byte of the footer is another: the segment is scanned.",
		"records 2, tombstones 2, sealed 1, scanned 2, ignored 0", "0 1", func(p []byte) { p[last-BlockSize+100]++ })
	image("old_version", "Another version of the format: ignored and reused.",
		"records 0, tombstones 2, sealed 1, scanned 1, ignored 1", "", func(p []byte) { p[8] = 1 })
}

// parseImage reads the text form: "name: value" lines, "segment N", "OFFSET  HEX  # comment" in hex; what is not named is zero.
func parseImage(t *testing.T, text string) (map[string]string, map[SegmentID][]byte) {
	expect, disk := make(map[string]string), make(map[SegmentID][]byte)
	var p []byte
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		name, value, ok := strings.Cut(line, ":")
		switch f := strings.Fields(line); {
		case len(f) == 0:
		case ok:
			expect[name] = strings.TrimSpace(value)
		case f[0] == "segment":
			id, err := strconv.ParseUint(f[1], 10, 32)
			require.NoError(t, err)
			p = make([]byte, goldenSize)
			disk[SegmentID(id)] = p
		default:
			at, err := strconv.ParseUint(f[0], 16, 32)
			require.NoError(t, err)
			b, err := hex.DecodeString(strings.Join(f[1:], ""))
			require.NoError(t, err)
			copy(p[at:], b)
		}
	}
	return expect, disk
}

// A field is a run of bytes with a meaning.
type field struct {
	n    int
	name string
}

var (
	headFields = []field{
		{8, "magic"},
		{4, "format version"},
		{4, "segment number"},
		{16, "store"},
		{8, "generation"},
		{16, "nonce"},
		{8, "file size"},
		{8, "store's sequence when this life began"},
		{8, "checksum"},
		{8, "lowest generation that counted then"},
	}
	blockFields = []field{
		{8, "magic"},
		{4, "format version"},
		{4, "count"},
		{8, "generation"},
		{4, "position of this block"},
		{4, "length"},
		{8, "reserved"},
		{8, "checksum"},
		{16, "reserved (the nonce, while the checksum is computed)"},
	}
	recordFields = []field{
		{1, "kind"},
		{1, "written beside its value"},
		{2, "blocks from the group's header to the value"},
		{4, "where the value begins, in 64 bytes"},
		{8, "size of the value"},
		{8, "sequence"},
		{8, "checksum of the value"},
		{8, "namespace"},
		{8, "layout"},
		{32, "hash"},
	}
)

// dumpImage writes the text form.
func dumpImage(disk map[SegmentID][]byte) string {
	var w strings.Builder
	for id := range SegmentID(len(disk)) {
		fmt.Fprintf(&w, "\nsegment %d\n", id)
		for at := 0; at < goldenSize; at += BlockSize {
			dumpBlock(&w, at, disk[id][at:at+BlockSize])
		}
	}
	return w.String()
}

func dumpBlock(w *strings.Builder, at int, p []byte) {
	if isZero(p) {
		return
	}
	name := "a value"
	fields := []field(nil)
	switch string(p[:8]) {
	case "SLOTLOG1":
		name, fields = "first block", headFields
	case "SLOTLGRP", "SLOTLFOT", "SLOTLTRL":
		name = map[string]string{"SLOTLGRP": "group header", "SLOTLFOT": "footer", "SLOTLTRL": "trailer"}[string(p[:8])]
		fields = blockFields
		if name != "trailer" {
			for range p[12] {
				fields = append(fields[:len(fields):len(fields)], recordFields...)
			}
		}
	}
	fmt.Fprintf(w, "\n# block %d: %s\n", at/BlockSize, name)
	done := 0
	for _, f := range fields {
		fmt.Fprintf(w, "%05x  % x  # %s\n", at+done, p[done:done+f.n], f.name)
		done += f.n
	}
	for ; done < BlockSize; done += 16 {
		if line := p[done:min(done+16, BlockSize)]; !isZero(line) {
			fmt.Fprintf(w, "%05x  % x\n", at+done, line)
		}
	}
}

// fuzzDisk is a disk that holds one image.
func fuzzDisk(p []byte) *simDisk {
	d := newSimDisk(rand.New(rand.NewPCG(1, 1)), 1<<30)
	d.files[0] = &simFile{now: p, safe: bytes.Clone(p), dirty: make(map[int]bool)}
	return d
}

// FuzzRecover demands that no file is refused or panics, and that what is recovered is consistent. The input is a list of changes
// to one of the store images, each an offset of two bytes and a byte.
func FuzzRecover(f *testing.F) {
	files, err := filepath.Glob("testdata/store/*.txt")
	require.NoError(f, err)
	var images [][]byte
	for i, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		_, disk := parseImage(&testing.T{}, string(text))
		images = append(images, disk[0])
		f.Add(uint8(i), []byte{0x10, 0x10, 0xff, 0x44, 0x10, 9}, true, uint16(0))
		f.Add(uint8(i), []byte{}, false, uint16(i*5000))
	}
	arena := make([]byte, ArenaMin)
	f.Fuzz(func(t *testing.T, image uint8, changes []byte, reseal bool, cut uint16) {
		p := bytes.Clone(images[int(image)%len(images)])
		for ; len(changes) >= 3; changes = changes[3:] {
			p[(int(changes[0])|int(changes[1])<<8)%len(p)] = changes[2]
		}
		if reseal {
			resealAll(p) // else nothing gets past the checksums
		}
		cfg := Config{
			Size: 4 * goldenSize, SegmentSize: goldenSize, Arena: arena, MaxEntries: 100, MaxQueue: 16,
			Nonce: func() [16]byte { return [16]byte{1} },
		}
		disk := fuzzDisk(p[:len(p)-int(cut)%len(p)])
		l, _, err := Recover(cfg, disk)
		require.NoError(t, err)
		require.NoError(t, l.CheckInvariants())
		_, err = Walk(disk, arena)
		require.NoError(t, err)
	})
}

// resealAll makes all checksums right.
func resealAll(p []byte) {
	for b := 0; b < len(p); b += BlockSize {
		fixSum(p[b:b+BlockSize], p[40:56])
	}
}
