package ring

import (
	"errors"
	"fmt"
)

// An Engine is a way to carry out I/O. The zero Engine is EngineAuto.
type Engine uint8

// Engines.
const (
	EngineAuto  Engine = iota // EngineUring where the kernel allows it, else EngineEpoll
	EngineUring               // a Uring; from Linux 6.1
	EngineEpoll               // an Epoll; on any Linux
	engines
)

var engineNames = [engines]string{"auto", "uring", "epoll"}

// String returns the engine's name, by which ParseEngine knows it.
func (e Engine) String() string {
	if e < engines {
		return engineNames[e]
	}
	return "invalid"
}

// ParseEngine returns the engine of that name; an empty one is EngineAuto's.
func ParseEngine(name string) (Engine, error) {
	for e := range engines {
		if engineNames[e] == name {
			return e, nil
		}
	}
	if name == "" {
		return EngineAuto, nil
	}
	return EngineAuto, fmt.Errorf("ring: no engine %q: give auto, uring or epoll", name)
}

// An Opened is what Open made.
type Opened struct {
	Ring   Interface
	Engine Engine // never EngineAuto
	// Refusal is why EngineAuto could not have EngineUring: it wraps ErrUnavailable and the errno, and names the value of
	// kernel.io_uring_disabled. Nil if it has, or was not asked.
	Refusal error
}

// Open makes a ring of that engine. What New says of threads is true of it too.
func Open(engine Engine, cfg Config) (Opened, error) {
	o := Opened{Engine: engine}
	if engine != EngineEpoll {
		u, err := New(cfg)
		switch {
		case err == nil:
			o.Ring, o.Engine = u, EngineUring
			return o, nil
		case engine == EngineUring || !errors.Is(err, ErrUnavailable):
			return Opened{}, err
		}
		o.Refusal = err
	}
	e, err := NewEpoll(cfg)
	if err != nil {
		return Opened{}, errors.Join(err, o.Refusal)
	}
	o.Ring, o.Engine = e, EngineEpoll
	return o, nil
}
