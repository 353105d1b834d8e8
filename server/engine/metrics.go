package engine

import (
	"time"

	"github.com/slotcache/slotcache/l1/table"
	"github.com/slotcache/slotcache/l2/seglog"
)

// Counters count since start. They only grow.
type Counters struct {
	Connections     uint64
	Requests        uint64
	Registrations   uint64
	Lookups         uint64
	LookupKeys      uint64
	HitsMemory      uint64 // keys a lookup found in memory
	HitsDisk        uint64 // keys a lookup found on disk only
	StoredBytes     uint64 // published
	RetrievedBytes  uint64 // told or sent by PREPARE_RETRIEVE
	Loads           uint64 // reads from disk begun
	LoadsFailed     uint64
	LoadedBytes     uint64
	Spills          uint64 // objects that went to disk
	SpilledBytes    uint64
	SpillsDropped   uint64 // objects the disk did not take
	SpillsRetried   uint64 // of them, given to it again
	Admitted        uint64 // objects that admission let go to disk
	AdmitRefused    uint64 // those that it did not, when their turn came
	AdmitLate       uint64 // those admitted because the opinion came too late
	TooLargeForDisk uint64
	Deletes         uint64
	Clears          uint64
	NotDurable      uint64 // deletes and clears answered so
	Parked          uint64 // requests that had to wait for memory
	Expired         uint64 // transfers and leases whose time was over
	Quarantined     uint64 // transfers
	Evicted         uint64 // times that an operator ended an instance
	Reaped          uint64 // instances that were silent for too long
	Denied          uint64 // peers that did not come in
	Crowded         uint64 // registrations refused of those who have half of the places, or do not read the replies
	Pins            uint64 // keys pinned, or pinned for longer
	PinsRefused     uint64 // keys that were to be
	PinsExpired     uint64
	Unpins          uint64
}

// Metrics is all that can be told of an engine: gauges of now, and counters.
type Metrics struct {
	IOEngine    string // the name under which Each tells what the host works with
	Memory      table.Usage
	Disk        seglog.Stats
	DiskOn      bool
	DiskState   seglog.State
	Counters    Counters
	Connections int
	Instances   int
	Transfers   int // open transfers and leases, of any state
	Quarantine  Quarantine
	Waiting     int   // parked requests
	Ops         int   // host work under way
	DirtyQueue  int   // objects that wait for their spill
	Refused     int   // objects that the disk would not take, to be tried again; some may be gone
	Capacity    int64 // bytes the pool has, or is to have
	PinBudget   int64
}

// A Quarantine is what processes may still touch though the server gave up on it.
type Quarantine struct {
	Transfers int
	Bytes     int64         // of slots they may write, and of objects they may read
	Oldest    time.Duration // how long the first of them has been in it
}

// quarantineNow counts the quarantined transfers. There are none as a rule.
func (e *Engine) quarantineNow() (q Quarantine) {
	if e.quarantined == 0 {
		return q
	}
	for t := range e.transfers {
		if p := &e.transfers[t]; p.state == transferQuarantined {
			q.Transfers++
			q.Bytes += p.bytes
			q.Oldest = max(q.Oldest, e.now-p.since)
		}
	}
	return q
}

// Metrics copies the numbers into dst.
func (e *Engine) Metrics(dst *Metrics) {
	*dst = Metrics{
		IOEngine: e.ioEngine, Memory: e.table.Usage(), Counters: e.counters, Quarantine: e.quarantineNow(),
		Transfers: e.transfersOpen, Ops: e.opsBusy, DirtyQueue: e.dirty.len(), Refused: e.refused.count,
		Capacity: e.size, PinBudget: max(e.cfg.PinBudget, 0),
	}
	if e.log != nil {
		dst.DiskOn, dst.Disk, dst.DiskState = true, e.log.Stats(), e.log.State()
	}
	for i := range e.conns {
		if e.conns[i].state != connFree {
			dst.Connections++
		}
	}
	for i := range e.insts[:e.instUsed] {
		if e.insts[i].state != instFree {
			dst.Instances++
		}
	}
	for n := e.parkedFirst; n != none; n = e.parked[n].next {
		dst.Waiting++
	}
}

