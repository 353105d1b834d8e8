package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/slotcache/slotcache/client"
	"github.com/slotcache/slotcache/ring"
	"github.com/slotcache/slotcache/ring/ringtest"
	"github.com/slotcache/slotcache/server"
)

// quiet keeps the log out of the examples' output.
var quiet = client.Options{Logger: slog.New(slog.DiscardHandler)}

// exampleServer starts a server for an example.
func exampleServer() (addr string, stop func()) {
	dir, err := os.MkdirTemp("", "slot")
	if err != nil {
		panic(err)
	}
	addr = "unix:" + filepath.Join(dir, "s")
	engine, err := ring.ParseEngine(os.Getenv(ringtest.EngineVariable))
	if err != nil {
		panic(err)
	}
	s, err := server.New(server.Config{Listen: []string{addr}, L1Size: 16 << 20, Engine: engine})
	if err != nil {
		_ = os.RemoveAll(dir)
		panic(err)
	}
	done := make(chan error)
	go func() { done <- s.Run() }()
	<-s.Ready()
	return addr, func() {
		s.Shutdown()
		if err := <-done; err != nil {
			panic(err)
		}
		_ = os.RemoveAll(dir)
	}
}

// exampleWorker registers with one layout of 1 MiB.
func exampleWorker(addr string) *client.Worker {
	w, err := client.Open(context.Background(), addr, quiet, client.Registration{
		Namespace: "llama-3-8b",
		Layouts:   []client.Layout{{Name: "bf16", Dims: []uint32{2, 32, 8, 1024}, Size: 1 << 20}},
	})
	if err != nil {
		panic(err)
	}
	return w
}

func ExampleOpen() {
	addr, stop := exampleServer()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	w, err := client.Open(ctx, addr, quiet, client.Registration{
		Namespace: "llama-3-8b",
		Layouts:   []client.Layout{{Name: "bf16", Dims: []uint32{2, 32, 8, 1024}, Size: 1 << 20}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = w.Close() }()

	status, err := w.Put(ctx, 0, client.Key{1}, []byte("attention"))
	fmt.Println(w.Transport(), status, err)
	value, found, err := w.Fetch(ctx, 0, client.Key{1}, nil)
	fmt.Printf("%s %v %v\n", value, found, err)
	// Output:
	// shared ok <nil>
	// attention true <nil>
}

func ExampleWorker_PrepareStore() {
	addr, stop := exampleServer()
	defer stop()
	w := exampleWorker(addr)
	defer func() { _ = w.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	chunks := []string{"first chunk", "second chunk"}
	keys := []client.Key{{1}, {2}}
	sizes := []uint64{uint64(len(chunks[0])), uint64(len(chunks[1]))}
	st, err := w.PrepareStore(ctx, 0, keys, sizes, time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = st.Abort(ctx) }() // does nothing after a commit

	for i := range chunks {
		fmt.Println(i, st.Status(i))
		copy(st.Slot(i), chunks[i]) // straight into the server's memory
	}
	if err := st.Commit(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("published:", st.Published())

	st, err = w.PrepareStore(ctx, 0, keys[:1], sizes[:1], time.Second)
	fmt.Println("again:", st.Status(0), err)
	// Output:
	// 0 reserved
	// 1 reserved
	// published: 2
	// again: exists <nil>
}

func ExampleWorker_StoreEach() {
	addr, stop := exampleServer()
	defer stop()
	w := exampleWorker(addr)
	defer func() { _ = w.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	if _, err := w.Put(ctx, 0, client.Key{1}, []byte("chunk 1")); err != nil {
		fmt.Println(err)
		return
	}
	keys := []client.Key{{0}, {1}, {2}}
	sizes := []uint64{7, 7, 7}
	statuses, err := w.StoreEach(ctx, 0, keys, sizes, time.Second, func(i int, slot []byte) error {
		fmt.Println("write", i) // not 1, which is there already
		copy(slot, fmt.Sprintf("chunk %d", i))
		return nil
	})
	fmt.Println(statuses, err)
	// Output:
	// write 0
	// write 2
	// [ok exists ok] <nil>
}

func ExampleWorker_Lookup() {
	addr, stop := exampleServer()
	defer stop()
	w := exampleWorker(addr)
	defer func() { _ = w.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	for i := range 3 {
		if _, err := w.Put(ctx, 0, client.Key{byte(i)}, fmt.Appendf(nil, "chunk %d", i)); err != nil {
			fmt.Println(err)
			return
		}
	}
	// How much of a prompt of four chunks is cached? With Slots this is a whole retrieve
	// in one round trip.
	found, err := w.Lookup(ctx, client.LookupRequest{
		Keys:  []client.Key{{0}, {1}, {2}, {3}},
		Load:  true, // also from disk,
		Wait:  time.Second,
		Slots: true, // and readable at once
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("hits:", found.Hits)
	for _, value := range found.Lease.Values() {
		fmt.Printf("%s\n", value)
	}
	fmt.Println(found.Lease.Release(ctx))
	// Output:
	// hits: 3
	// chunk 0
	// chunk 1
	// chunk 2
	// <nil>
}

func ExampleWorker_Retrieve() {
	addr, stop := exampleServer()
	defer stop()
	w := exampleWorker(addr)
	defer func() { _ = w.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	if _, err := w.Put(ctx, 0, client.Key{7}, []byte("chunk")); err != nil {
		fmt.Println(err)
		return
	}
	_, err := w.Retrieve(ctx, 0, []client.Key{{7}, {8}}, client.RetrieveOptions{})
	fmt.Println(err)
	r, err := w.Retrieve(ctx, 0, []client.Key{{7}, {8}}, client.RetrieveOptions{Prefix: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d value: %s\n", len(r.Values()), r.Values()[0])
	fmt.Println(r.Release(ctx))
	// Output:
	// client: prepare_retrieve: miss
	// 1 value: chunk
	// <nil>
}

func ExampleConn_Stats() {
	addr, stop := exampleServer()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.Dial(ctx, addr, quiet) // no registration is needed to look
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()
	counters, err := c.Stats(ctx)
	fmt.Println(c.Server(), len(counters) > 0, err)
	// Output:
	// slotcache true <nil>
}

func ExampleWorker_Pin() {
	addr, stop := exampleServer()
	defer stop()
	w := exampleWorker(addr)
	defer func() { _ = w.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	system := []client.Key{{1}, {2}} // the chunks of a prompt that many requests begin with
	if _, err := w.Put(ctx, 0, system[0], []byte("You are helpful.")); err != nil {
		fmt.Println(err)
		return
	}
	pins, err := w.Pin(ctx, client.PinRequest{Keys: system, TTL: time.Minute, Hard: true, Load: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pins.Pinned, pins.TTL, pins.Results)
	n, err := w.Unpin(ctx, 0, system)
	fmt.Println("unpinned:", n, err)
	// Output:
	// 1 1m0s [ok miss]
	// unpinned: 1 <nil>
}
