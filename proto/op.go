package proto

import "strconv"

// An Op is an operation. A reply carries the op of its request.
type Op uint8

// The operations.
const (
	OpHello           Op = iota + 1 // agree on a version, learn the boot id
	OpRegister                      // become an instance, learn the transport
	OpUnregister                    // give everything back
	OpPing                          // say that one lives, learn how much of the pool is ready
	OpLookup                        // ask for keys; may hold them, load them and return their slots
	OpPrepareStore                  // reserve slots to write
	OpCommitStore                   // publish what was written
	OpAbortStore                    // free reserved slots
	OpPrepareRetrieve               // hold objects to read
	OpCommitRetrieve                // end a retrieve
	OpRelease                       // end leases
	OpDelete                        // remove objects from memory and disk
	OpClear                         // remove a namespace's objects
	OpPin                           // keep objects in memory
	OpUnpin                         // end pins
	OpTouch                         // mark objects as recently used
	OpStats                         // read the counters
	OpInstances                     // list the instances
	OpTransfers                     // list open transfers and leases
	OpEvict                         // end an instance against its will
	OpPut                           // store one small object in one round trip
)

var opNames = [...]string{
	OpHello:           "hello",
	OpRegister:        "register",
	OpUnregister:      "unregister",
	OpPing:            "ping",
	OpLookup:          "lookup",
	OpPrepareStore:    "prepare_store",
	OpCommitStore:     "commit_store",
	OpAbortStore:      "abort_store",
	OpPrepareRetrieve: "prepare_retrieve",
	OpCommitRetrieve:  "commit_retrieve",
	OpRelease:         "release",
	OpDelete:          "delete",
	OpClear:           "clear",
	OpPin:             "pin",
	OpUnpin:           "unpin",
	OpTouch:           "touch",
	OpStats:           "stats",
	OpInstances:       "instances",
	OpTransfers:       "transfers",
	OpEvict:           "evict",
	OpPut:             "put",
}

// Valid reports whether o is an operation of this version of the protocol. A
// frame of any other is answered with [StatusUnsupported].
func (o Op) Valid() bool { return o >= OpHello && o <= OpPut }

// String returns the operation's name, in snake case.
func (o Op) String() string {
	if !o.Valid() {
		return "op_" + strconv.Itoa(int(o))
	}
	return opNames[o]
}
