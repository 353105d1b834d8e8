package proto

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeaderComesBackAsItWentIn(t *testing.T) {
	random := newRandom(t)
	for range 1000 {
		h := Header{
			Version: Version, Op: Op(random.Uint32()), Flags: Flags(random.Uint32()) & flagsKnown, Body: random.Uint32N(MaxBody + 1),
			Request: random.Uint64(), Boot: random.Uint64(),
		}
		if h.Reply() {
			h.Status = Status(random.Uint32()) // those of later versions too
		}
		h.Size = HeaderSize + h.Body
		if h.Flags&FlagInline != 0 {
			h.Size += random.Uint32N(MaxPayload + 1)
		}
		p := AppendHeader(nil, h)
		require.Len(t, p, HeaderSize)
		got, err := ParseHeader(p)
		require.NoError(t, err)
		require.Equal(t, h, got)
		require.Equal(t, h.Size, HeaderSize+h.Body+got.Payload())
	}
}

func TestHeaderLimitsAreInclusive(t *testing.T) {
	body := Header{Version: Version, Op: OpLookup, Size: MaxFrame, Body: MaxBody}
	payload := Header{Version: Version, Op: OpCommitStore, Flags: FlagInline, Size: MaxFrame + MaxPayload, Body: MaxBody}
	for _, h := range []Header{body, payload} {
		_, err := ParseHeader(AppendHeader(nil, h))
		require.NoError(t, err)
		h.Size++
		_, err = ParseHeader(AppendHeader(nil, h))
		require.ErrorIs(t, err, ErrFrame)
		h.Body++
		_, err = ParseHeader(AppendHeader(nil, h))
		require.ErrorIs(t, err, ErrFrame)
	}
}

func TestShortHeaderIsRejected(t *testing.T) {
	p := AppendFrame(nil, Header{Op: OpPing}, nil, 0)
	for n := range p {
		_, err := ParseHeader(p[:n])
		require.ErrorIs(t, err, ErrFrame)
	}
}

func TestPayloadOfAnImpossibleHeaderIsZero(t *testing.T) {
	for _, h := range []Header{{}, {Size: 31}, {Size: 40, Body: 9}, {Size: math.MaxUint32, Body: math.MaxUint32}} {
		require.Zero(t, h.Payload())
	}
	require.EqualValues(t, 7, Header{Size: 49, Body: 10}.Payload())
}

func TestBegunFrameEqualsAppendedFrame(t *testing.T) {
	forEachMessage(t, func(t *testing.T, m message) {
		h, junk := m.header(), []byte("before")
		h.Size, h.Body, h.Version = 1, 2, 3 // of no account
		want := AppendFrame(junk, h, m.encode(nil), 0)
		got := BeginFrame(junk, h)
		got = EndFrame(m.encode(got), len(junk), 0)
		require.Equal(t, want, got)
		require.Equal(t, "before", string(got[:len(junk)]))
		require.EqualValues(t, len(got)-len(junk), binary.LittleEndian.Uint32(got[len(junk):]))
	})
}

func TestFrameWithAPayloadCarriesTheInlineFlag(t *testing.T) {
	p := AppendFrame(nil, Header{Op: OpCommitStore, Flags: FlagNoReply}, make([]byte, 12), 5)
	h, err := ParseHeader(p)
	require.NoError(t, err)
	require.Equal(t, FlagNoReply|FlagInline, h.Flags)
	require.EqualValues(t, 5, h.Payload())
	require.EqualValues(t, 12, h.Body)
}

func TestFrameBeyondTheLimitsIsAPanic(t *testing.T) {
	require.NotPanics(t, func() { AppendFrame(nil, Header{}, make([]byte, MaxBody), MaxPayload) })
	require.Panics(t, func() { AppendFrame(nil, Header{}, make([]byte, MaxBody+1), 0) })
	require.Panics(t, func() { AppendFrame(nil, Header{}, nil, MaxPayload+1) })
	require.Panics(t, func() { EndFrame(make([]byte, HeaderSize-1), 0, 0) })
	require.Panics(t, func() { EndFrame(make([]byte, HeaderSize), 1, 0) })
}

func TestNamesOfOpsStatusesAndEnums(t *testing.T) {
	seen := map[string]bool{}
	for op := OpHello; op.Valid(); op++ {
		require.Regexp(t, `^[a-z]+(_[a-z]+)*$`, op.String())
		require.False(t, seen[op.String()], op)
		seen[op.String()] = true
	}
	require.Len(t, seen, 21)
	require.Equal(t, "op_0", Op(0).String())
	require.Equal(t, "op_22", Op(22).String())
	require.EqualValues(t, 19, OpTransfers)

	clear(seen)
	for s := StatusOK; s.Valid(); s++ {
		require.Regexp(t, `^[a-z]+(_[a-z]+)*$`, s.String())
		require.False(t, seen[s.String()], s)
		seen[s.String()] = true
		require.Equal(t, s == StatusOK || s == StatusOKNotDurable, s.Done(), s)
	}
	require.Len(t, seen, 19)
	require.Equal(t, "status_19", Status(19).String())
	require.EqualValues(t, 17, StatusDraining)

	require.Equal(t, []string{"shared", "inline", "transport_0"},
		[]string{TransportShared.String(), TransportInline.String(), Transport(0).String()})
	require.Equal(t, []string{"none", "fd", "named", "shm_3"},
		[]string{ShmNone.String(), ShmFd.String(), ShmNamed.String(), ShmKind(3).String()})
	require.Equal(t, []string{"prefix", "any", "mode_2"},
		[]string{ModePrefix.String(), ModeAny.String(), LookupMode(2).String()})
	require.Equal(t, []string{"all", "prefix", "mode_2"},
		[]string{RetrieveAll.String(), RetrievePrefix.String(), RetrieveMode(2).String()})
	require.Equal(t, []string{"store", "retrieve", "lease", "transfer_0"},
		[]string{TransferStore.String(), TransferRetrieve.String(), TransferLease.String(), TransferKind(0).String()})
}
