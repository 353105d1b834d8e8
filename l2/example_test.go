package l2_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/slotcache/slotcache/l2"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "l2-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	store, err := l2.Open(dir, l2.Options{Size: 64 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()

	ctx := context.Background()
	if err := store.Put(ctx, []byte("greeting"), []byte("hello, disk")); err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := store.Get(ctx, []byte("greeting"), buf)
	fmt.Printf("%s, %v\n", buf[:n], err)

	n, err = store.Get(ctx, []byte("greeting"), buf[:3])
	fmt.Println(n, errors.Is(err, l2.ErrShortBuffer))

	if err := store.Delete(ctx, []byte("greeting")); err != nil {
		log.Fatal(err)
	}
	_, err = store.Get(ctx, []byte("greeting"), buf)
	fmt.Println(errors.Is(err, l2.ErrNotFound))
	// Output:
	// hello, disk, <nil>
	// 11 true
	// true
}
