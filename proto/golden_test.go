package proto

import (
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the valid golden frames and the fuzz corpora anew")

const goldenDir = "../testdata/frames"

// What a golden frame may expect beside the name of a message.
const (
	expectBrokenFrame   = "broken_frame"   // the connection must be closed
	expectMalformedBody = "malformed_body" // bad_request, and the stream goes on
	expectUnsupported   = "unsupported"    // an unknown op, and the stream goes on
)

// A golden is a frame in text form.
type golden struct {
	expect string
	why    string // of a rejection: part of the error's text
	data   []byte
}

// readGolden reads a golden frame: lines "name: value", an empty line, and hex
// digits with comments after a hash.
func readGolden(t *testing.T, path string) golden {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var g golden
	head, body, ok := strings.Cut(string(content), "\n\n")
	require.True(t, ok, "%s: no empty line", path)
	for l := range strings.Lines(head) {
		name, value, _ := strings.Cut(strings.TrimSpace(l), ": ")
		switch name {
		case "expect":
			g.expect = value
		case "why":
			g.why = value
		default:
			t.Fatalf("%s: unknown header line %q", path, name)
		}
	}
	for l := range strings.Lines(body) {
		digits, _, _ := strings.Cut(l, "#")
		data, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		require.NoError(t, err, path)
		g.data = append(g.data, data...)
	}
	return g
}

// A sample is a valid golden frame as it is made.
type sample struct {
	file    string
	message message
	header  Header
	payload []byte
	bare    bool // the status leaves no body
}

// samples returns every valid golden frame: one a message, and those that show
// what a header can say beside it.
func samples(t *testing.T) []sample {
	t.Helper()
	var list []sample
	for _, m := range messages() {
		list = append(list, sample{file: m.name(), message: m, header: m.header()})
	}
	pick := func(op Op, reply bool, x any) message {
		m, ok := messageOf(op, reply)
		require.True(t, ok)
		if x != nil {
			m.set(x)
		}
		return m
	}
	special := func(file string, m message, f Flags, s Status, payload string) {
		h := m.header()
		h.Flags |= f
		h.Status = s
		list = append(list, sample{file, m, h, []byte(payload), !s.Done()})
	}
	special("commit_store_inline", pick(OpCommitStore, false, &CommitStore{Transfer: 0x500000001}), FlagInline, 0, "firstsecond")
	special("put_inline", pick(OpPut, false, nil), FlagInline, 0, "first")
	special("put_reply_exists", pick(OpPut, true, nil), 0, StatusExists, "")
	special("prepare_retrieve_inline", pick(OpPrepareRetrieve, false, nil), FlagInline, 0, "")
	special("prepare_retrieve_reply_inline", pick(OpPrepareRetrieve, true,
		&PrepareRetrieveReply{Slots: []Slot{{Len: 5}, {Len: 6}}}), FlagInline, 0, "firstsecond")
	special("prepare_retrieve_lease", pick(OpPrepareRetrieve, false,
		&PrepareRetrieve{WaitMs: 20, Lease: 0x700000009, First: 1, Count: 4}), 0, 0, "")
	special("lookup_no_keys", pick(OpLookup, false, &Lookup{Group: 1}), 0, 0, "")
	special("lookup_reply_stale_epoch", pick(OpLookup, true, nil), 0, StatusStaleEpoch, "")
	special("release_no_reply", pick(OpRelease, false, nil), FlagNoReply, 0, "")
	special("delete_reply_not_durable", pick(OpDelete, true, nil), 0, StatusOKNotDurable, "")
	special("register_reply_inline", pick(OpRegister, true, &RegisterReply{
		Incarnation: 1, Transport: TransportInline, LayoutIDs: []uint64{0xfeedface01},
	}), 0, 0, "")
	return list
}

// lines returns the sample's fields.
func (s sample) lines() []line {
	var body []line
	if !s.bare {
		body = wireLines(nil, "", reflectValue(s.message.value()))
	}
	h := s.header
	h.Version, h.Body = Version, 0
	for _, l := range body {
		h.Body += uint32(len(l.data))
	}
	h.Size = HeaderSize + h.Body + uint32(len(s.payload))
	list := append(headerLines(h), body...)
	if len(s.payload) > 0 {
		list = append(list, line{s.payload, "payload"})
	}
	return list
}

func TestGoldenFramesAreWhatTheCodeWritesAndReads(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.file, func(t *testing.T) {
			path := filepath.Join(goldenDir, s.file+".txt")
			if *update {
				require.NoError(t, os.MkdirAll(goldenDir, 0o755))
				content := "expect: " + s.message.name() + "\n\n" + text(s.lines())
				require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
			}
			g := readGolden(t, path)
			require.Equal(t, s.message.name(), g.expect)

			f, payload := splitOne(t, g.data)
			require.Equal(t, s.message.op, f.Op)
			require.Equal(t, s.message.reply, f.Reply())
			require.Equal(t, s.header.Status, f.Status)
			require.Equal(t, string(s.payload), string(payload))
			var body []byte
			if s.bare {
				require.NoError(t, ParseEmpty(f.Body))
			} else {
				c := s.message.blank()
				require.NoError(t, c.parse(f.Body))
				require.Equal(t, s.message.value(), c.value())
				body = c.encode(nil)
			}
			again := AppendFrame(nil, f.Header, body, uint32(len(payload)))
			require.Equal(t, g.data, append(again, payload...))
		})
	}
}

// splitOne cuts the one frame out of data, which must hold nothing else.
func splitOne(t *testing.T, data []byte) (Frame, []byte) {
	t.Helper()
	var s Splitter
	s.Feed(data)
	f, ok, err := s.Next()
	require.NoError(t, err)
	require.True(t, ok, "the frame is incomplete")
	payload := s.Take()
	require.Zero(t, s.Payload())
	require.Zero(t, s.Unread())
	return f, payload
}

func TestGoldenRejectionsAreRejectedForTheirReason(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(goldenDir, "reject_*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			g := readGolden(t, path)
			require.NotEmpty(t, g.why)
			expect, why := verdict(t, g.data)
			require.Equal(t, g.expect, expect)
			require.Contains(t, why, g.why)
		})
	}
}

// verdict reports what is wrong with the frame in data, and that a frame behind
// it is still understood exactly when the framing is sound.
func verdict(t *testing.T, data []byte) (expect, why string) {
	t.Helper()
	ping, _ := messageOf(OpPing, false)
	var s Splitter
	s.Feed(append(data[:len(data):len(data)], ping.frame()...))
	f, ok, err := s.Next()
	if err != nil {
		require.ErrorIs(t, err, ErrFrame)
		_, ok, again := s.Next()
		require.False(t, ok)
		require.Equal(t, err, again, "the error remains")
		return expectBrokenFrame, err.Error()
	}
	require.True(t, ok, "the frame is incomplete")
	next, ok, err := s.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, OpPing, next.Op, "the stream is in step")
	m, known := messageOf(f.Op, f.Reply())
	if !known {
		return expectUnsupported, f.Op.String()
	}
	err = m.blank().parse(f.Body)
	if errors.Is(err, ErrBody) {
		return expectMalformedBody, err.Error()
	}
	return m.name(), "nothing is wrong"
}

func TestNoGoldenFrameIsForgotten(t *testing.T) {
	known := map[string]bool{}
	for _, s := range samples(t) {
		known[s.file+".txt"] = true
	}
	entries, err := os.ReadDir(goldenDir)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "reject_") {
			require.True(t, known[e.Name()], "%s is not made by -update", e.Name())
		}
	}
}
