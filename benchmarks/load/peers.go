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

// body reads a value of a known length.
func (w *wire) body(into []byte) error {
	w.link.rest = len(into)
	return w.link.Payload(into)
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
	tail [2]byte
}

// NewRedisGet makes it. Into has the length of the values.
func NewRedisGet(l *Link, into []byte) *RedisGet { return &RedisGet{wire: wire{link: l}, into: into} }

// Do implements [Op].
func (r *RedisGet) Do() error {
	r.out = append(r.out[:0], "*2\r\n$3\r\nGET\r\n$12\r\n"...)
	r.out = append(key(r.out, r.next%values(int64(len(r.into)))), "\r\n"...)
	r.next++
	if err := r.link.Send(r.out); err != nil {
		return err
	}
	if err := r.head(); err != nil {
		return err
	}
	if len(r.line) == 0 || r.line[0] != '$' {
		return fmt.Errorf("load: redis says %.80q", r.line)
	}
	if n, err := strconv.Atoi(string(r.line[1:])); err != nil || n != len(r.into) {
		return fmt.Errorf("load: redis has %.80q bytes, want %d", r.line[1:], len(r.into))
	}
	if err := r.body(r.into); err != nil {
		return err
	}
	return r.body(r.tail[:])
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
	tail [7]byte
}

// NewMemcachedGet makes it. Into has the length of the values.
func NewMemcachedGet(l *Link, into []byte) *MemcachedGet {
	return &MemcachedGet{wire: wire{link: l}, into: into}
}

// Do implements [Op].
func (m *MemcachedGet) Do() error {
	m.out = append(m.out[:0], "get "...)
	m.out = append(key(m.out, m.next%values(int64(len(m.into)))), "\r\n"...)
	m.next++
	if err := m.link.Send(m.out); err != nil {
		return err
	}
	if err := m.head(); err != nil {
		return err
	}
	if !bytes.HasPrefix(m.line, []byte("VALUE ")) {
		return fmt.Errorf("load: memcached has no value: %.80q", m.line)
	}
	if n, err := strconv.Atoi(string(m.line[bytes.LastIndexByte(m.line, ' ')+1:])); err != nil || n != len(m.into) {
		return fmt.Errorf("load: memcached has %.80q, want %d bytes", m.line, len(m.into))
	}
	if err := m.body(m.into); err != nil {
		return err
	}
	if err := m.body(m.tail[:]); err != nil {
		return err
	}
	if string(m.tail[:]) != "\r\nEND\r\n" {
		return fmt.Errorf("load: a memcached value ends with %q", m.tail[:])
	}
	return nil
}