// Each calls f for every number, gauges before counters, always in the same order. The
// names are those of STATS; /metrics puts "slotcache_" before them. Bytes end in _bytes,
// counters in _total. One
// that tells a word has the value 1 and the word in braces.
func (m *Metrics) Each(f func(name string, value uint64)) {
	if m.IOEngine != "" {
		f(m.IOEngine, 1)
	}
	u := &m.Memory
	f("connections", uint64(m.Connections))
	f("instances", uint64(m.Instances))
	f("transfers", uint64(m.Transfers))
	f("waiting_requests", uint64(m.Waiting))
	f("ops_in_flight", uint64(m.Ops))
	f("quarantined_transfers", uint64(m.Quarantine.Transfers))
	f("quarantined_transfer_bytes", uint64(m.Quarantine.Bytes))
	f("l1_capacity_bytes", uint64(m.Capacity))
	f("l1_ready_bytes", uint64(u.Ready))
	f("l1_used_bytes", uint64(u.Used))
	f("l1_resident_bytes", uint64(u.Resident))
	f("l1_staged_bytes", uint64(u.Staged))
	f("l1_loading_bytes", uint64(u.Loading))
	f("l1_held_bytes", uint64(u.Held))
	f("l1_quarantined_bytes", uint64(u.Quarantined))
	f("l1_quarantined_oldest_seconds", uint64(m.Quarantine.Oldest.Seconds()))
	f("l1_doomed_bytes", uint64(u.Doomed))
	f("l1_dirty_bytes", uint64(u.Dirty))
	f("l1_evictable_bytes", uint64(u.Evictable))
	f("l1_pinned_soft_bytes", uint64(u.PinnedSoft))
	f("l1_pinned_hard_bytes", uint64(u.PinnedHard))
	f("l1_pin_budget_bytes", uint64(m.PinBudget))
	f("l1_pinned_objects", uint64(u.Pinned))
	f("l1_objects", uint64(u.Objects))
	f("l1_evictions_total", u.Evictions)
	m.eachDisk(f)
	c := &m.Counters
	f("connections_total", c.Connections)
	f("requests_total", c.Requests)
	f("registrations_total", c.Registrations)
	f("lookups_total", c.Lookups)
	f("lookup_keys_total", c.LookupKeys)
	f("hits_l1_total", c.HitsMemory)
	f("hits_l2_total", c.HitsDisk)
	f("stored_bytes_total", c.StoredBytes)
	f("retrieved_bytes_total", c.RetrievedBytes)
	f("loads_total", c.Loads)
	f("loads_failed_total", c.LoadsFailed)
	f("loaded_bytes_total", c.LoadedBytes)
	f("spills_total", c.Spills)
	f("spilled_bytes_total", c.SpilledBytes)
	f("spills_dropped_total", c.SpillsDropped)
	f("spills_retried_total", c.SpillsRetried)
	f("l2_admitted_total", c.Admitted)
	f("l2_admit_refused_total", c.AdmitRefused)
	f("l2_admit_late_total", c.AdmitLate)
	f("too_large_for_l2_total", c.TooLargeForDisk)
	f("deletes_total", c.Deletes)
	f("clears_total", c.Clears)
	f("not_durable_total", c.NotDurable)
	f("parked_total", c.Parked)
	f("expired_total", c.Expired)
	f("quarantined_total", c.Quarantined)
	f("evicted_instances_total", c.Evicted)
	f("reaped_instances_total", c.Reaped)
	f("denied_total", c.Denied)
	f("registrations_crowded_total", c.Crowded)
	f("pins_total", c.Pins)
	f("pins_refused_total", c.PinsRefused)
	f("pins_expired_total", c.PinsExpired)
	f("unpins_total", c.Unpins)
}

func (m *Metrics) eachDisk(f func(name string, value uint64)) {
	if !m.DiskOn {
		return
	}
	d := &m.Disk
	f("l2_state", uint64(m.DiskState))
	f("l2_queue", uint64(m.DirtyQueue))
	f("l2_refused", uint64(m.Refused))
	f("l2_records", d.Records)
	f("l2_live_bytes", d.LiveBytes)
	f("l2_disk_bytes", d.DiskBytes)
	f("l2_in_flight", d.InFlight)
	f("l2_fences_owed", d.FencesOwed)
	f("l2_puts_total", d.Puts)
	f("l2_put_bytes_total", d.PutBytes)
	f("l2_put_errors_total", d.PutErrors)
	f("l2_superseded_total", d.Superseded)
	f("l2_reads_total", d.Reads)
	f("l2_read_bytes_total", d.ReadBytes)
	f("l2_read_ios_total", d.ReadIOs)
	f("l2_read_depths_total", d.ReadDepths)
	f("l2_read_misses_total", d.ReadMisses)
	f("l2_bad_records_total", d.BadRecords)
	f("l2_rereads_total", d.Rereads)
	f("l2_tombstones_total", d.Tombstones)
	f("l2_evicted_segments_total", d.EvictedSegments)
	f("l2_evicted_records_total", d.EvictedRecords)
	f("l2_write_bytes_total", d.WriteBytes)
	f("l2_io_errors_total", d.IOErrors)
	f("l2_degradations_total", d.Degradations)
	f("l2_stalls_total", d.Stalls)
}
