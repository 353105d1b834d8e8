package benchmarks

import (
	"time"
)

// A Tally is what a worker, or all of them, have done so far.
type Tally struct {
	Requests     int64 `json:"requests"`
	Blocks       int64 `json:"blocks"`
	MemoryHits   int64 `json:"l1_hit_blocks"` // prefix hits that were in memory when asked for
	DiskHits     int64 `json:"l2_hit_blocks"` // prefix hits that were on disk when asked for
	Missed       int64 `json:"miss_blocks"`
	Stored       int64 `json:"stored_blocks"`
	Existed      int64 `json:"existing_blocks"` // misses that turned out to be cached, after the first miss or meanwhile
	FailedStores int64 `json:"failed_stores"`   // blocks no room was had for
	WrongBytes   int64 `json:"wrong_bytes"`
	Errors       int64 `json:"errors"`  // requests given up
	Retries      int64 `json:"retries"` // requests begun again, after a lost connection

	StoreTime    time.Duration `json:"store_ns"`    // spent storing, summed over the workers
	RetrieveTime time.Duration `json:"retrieve_ns"` // spent looking up, checking and releasing
}

// add sums two tallies.
func (t *Tally) add(o *Tally) {
	t.Requests += o.Requests
	t.Blocks += o.Blocks
	t.MemoryHits += o.MemoryHits
	t.DiskHits += o.DiskHits
	t.Missed += o.Missed
	t.Stored += o.Stored
	t.Existed += o.Existed
	t.FailedStores += o.FailedStores
	t.WrongBytes += o.WrongBytes
	t.Errors += o.Errors
	t.Retries += o.Retries
	t.StoreTime += o.StoreTime
	t.RetrieveTime += o.RetrieveTime
}

// hits is the number of prefix hits.
func (t *Tally) hits() int64 { return t.MemoryHits + t.DiskHits }

// A Progress is a line a replaying worker writes: its tally so far. The last line carries
// its histogram of lookup times.
type Progress struct {
	Tally
	Boots     []uint64 `json:"boots"` // ids of the server's starts it has seen
	Done      bool     `json:"done"`
	Lookups   []byte   `json:"lookups,omitempty"` // encoded histogram, microseconds
	LastError string   `json:"last_error,omitempty"`
}
