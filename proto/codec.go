package proto

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// CheckName returns an error if s cannot be sent as a string: it is longer than
// [MaxName], not UTF-8, or contains a NUL. Encoding such a string is a panic.
func CheckName(s string) error {
	switch {
	case len(s) > MaxName:
		return fmt.Errorf("proto: name of %d bytes, most %d", len(s), MaxName)
	case !utf8.ValidString(s):
		return fmt.Errorf("proto: name %q is not UTF-8", s)
	case strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("proto: name %q contains a NUL", s)
	}
	return nil
}

// ParseEmpty checks a body that must be empty: that of every reply whose status
// is not [Status.Done], and of replies without a structure of their own.
func ParseEmpty(p []byte) error {
	if len(p) > 0 {
		return fmt.Errorf("%w: %d bytes where none are wanted", ErrBody, len(p))
	}
	return nil
}

func appendU16(dst []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(dst, v) }
func appendU32(dst []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(dst, v) }
func appendU64(dst []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(dst, v) }

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendName(dst []byte, s string) []byte {
	if err := CheckName(s); err != nil {
		panic(err.Error())
	}
	dst = append(dst, byte(len(s)))
	return append(dst, s...)
}

func appendCount(dst []byte, n, most int) []byte {
	if n > most {
		panic(fmt.Sprintf("proto: list of %d, most %d", n, most))
	}
	return appendU32(dst, uint32(n))
}

func appendKeys(dst []byte, keys []Key) []byte {
	dst = appendCount(dst, len(keys), MaxKeys)
	for i := range keys {
		dst = append(dst, keys[i][:]...)
	}
	return dst
}

func appendU64s(dst []byte, list []uint64, most int) []byte {
	dst = appendCount(dst, len(list), most)
	for _, v := range list {
		dst = appendU64(dst, v)
	}
	return dst
}

func appendSlots(dst []byte, slots []Slot) []byte {
	dst = appendCount(dst, len(slots), MaxKeys)
	for i := range slots {
		dst = appendU64(dst, slots[i].Off)
		dst = appendU64(dst, slots[i].Len)
	}
	return dst
}

// A decoder takes fields from the front of a body. The first thing wrong is
// kept; after it every field reads as zero.
type decoder struct {
	p    []byte
	what string // what was wrong; empty: nothing so far
	got  uint64 // the offending value
}

// fail keeps what is wrong and the value that shows it.
func (d *decoder) fail(what string, got uint64) {
	if d.what == "" {
		d.what, d.got = what, got
	}
	d.p = nil
}

// end returns the error of the whole body, of which nothing may be left.
func (d *decoder) end() error {
	if len(d.p) > 0 {
		d.fail("bytes left over", uint64(len(d.p)))
	}
	if d.what != "" {
		return fmt.Errorf("%w: %s: %d", ErrBody, d.what, d.got)
	}
	return nil
}

// take returns the next n bytes, or nil if there are fewer.
func (d *decoder) take(n int) []byte {
	if len(d.p) < n {
		d.fail("body ends early, bytes missing", uint64(n-len(d.p)))
		return nil
	}
	b := d.p[:n]
	d.p = d.p[n:]
	return b
}

func (d *decoder) u8() uint8 {
	b := d.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

func (d *decoder) u16() uint16 {
	b := d.take(2)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint16(b)
}

func (d *decoder) u32() uint32 {
	b := d.take(4)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

func (d *decoder) u64() uint64 {
	b := d.take(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// enum reads a byte that must lie in [least, most].
func (d *decoder) enum(what string, least, most uint8) uint8 {
	v := d.u8()
	if d.what == "" && (v < least || v > most) {
		d.fail(what, uint64(v))
	}
	return v
}

func (d *decoder) bool(what string) bool { return d.enum(what, 0, 1) == 1 }

// name reads a string into *s, which is left alone if it is that string already:
// so nothing is allocated for names that repeat.
func (d *decoder) name(what string, s *string) {
	n := int(d.u8())
	if n > MaxName {
		d.fail(what, uint64(n))
	}
	b := d.take(n)
	if string(b) == *s {
		return
	}
	if !utf8.Valid(b) || slices.Contains(b, 0) {
		d.fail(what, uint64(n))
		return
	}
	*s = string(b)
}

// count reads the length of a list whose elements are at least size bytes long
// and of which there may be most. It is checked against the bytes at hand, so
// that what is allocated for the list was sent by the peer.
func (d *decoder) count(what string, size, most int) int {
	n := d.u32()
	if uint64(n) > uint64(most) || uint64(n)*uint64(size) > uint64(len(d.p)) {
		d.fail(what, uint64(n))
		return 0
	}
	return int(n)
}

func (d *decoder) key() (k Key) {
	copy(k[:], d.take(KeySize))
	return k
}

func (d *decoder) keys(keys []Key) []Key {
	keys = resize(keys, d.count("number of keys", KeySize, MaxKeys))
	b := d.take(len(keys) * KeySize)
	for i := range keys {
		keys[i] = Key(b[i*KeySize:])
	}
	return keys
}

func (d *decoder) u64s(what string, list []uint64, most int) []uint64 {
	list = resize(list, d.count(what, 8, most))
	b := d.take(len(list) * 8)
	for i := range list {
		list[i] = binary.LittleEndian.Uint64(b[i*8:])
	}
	return list
}

func (d *decoder) slots(slots []Slot) []Slot {
	slots = resize(slots, d.count("number of slots", slotSize, MaxKeys))
	for i := range slots {
		slots[i] = d.slot()
	}
	return slots
}

func (d *decoder) slot() Slot {
	off := d.u64()
	return Slot{Off: off, Len: d.u64()}
}

// resize returns s with length n. Elements within its capacity keep their
// contents, and with them the slices and strings inside that can be used again.
func resize[T any](s []T, n int) []T {
	if n > cap(s) {
		s = slices.Grow(s[:cap(s)], n-cap(s))
	}
	return s[:n]
}
