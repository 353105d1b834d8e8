// Package benchmarks drives a real server from real processes: it replays request traces,
// kills workers and servers on purpose, and checks every byte that comes back. The command
// slotbench is its front.
//
// What a block must hold follows from its key alone ([Fill], [Mismatches]), so any process
// can check what any other stored. Worker processes are slotbench itself, started with a
// hidden subcommand; they read JSON lines on standard input and write JSON lines on
// standard output ([Actor], [Replayer]).
package benchmarks
