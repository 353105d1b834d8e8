package server

import (
	"fmt"
	"io"
	"strings"
)

// help says what each number of /metrics is, by its name without "slotcache_" and the word in
// braces. docs/OPERATIONS.md has the same table.
var help = map[string]string{
	"io_engine":                     "1; the label says what carries out the I/O.",
	"connections":                   "Connections that are open.",
	"instances":                     "Registered instances, live, detached or draining.",
	"transfers":                     "Open stores, retrieves and leases, of any state.",
	"waiting_requests":              "Requests that wait for memory now.",
	"ops_in_flight":                 "Reads, writes and copies that the server has under way.",
	"quarantined_transfers":         "Transfers that the server gave up on, whose processes live and may still touch the slots.",
	"quarantined_transfer_bytes":    "Bytes of the slots and objects that these may still touch.",
	"l1_capacity_bytes":             "Size of the pool, or what it is to have.",
	"l1_ready_bytes":                "Bytes of the pool that are reserved and can be used.",
	"l1_used_bytes":                 "Bytes of the pool that are taken, for whatever.",
	"l1_resident_bytes":             "Bytes of objects that can be found in memory.",
	"l1_staged_bytes":               "Bytes of slots that workers write and have not committed.",
	"l1_loading_bytes":              "Bytes of slots that the disk is being read into.",
	"l1_held_bytes":                 "Bytes of objects that a lease or a retrieve holds.",
	"l1_quarantined_bytes":          "Bytes of the pool that nobody can use until a process has ended.",
	"l1_quarantined_oldest_seconds": "For how long the oldest transfer has been quarantined.",
	"l1_doomed_bytes":               "Bytes of objects that were deleted and are still held.",
	"l1_dirty_bytes":                "Bytes of objects that are to go to disk and are not there.",
	"l1_evictable_bytes":            "Bytes of objects that can be evicted at once.",
	"l1_pinned_soft_bytes":          "Bytes of objects that are pinned softly.",
	"l1_pinned_hard_bytes":          "Bytes of objects that are pinned hard.",
	"l1_pin_budget_bytes":           "Most bytes that may be pinned.",
	"l1_pinned_objects":             "Objects that are pinned.",
	"l1_objects":                    "Objects in memory, of any state.",
	"l1_evictions_total":            "Objects evicted from memory.",
	"l2_state":                      "State of the disk tier: 0 well, 1 it refuses writes, 2 and 3 it stops, 4 it hangs.",
	"l2_queue":                      "Objects that wait to be written to disk.",
	"l2_refused":                    "Objects that the disk would not take, to be tried again when it is well.",
	"l2_records":                    "Values in the disk tier.",
	"l2_live_bytes":                 "Bytes of these values.",
	"l2_disk_bytes":                 "Bytes on disk that the tier takes.",
	"l2_in_flight":                  "I/Os of the disk tier that are under way.",
	"l2_fences_owed":                "Deletes and clears that are not on disk yet.",
	"l2_puts_total":                 "Values that were written to the disk tier.",
	"l2_put_bytes_total":            "Bytes of these values.",
	"l2_put_errors_total":           "Values that it did not take, or could not write.",
	"l2_superseded_total":           "Values that a later one of the same key, or a delete, made void before they were written.",
	"l2_reads_total":                "Values that were read from the disk tier and verified.",
	"l2_read_bytes_total":           "Bytes of these values.",
	"l2_read_ios_total":             "Reads that it gave to the disk.",
	"l2_read_depths_total":          "Sum, over these reads, of how many were in flight as each began, itself included.",
	"l2_read_misses_total":          "Reads that ended without a value: it had been evicted meanwhile, or was bad.",
	"l2_bad_records_total":          "Values that did not verify, or could not be read, and were removed.",
	"l2_rereads_total":              "Values that did not verify and did when they were read once more.",
	"l2_tombstones_total":           "Records of deletes that were written.",
	"l2_evicted_segments_total":     "Segments that were evicted to be used again.",
	"l2_evicted_records_total":      "Values that went with them.",
	"l2_write_bytes_total":          "Bytes written to disk: values, headers, footers and what eviction writes again.",
	"l2_io_errors_total":            "I/Os of the disk tier that failed.",
	"l2_degradations_total":         "Times that the disk refused a write.",
	"l2_stalls_total":               "Times that the disk hung.",
	"connections_total":             "Connections that were opened.",
	"requests_total":                "Requests handled.",
	"registrations_total":           "Instances registered, those of a process that came back left out.",
	"lookups_total":                 "LOOKUP requests that were read, those that were refused later included.",
	"lookup_keys_total":             "Keys that these asked about.",
	"hits_l1_total":                 "Keys of them that were in memory.",
	"hits_l2_total":                 "Keys of them that were on disk only.",
	"stored_bytes_total":            "Bytes published by workers.",
	"retrieved_bytes_total":         "Bytes told or sent to workers by PREPARE_RETRIEVE.",
	"loads_total":                   "Objects whose read from disk into memory was begun.",
	"loads_failed_total":            "Loads that ended in a miss.",
	"loaded_bytes_total":            "Bytes loaded.",
	"spills_total":                  "Objects written from memory to disk.",
	"spilled_bytes_total":           "Bytes of these objects.",
	"spills_dropped_total":          "Objects that the disk did not take; they live in memory only.",
	"spills_retried_total":          "Of them, those that were given to it again.",
	"l2_admitted_total":             "Objects that admission let go to disk.",
	"l2_admit_refused_total":        "Objects that it did not when their turn came.",
	"l2_admit_late_total":           "Objects admitted because the sketch's answer came too late.",
	"too_large_for_l2_total":        "Objects larger than a segment, which live in memory only.",
	"deletes_total":                 "Keys deleted.",
	"clears_total":                  "Namespaces cleared.",
	"not_durable_total":             "Deletes and clears of which the disk could not be told.",
	"parked_total":                  "Requests that had to wait for memory.",
	"expired_total":                 "Transfers and leases whose time was over.",
	"quarantined_total":             "Transfers that were quarantined.",
	"evicted_instances_total":       "Times that an operator ended an instance.",
	"reaped_instances_total":        "Instances that were silent for too long.",
	"denied_total":                  "Peers that were not let in.",
	"registrations_crowded_total":   "Registrations refused to those who have half of the places, or do not read the replies.",
	"pins_total":                    "Keys pinned, or pinned for longer.",
	"pins_refused_total":            "Keys that were to be pinned and were not.",
	"pins_expired_total":            "Pins whose time was over.",
	"unpins_total":                  "Pins ended by UNPIN.",

	"input_buffer_bytes":     "Memory that holds frames that have come in part.",
	"output_queued_bytes":    "Bytes of replies that have not been sent.",
	"output_buffer_bytes":    "Memory that is kept for replies.",
	"pool_populated_bytes":   "Bytes of the pool that are reserved.",
	"pool_registered_bytes":  "Bytes of the pool that the kernel reads files into without pinning pages each time.",
	"ring_in_flight":         "Operations that the kernel, or a goroutine in its stead, has.",
	"turns_total":            "Turns of the loop.",
	"accepted_total":         "Connections accepted.",
	"refused_total":          "Connections closed at once, since there were too many.",
	"displaced_total":        "Connections that did nothing and gave way to newcomers.",
	"closed_total":           "Connections closed.",
	"accept_errors_total":    "Connections that could not be accepted.",
	"send_errors_total":      "Replies that could not be sent.",
	"frames_total":           "Frames received.",
	"bad_frames_total":       "Connections closed since they sent what is no frame.",
	"over_budget_total":      "Connections closed since their process held most of the memory for unfinished frames.",
	"slow_peers_total":       "Connections closed since they kept the server waiting.",
	"received_bytes_total":   "Bytes received.",
	"sent_bytes_total":       "Bytes sent.",
	"pool_faults_total":      "Damages of the pool's memory that were met.",
	"ring_enters_total":      "Times that the loop entered the kernel.",
	"ring_looks_total":       "Times that the loop looked for requests before it would have slept.",
	"ring_looks_found_total": "Looks that found some.",
	"ring_completions_total": "Operations completed.",
	"ring_overflows_total":   "Times that the ring had no room for completions; none are lost.",
	"ring_fixed_io_total":    "I/Os of files on registered memory.",
	"ring_plain_io_total":    "I/Os of files on other memory.",
	"ring_short_io_total":    "I/Os of files that came short and were gone on with.",
	"ring_retries_total":     "Operations that the kernel wanted tried again.",
	"ring_stale_total":       "Completions of operations that nobody waits for any more.",
}

// prefix is what the names of /metrics begin with.
const prefix = "slotcache_"

// writeMetric writes one number with what it is. A counter's name ends in _total.
func writeMetric(out io.Writer, name string, value uint64) {
	family, _, _ := strings.Cut(name, "{")
	kind := "gauge"
	if strings.HasSuffix(family, "_total") {
		kind = "counter"
	}
	_, _ = fmt.Fprintf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n%s%s %d\n",
		prefix, family, help[family], prefix, family, kind, prefix, name, value) // to a buffer, or a client that may be gone
}

// withoutEmptyHelp leaves the lines of text out that are to say what a number is and do not.
func withoutEmptyHelp(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# HELP "); !ok || strings.Contains(rest, " ") {
			out.WriteString(line)
		}
	}
	return out.String()
}
