package table

// A State is where an object is in its life.
//
//	       Stage           Publish           Delete while held
//	free --------> staged ---------> ready ---------------------> doomed
//	  |              | |               ^                            ^
//	  |              | |               |                            |
//	  |              | +-----> fenced  | Loaded                     |
//	  |   Quarantine |  Delete   |     |                            |
//	  |              v           |     |                            |
//	  |         quarantined <----+     |                            |
//	  |                    Quarantine  |                            |
//	  |                                |   LoadFailed while held    |
//	  +-----------> loading -----------+--------------------------->+
//	     Load          |                                            |
//	                   +-----> abandoned -------------------------->+
//	                    Delete           Loaded or LoadFailed while held
//
// Every state leads back to free: staged by Abort; fenced by Abort or Publish;
// quarantined by FreeQuarantined; loading by LoadFailed and abandoned by Loaded
// or LoadFailed, both while nobody holds it; ready by eviction or Delete, while
// nobody holds it; doomed by the last Release.
//
// The index knows staged, loading and ready objects and no others. Only a
// ready, unheld and clean object that is not pinned hard is ever evicted.
type State uint8

// The states of an object.
const (
	// StateFree: the entry is no object.
	StateFree State = iota
	// StateStaged: one writer fills it.
	StateStaged
	// StateLoading: the disk fills it; it may be held in advance.
	StateLoading
	// StateReady: its bytes are whole and may be read under holds.
	StateReady
	// StateDoomed: deleted, or failed to load, while held. The last release
	// frees it.
	StateDoomed
	// StateFenced: deleted while staged. Its memory is still the writer's, its
	// commit will be refused.
	StateFenced
	// StateAbandoned: deleted while loading. The end of the load frees it, or
	// dooms it while it is held.
	StateAbandoned
	// StateQuarantined: its writer lost it and may still write to it.
	StateQuarantined
)

const stateCount = int(StateQuarantined) + 1

var stateNames = [stateCount]string{
	"free", "staged", "loading", "ready", "doomed", "fenced", "abandoned", "quarantined",
}

// String returns the state's name.
func (s State) String() string {
	if int(s) < stateCount {
		return stateNames[s]
	}
	return "unknown"
}

// moves has, for each state, the set of states that may follow it.
var moves = [stateCount]uint16{
	StateFree:        1<<StateStaged | 1<<StateLoading,
	StateStaged:      1<<StateReady | 1<<StateFree | 1<<StateFenced | 1<<StateQuarantined,
	StateLoading:     1<<StateReady | 1<<StateFree | 1<<StateDoomed | 1<<StateAbandoned,
	StateReady:       1<<StateFree | 1<<StateDoomed,
	StateDoomed:      1 << StateFree,
	StateFenced:      1<<StateFree | 1<<StateQuarantined,
	StateAbandoned:   1<<StateFree | 1<<StateDoomed,
	StateQuarantined: 1 << StateFree,
}

// moveTo is the only place that changes a state.
func (o *object) moveTo(s State) {
	if int(s) >= stateCount || moves[o.state]&(1<<s) == 0 {
		panic("l1/table: object moves from " + o.state.String() + " to " + s.String())
	}
	o.state = s
}

// indexed says whether the index knows objects in this state.
func (s State) indexed() bool {
	return s == StateStaged || s == StateLoading || s == StateReady
}

// holdable says whether objects in this state can have holds.
func (s State) holdable() bool {
	return s == StateReady || s == StateLoading || s == StateDoomed || s == StateAbandoned
}
