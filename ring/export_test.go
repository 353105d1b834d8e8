package ring

// NewSized is New with queues of these sizes, smaller than New makes them.
func NewSized(cfg Config, submissions, completions uint32) (*Uring, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return open(cfg, submissions, completions)
}

// LimitSubmissions has each enter give at most n submissions to the kernel, as one does that runs out of memory.
func (u *Uring) LimitSubmissions(n uint32) { u.q.submitMax = n }
