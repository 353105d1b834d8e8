package proto

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
)

// newRandom returns a source of randomness and logs its seed.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A line is one field of an encoding: its bytes and what they mean.
type line struct {
	data    []byte
	comment string
}

// wireLines encodes the structure at pointer by the rules alone: fields in the
// order of their declaration, little-endian; a bool is a byte, a string a byte
// of length and its bytes, a list a u32 and its elements. It shares no code with
// the package, and so checks it.
func wireLines(lines []line, name string, v reflect.Value) []line {
	add := func(data []byte, comment any) []line {
		return append(lines, line{data, fmt.Sprintf("%s: %v", name, comment)})
	}
	switch v.Kind() { //nolint:exhaustive // the default is a panic
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i).Name
			if name != "" {
				field = name + "." + field
			}
			lines = wireLines(lines, field, v.Field(i))
		}
		return lines
	case reflect.Bool:
		b := byte(0)
		if v.Bool() {
			b = 1
		}
		return add([]byte{b}, v.Bool())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return add(wireInt(v.Uint(), int(v.Type().Size())), v.Interface())
	case reflect.Int32:
		return add(wireInt(uint64(v.Int()), 4), v.Interface())
	case reflect.String:
		return add(append([]byte{byte(v.Len())}, v.String()...), fmt.Sprintf("%d, %q", v.Len(), v.String()))
	case reflect.Array: // a key
		data := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(data), v)
		return add(data, fmt.Sprintf("%d bytes", v.Len()))
	case reflect.Slice:
		lines = append(lines, line{wireInt(uint64(v.Len()), 4), fmt.Sprintf("%s: %d of them", name, v.Len())})
		for i := range v.Len() {
			lines = wireLines(lines, fmt.Sprintf("%s[%d]", name, i), v.Index(i))
		}
		return lines
	default:
		panic("no such kind in the protocol: " + v.Kind().String())
	}
}

func wireInt(v uint64, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
	return b
}

// reflectValue returns the structure at pointer.
func reflectValue(pointer any) reflect.Value { return reflect.ValueOf(pointer).Elem() }

// wireBytes is wireLines without the comments.
func wireBytes(pointer any) []byte {
	var b []byte
	for _, l := range wireLines(nil, "", reflectValue(pointer)) {
		b = append(b, l.data...)
	}
	return b
}

// headerLines describes a header.
func headerLines(h Header) []line {
	status := "none"
	if h.Reply() {
		status = h.Status.String()
	}
	return []line{
		{wireInt(uint64(h.Size), 4), fmt.Sprintf("size: %d", h.Size)},
		{[]byte{h.Version}, fmt.Sprintf("version: %d", h.Version)},
		{[]byte{byte(h.Op)}, fmt.Sprintf("op: %v", h.Op)},
		{wireInt(uint64(h.Flags), 2), "flags: " + flagNames(h.Flags)},
		{wireInt(uint64(h.Status), 2), "status: " + status},
		{[]byte{0, 0}, "reserved"},
		{wireInt(uint64(h.Body), 4), fmt.Sprintf("body: %d", h.Body)},
		{wireInt(h.Request, 8), fmt.Sprintf("request id: %d", h.Request)},
		{wireInt(h.Boot, 8), fmt.Sprintf("boot id: %#x", h.Boot)},
	}
}

func flagNames(f Flags) string {
	var names []string
	for i, name := range []string{"reply", "no_reply", "inline"} {
		if f>>i&1 != 0 {
			names = append(names, name)
		}
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ", ")
}

// text writes lines as hex with comments, of which long ones take more lines.
func text(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		for at := 0; at < len(l.data); at += 8 {
			piece := l.data[at:min(at+8, len(l.data))]
			var digits []string
			for _, c := range piece {
				digits = append(digits, hex.EncodeToString([]byte{c}))
			}
			if at == 0 {
				fmt.Fprintf(&b, "%-24s# %s\n", strings.Join(digits, " "), snake(l.comment))
			} else {
				fmt.Fprintln(&b, strings.Join(digits, " "))
			}
		}
	}
	return b.String()
}

