package load

import (
	"bytes"
	"fmt"
	"strconv"
)

// A wire is a blocking connection for line protocols with values between the lines.
type wire struct {
	link *Link
	out  []byte
	line []byte // of the last reply, without its end
}

// head reads up to the end of a line, and leaves what came after it in the buffer.
func (w *wire) head() error {
	for {
		l := w.link
		if n := bytes.Index(l.in[l.r:l.w], []byte("\r\n")); n >= 0 {
			w.line = l.in[l.r : l.r+n]
			l.r += n + 2
			return nil
		}
		if err := l.fill(l.w - l.r + 1); err != nil {
			return err
		}
	}
}

// value reads a reply that is all known but for the value: its bytes go where they are to be,
// with nothing copied twice.
func (w *wire) value(head, tail string, into []byte) error {
	w.line = append(w.line[:0], head...)
	w.line = append(w.line, tail...)
	before, behind := w.line[:len(head)], w.line[len(head):]
	if err := recvParts(w.link.fd, head[0], before, into, behind); err != nil {
		return err
	}
	if string(before) != head || string(behind) != tail {
		return fmt.Errorf("load: a value in %.80q, %.80q, want %q, %q", before, behind, head, tail)
	}
	return nil
}

// key appends the name of value i, which has 12 bytes.
func key(dst []byte, i int) []byte { return fmt.Appendf(dst, "key:%08d", i) }

// A RedisSet sets one value after another.
type RedisSet struct {
	wire
	value []byte
	next  int
}

// NewRedisSet makes it.
func NewRedisSet(l *Link, value []byte) *RedisSet {
	return &RedisSet{wire: wire{link: l}, value: value}
}

// Do implements [Op].
func (r *RedisSet) Do() error {
	r.out = append(r.out[:0], "*3\r\n$3\r\nSET\r\n$12\r\n"...)
	r.out = key(r.out, r.next%values(int64(len(r.value))))
	r.next++
	r.out = append(r.out, "\r\n$"...)
	r.out = strconv.AppendInt(r.out, int64(len(r.value)), 10)
	r.out = append(r.out, "\r\n"...)
	if err := sendParts(r.link.fd, r.out, r.value, lineEnd); err != nil {
		return err
	}
	if err := r.head(); err != nil {
		return err
	}
	if string(r.line) != "+OK" {
		return fmt.Errorf("load: redis says %.80q", r.line)
	}
	return nil
}

// lineEnd ends lines and values.
var lineEnd = []byte("\r\n")

// A RedisGet gets the values one after another.
type RedisGet struct {
	wire
	into []byte
	next int
	head string
}

// NewRedisGet makes it. Into has the length of the values.
func NewRedisGet(l *Link, into []byte) *RedisGet {
	return &RedisGet{wire: wire{link: l}, into: into, head: fmt.Sprintf("$%d\r\n", len(into))}
}

// Do implements [Op].
func (r *RedisGet) Do() error {
	r.out = append(r.out[:0], "*2\r\n$3\r\nGET\r\n$12\r\n"...)
	r.out = append(key(r.out, r.next%values(int64(len(r.into)))), "\r\n"...)
	r.next++
	if err := r.link.Send(r.out); err != nil {
		return err
	}
	return r.value(r.head, "\r\n", r.into)
}

// A MemcachedSet sets one value after another.
type MemcachedSet struct {
	wire
	value []byte
	next  int
}

// NewMemcachedSet makes it.
func NewMemcachedSet(l *Link, value []byte) *MemcachedSet {
	return &MemcachedSet{wire: wire{link: l}, value: value}
}

// Do implements [Op].
func (m *MemcachedSet) Do() error {
	m.out = append(m.out[:0], "set "...)
	m.out = append(key(m.out, m.next%values(int64(len(m.value)))), " 0 0 "...)
	m.next++
	m.out = append(strconv.AppendInt(m.out, int64(len(m.value)), 10), "\r\n"...)
	if err := sendParts(m.link.fd, m.out, m.value, lineEnd); err != nil {
		return err
	}
	if err := m.head(); err != nil {
		return err
	}
	if string(m.line) != "STORED" {
		return fmt.Errorf("load: memcached says %.80q", m.line)
	}
	return nil
}

// A MemcachedGet gets the values one after another.
type MemcachedGet struct {
	wire
	into []byte
	next int
	head []byte
	size string
}

// NewMemcachedGet makes it. Into has the length of the values.
func NewMemcachedGet(l *Link, into []byte) *MemcachedGet {
	return &MemcachedGet{wire: wire{link: l}, into: into, size: fmt.Sprintf(" 0 %d\r\n", len(into))}
}

// Do implements [Op].
func (m *MemcachedGet) Do() error {
	i := m.next % values(int64(len(m.into)))
	m.next++
	m.out = append(m.out[:0], "get "...)
	m.out = append(key(m.out, i), "\r\n"...)
	if err := m.link.Send(m.out); err != nil {
		return err
	}
	m.head = append(m.head[:0], "VALUE "...)
	m.head = append(key(m.head, i), m.size...)
	return m.value(string(m.head), "\r\nEND\r\n", m.into)
}
