package ring

// opState is where an entry of the table of operations is in its life.
//
//	         queue            Pause
//	free ------------> live ----------> pausing
//	 ^ ^                | |                |
//	 | |  last CQE      | | SQE consumed   | last CQE
//	 | +----------------+ | (SendNow)      |
//	 | |                  v                |
//	 | +------------- settling             |
//	 |  CQE, or none came                  |
//	 +-------------------------------------+
//
// An entry leaves live only by a completion, except for SendNow, whose success posts none: once its submission was consumed and
// the completions posted until then were taken, it has succeeded.
type opState uint8

const (
	opFree opState = iota
	opLive
	opPausing
	opSettling
	opStates
)

var opStateNames = [opStates]string{"free", "live", "pausing", "settling"}

// String returns the state's name.
func (s opState) String() string {
	if s < opStates {
		return opStateNames[s]
	}
	return "invalid"
}

// opMoves holds for each state the set of states it may move to.
var opMoves = [opStates]uint8{
	opFree:     1 << opLive,
	opLive:     1<<opFree | 1<<opPausing | 1<<opSettling,
	opPausing:  1 << opFree,
	opSettling: 1 << opFree,
}

// moveTo moves o to state to.
func (o *op) moveTo(to opState) {
	if opMoves[o.state]&(1<<to) == 0 {
		panic("ring: operation moves from " + o.state.String() + " to " + to.String())
	}
	o.state = to
}