// snake turns the name at the start of a comment from Go's case into snake case.
func snake(comment string) string {
	name, rest, _ := strings.Cut(comment, ": ")
	name = strings.ReplaceAll(name, "IDs", "Ids")
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && (unicode.IsLower(rune(name[i-1])) || i+1 < len(name) && unicode.IsLower(rune(name[i+1])) && unicode.IsUpper(rune(name[i-1]))) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	if rest != "" {
		b.WriteString(": " + rest)
	}
	return b.String()
}

// wire makes random structures that the rules allow.
type wire struct {
	random *rand.Rand
	lists  int // length of lists; negative: random
}

// value returns a pointer to a random structure of the type pointer points to.
func (w wire) value(pointer any) any {
	v := reflect.New(reflect.TypeOf(pointer).Elem())
	w.fill(v.Elem())
	w.repair(v.Interface())
	return v.Interface()
}

func (w wire) fill(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // the default is a panic
	case reflect.Struct:
		for i := range v.NumField() {
			w.fill(v.Field(i))
		}
	case reflect.Bool:
		v.SetBool(w.random.IntN(2) == 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(w.random.Uint64() >> (64 - 8*v.Type().Size()))
	case reflect.Int32:
		v.SetInt(int64(int32(w.random.Uint32())))
	case reflect.String:
		v.SetString(strings.Repeat("ä", w.random.IntN(MaxName/2+1)))
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(w.random.Uint64() & 0xff)
		}
	case reflect.Slice:
		n := w.lists
		if n < 0 {
			n = w.random.IntN(5)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			w.fill(v.Index(i))
		}
	default:
		panic("no such kind in the protocol: " + v.Kind().String())
	}
}

// repair brings the fields that have narrower rules within them.
func (w wire) repair(pointer any) {
	switch x := pointer.(type) {
	case *Hello:
		x.VersionMin, x.VersionMax = min(x.VersionMin, x.VersionMax), max(x.VersionMin, x.VersionMax)
	case *Register:
		x.Want = 1 + x.Want%2
	case *RegisterReply:
		x.Transport, x.ShmKind = 1+x.Transport%2, x.ShmKind%3
		x.Ready = min(x.Ready, x.PoolSize)
	case *Lookup:
		x.Mode, x.Options, x.Group = x.Mode%2, x.Options%4, max(x.Group, 1)
	case *LookupReply:
		x.Hits %= MaxKeys + 1
	case *PrepareStoreReply:
		for i := range x.Results {
			x.Results[i].Status %= StatusMismatch + 1
		}
	case *PrepareRetrieve:
		x.Mode = x.Mode % 2
		if len(x.Keys) > 0 {
			x.Lease, x.First, x.Count = 0, 0, 0
		} else {
			x.Lease, x.First, x.Count = max(x.Lease, 1), x.First%MaxKeys, x.Count%MaxKeys
		}
	case *PinReply:
		for i := range x.Results {
			x.Results[i] %= StatusDraining + 1
		}
		x.Pinned %= uint32(len(x.Results)) + 1
	case *InstancesReply:
		for i := range x.Instances {
			x.Instances[i].Transport = 1 + x.Instances[i].Transport%2
		}
	case *TransfersReply:
		for i := range x.Transfers {
			x.Transfers[i].Kind = 1 + x.Transfers[i].Kind%3
		}
	}
}

func TestEncodingFollowsTheRules(t *testing.T) {
	random := newRandom(t)
	forEachMessage(t, func(t *testing.T, m message) {
		c, parsed := m.blank(), m.blank()
		for i := range 120 {
			lists := i % 8
			if _, twin := m.value().(*PrepareStore); !twin && i%2 == 1 {
				lists = -1 // its lists have lengths of their own
			}
			c.set(wire{random: random, lists: lists}.value(m.value()))
			body := c.encode(nil)
			require.Equal(t, wireBytes(c.value()), body)
			require.NoError(t, parsed.parse(body))
			require.Equal(t, body, parsed.encode(nil))
			require.Equal(t, wireBytes(c.value()), wireBytes(parsed.value()))
		}
	})
}
