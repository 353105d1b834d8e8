package ring

import (
	"syscall"
	"time"
)

// NewSized is New with queues of these sizes, smaller than New makes them.
func NewSized(cfg Config, submissions, completions uint32) (*Uring, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return open(cfg, submissions, completions)
}

// LimitSubmissions has each enter give at most n submissions to the kernel, as one does that runs out of memory.
func (u *Uring) LimitSubmissions(n uint32) { u.q.submitMax = n }

// RefuseSubmissions has the enters from now on fail with these errnos in turn, and succeed after each. It counts
// the failures.
func (u *Uring) RefuseSubmissions(errnos ...syscall.Errno) *int {
	n, refused := 0, 0
	u.q.refuse = func() syscall.Errno {
		if n++; n%2 == 0 {
			return 0
		}
		refused++
		return errnos[n/2%len(errnos)]
	}
	return &refused
}

// Watch looks for d and tells whether there is work.
func (u *Uring) Watch(d time.Duration) bool { return u.q.watch(d) }

// BoundsReceives tells whether the kernel bounds what a receive brings in a turn, once there was one.
func (u *Uring) BoundsReceives() bool { return u.recvMax > 0 }
