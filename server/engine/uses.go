package engine

import "github.com/slotcache/slotcache/l1/table"

// usesFew is up to how many uses are not worth the system call of a turn of their own.
const usesFew = 64

// uses are those that the policy is told of when the reply to their request is out: for hundreds of keys that takes as long
// as to find them. They are of ready objects. Whatever else the policy is told or asked comes behind them.
type uses struct {
	refs  []table.Ref
	apart bool // each stands for itself; else they are of a prefix, the last key first
}

// useLater notes the uses of e.refs. The next event settles them before anything else.
func (e *Engine) useLater(apart bool) {
	u := &e.uses
	u.refs, e.refs = e.refs, u.refs
	u.apart = apart
	e.useFew()
}

// useFew settles uses that are not worth a turn.
func (e *Engine) useFew() {
	if len(e.uses.refs) <= usesFew {
		e.settleUses()
	}
}

// settleUses tells the policy what it has not been told of.
func (e *Engine) settleUses() {
	u := &e.uses
	if len(u.refs) == 0 {
		return
	}
	e.table.Chain()
	for i, ref := range u.refs {
		if u.apart {
			e.table.Chain()
		}
		if i%table.Batch == 0 {
			e.table.Ahead(u.refs, i)
		}
		if e.table.State(ref) == table.StateReady {
			e.touch(ref)
		}
	}
	u.refs = u.refs[:0]
}
