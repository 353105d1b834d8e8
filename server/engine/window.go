package engine

import (
	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
	"github.com/slotcache/slotcache/proto"
)

// windowKeys is how many keys of a request are looked up together. A prefix that ends early
// costs no more than that.
const windowKeys = 64

// A window is what is known of some keys of a request before they are handled. Handling them
// may change that: a load or a store evicts what comes behind it, and a key can come twice.
type window struct {
	refs  [windowKeys]table.Ref // zero: not in memory
	disk  [windowKeys]bool      // on disk, and not in memory
	keys  [windowKeys]seglog.Key
	at    [windowKeys]uint8
	found [windowKeys]bool
	sizes [windowKeys]int64
}

// look fills the window for the first of keys, whose namespace and layout are k's. It looks
// on disk too if that is asked for.
func (e *Engine) look(k *table.Key, keys []proto.Key, disk bool) {
	keys = keys[:min(len(keys), windowKeys)]
	table.FindAll(e.table, *k, keys, e.window.refs[:])
	e.lookOnDisk(k, keys, disk)
}

// lookAgain is look for a request whose keys were looked up before: refs is what was found then.
func (e *Engine) lookAgain(k *table.Key, keys []proto.Key, refs []table.Ref) {
	keys = keys[:copy(e.window.refs[:], refs)]
	e.lookOnDisk(k, keys, true)
}

// lookOnDisk looks for what is not in memory, if that is asked for.
func (e *Engine) lookOnDisk(k *table.Key, keys []proto.Key, disk bool) {
	w := &e.window
	w.disk = [windowKeys]bool{}
	if e.log == nil || !disk {
		return
	}
	d, ok := e.diskKey(k)
	if !ok {
		return
	}
	n := 0
	for i := range keys {
		if w.refs[i] == 0 {
			d.Hash = keys[i]
			w.keys[n], w.at[n] = d, uint8(i)
			n++
		}
	}
	e.log.FindAll(w.keys[:n], w.found[:n])
	for i := range n {
		w.disk[w.at[i]] = w.found[i]
	}
}

// find is [table.Table.Find] for the i-th key of the window, which is k.
func (e *Engine) find(i int, k *table.Key) (table.Ref, table.State, bool) {
	ref := e.window.refs[i]
	if ref == 0 {
		return e.table.Find(k)
	}
	if st := e.table.State(ref); st != table.StateFree {
		return ref, st, true
	}
	return e.table.Find(k)
}

// onDiskOnly says whether the i-th key of the window, which is k, is on disk and was not in
// memory, or is not any more.
func (e *Engine) onDiskOnly(i int, k *table.Key) bool {
	if ref := e.window.refs[i]; ref != 0 && e.table.State(ref) == table.StateFree {
		return e.onDisk(k)
	}
	return e.window.disk[i]
}
