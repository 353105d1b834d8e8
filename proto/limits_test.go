package proto

import (
	"bytes"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fullest returns the largest structure of m's type that may be sent: every list
// and every string as long as it may be.
func fullest(m message) codec {
	w := wire{random: nil}
	v := reflect.New(reflect.TypeOf(m.value()).Elem())
	stretch("", v.Elem())
	w.repair(v.Interface())
	if x, ok := v.Interface().(*PrepareRetrieve); ok {
		x.Keys = make([]Key, MaxKeys)
		x.Lease, x.First, x.Count = 0, 0, 0
	}
	c := m.blank()
	c.set(v.Interface())
	return c
}

// most returns the greatest length of the list called name.
func most(name string) int {
	switch name {
	case "Layouts", "LayoutIDs":
		return MaxLayouts
	case "Dims":
		return MaxDims
	case "Bitmap":
		return MaxBitmap
	case "Counters":
		return MaxCounters
	case "Instances":
		return MaxInstances
	case "Transfers":
		return MaxTransfers
	default:
		return MaxKeys
	}
}

func stretch(name string, v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // only what has a length is stretched
	case reflect.Struct:
		for i := range v.NumField() {
			stretch(v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.String:
		v.SetString(strings.Repeat("n", MaxName))
	case reflect.Slice:
		n := most(name)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			stretch(name, v.Index(i))
		}
	}
}

func TestLargestMessagesFitIntoAFrame(t *testing.T) {
	forEachMessage(t, func(t *testing.T, m message) {
		full := fullest(m)
		frame := AppendFrame(nil, m.header(), full.encode(nil), 0)
		require.LessOrEqual(t, len(frame), MaxFrame)
		t.Logf("%d bytes", len(frame))
		f, _ := splitOne(t, frame)
		c := m.blank()
		require.NoError(t, c.parse(f.Body))
		require.True(t, bytes.Equal(f.Body, c.encode(nil)))
	})
}

func TestListsBeyondTheirLimitAreRejected(t *testing.T) {
	forEachMessage(t, func(t *testing.T, m message) {
		full := fullest(m)
		v := reflectValue(full.value())
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() != reflect.Slice {
				continue
			}
			name := v.Type().Field(i).Name
			long := m.blank()
			long.set(full.value())
			lv := reflectValue(long.value()).Field(i)
			lv.Set(reflect.MakeSlice(f.Type(), most(name)+1, most(name)+1))
			require.ErrorIs(t, m.blank().parse(wireBytes(long.value())), ErrBody, name)
			require.Panics(t, func() { long.encode(nil) }, name)
		}
	})
}

func TestNamesThatCannotBeSentAreAPanic(t *testing.T) {
	for _, s := range []string{strings.Repeat("n", MaxName+1), "a\x00", "\xff"} {
		require.Error(t, CheckName(s))
		require.Panics(t, func() { AppendClear(nil, &Clear{Namespace: s}) })
		body := append([]byte{byte(len(s))}, s...)
		require.ErrorIs(t, ParseClear(body, &Clear{}), ErrBody)
	}
	for _, s := range []string{"", strings.Repeat("n", MaxName), "é/日本"} {
		require.NoError(t, CheckName(s))
		var x Clear
		require.NoError(t, ParseClear(AppendClear(nil, &Clear{Namespace: s}), &x))
		require.Equal(t, s, x.Namespace)
	}
	require.Panics(t, func() { AppendPrepareStore(nil, &PrepareStore{Sizes: []uint64{1}}) })
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHugeCountsAreRejectedBeforeAllocation(t *testing.T) {
	forEachMessage(t, func(t *testing.T, m message) {
		body := m.encode(nil)
		for at := 0; at+4 <= len(body); at++ {
			for _, n := range []uint32{1<<32 - 1, 1 << 31, 1 << 20, MaxKeys + 1} {
				hostile := append([]byte(nil), body...)
				copy(hostile[at:], wireInt(uint64(n), 4))
				c := m.blank()
				got := allocated(func() { _ = c.parse(hostile) })
				require.Less(t, got, uint64(64<<10), "count %d at byte %d", n, at)
			}
		}
	})
}
