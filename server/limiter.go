package server

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// What a peer or a disk can cause thousands of times a second must not fill the log with it.
const (
	// linesBurst is how many lines of a text are logged at once, and linesPause the time after
	// which one more may be.
	linesBurst = 5
	linesPause = 5 * time.Second
	// registrationsBurst and registrationsPause are the same for registrations: a machine's
	// workers may start together, and each is worth a line.
	registrationsBurst = 256
	registrationsPause = 250 * time.Millisecond
	// textsMax is how many texts are told apart; the others share one allowance.
	textsMax = 256
)

// A limiter bounds how often each text is logged. It may be used by any goroutine.
type limiter struct {
	now   func() time.Duration // on a monotonic clock
	mutex sync.Mutex
	texts map[string]*allowance
}

// allowance is what may still be logged of a text.
type allowance struct {
	burst   int
	pause   time.Duration
	left    int
	since   time.Duration // when left was last added to
	dropped uint64        // since the last line that was logged
}

// newLimiter makes a limiter that knows no text.
func newLimiter() *limiter {
	start := time.Now()
	return &limiter{now: func() time.Duration { return time.Since(start) }, texts: make(map[string]*allowance)}
}

// allow gives a text an allowance other than that of all others.
func (l *limiter) allow(text string, burst int, pause time.Duration) {
	l.texts[text] = &allowance{burst: burst, pause: pause, left: burst}
}

// of finds the allowance of a text, with what time has added to it.
func (l *limiter) of(text string) *allowance {
	now := l.now()
	a := l.texts[text]
	if a == nil {
		if len(l.texts) >= textsMax {
			text = ""
			a = l.texts[text]
		}
		if a == nil {
			a = &allowance{burst: linesBurst, pause: linesPause, left: linesBurst, since: now}
			l.texts[text] = a
		}
	}
	if n := int((now - a.since) / a.pause); n > 0 {
		a.left = min(a.left+n, a.burst)
		a.since += time.Duration(n) * a.pause
	}
	return a
}

// shut says that a line of a text would be dropped now, and counts it as that.
func (l *limiter) shut(text string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	a := l.of(text)
	if a.left == 0 {
		a.dropped++
	}
	return a.left == 0
}

// take takes a line of a text from its allowance, and says how many were dropped before it;
// ok says that there was one.
func (l *limiter) take(text string) (dropped uint64, ok bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	a := l.of(text)
	if a.left == 0 {
		a.dropped++
		return 0, false
	}
	a.left--
	dropped = a.dropped
	a.dropped = 0
	return dropped, true
}

// limited is a handler whose lines a limiter bounds. A line after some that were dropped says
// how many.
type limited struct {
	slog.Handler
	limiter *limiter
}

// Handle implements [slog.Handler].
func (h *limited) Handle(ctx context.Context, r slog.Record) error {
	dropped, ok := h.limiter.take(r.Message)
	if !ok {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Uint64("dropped", dropped))
	}
	return h.Handler.Handle(ctx, r) //nolint:wrapcheck // as if it were the handler itself
}

// WithAttrs implements [slog.Handler].
func (h *limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limited{h.Handler.WithAttrs(attrs), h.limiter}
}

// WithGroup implements [slog.Handler].
func (h *limited) WithGroup(name string) slog.Handler {
	return &limited{h.Handler.WithGroup(name), h.limiter}
}
