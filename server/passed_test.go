package server_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slotcache/slotcache/proto"
	"github.com/slotcache/slotcache/server"
)

// The pool's descriptor is passed without end to a peer that does not read: the kernel allows a user so many under way
// that no worker could register any more. It is busy from the third on, until its peer has read.
func TestDescriptorsThatNobodyReadsAreFew(t *testing.T) {
	const times = 50
	r := start(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" })
	p := greet(t, r)
	register := func() []byte {
		return p.frame(proto.OpRegister, proto.AppendRegister(nil, &proto.Register{
			Instance: 7, Want: proto.TransportShared, Name: "deaf", Namespace: "test",
			Layouts: []proto.Layout{{Name: "bytes", Dims: []uint32{1}, Size: 4096}},
		}), nil)
	}
	for round := range 2 {
		var all []byte
		for range times {
			all = append(all, register()...)
		}
		p.write(all)
		eventually(t, "all are stepped", func() bool {
			return int(scrape(t, r)["slotcache_registrations_crowded_total"]) == (round+1)*(times-2)
		})
		passed := 0
		for range times {
			h, _, _, err := p.read()
			require.NoError(t, err)
			if h.Status == proto.StatusOK {
				passed++
				continue
			}
			require.Equal(t, proto.StatusBusy, h.Status)
		}
		require.Equal(t, 2, passed)
	}
	other := greet(t, r)
	h, body, _ := other.call(proto.OpRegister, bytes.Clone(register()[proto.HeaderSize:]), nil)
	require.Equal(t, proto.StatusOK, h.Status)
	var reply proto.RegisterReply
	require.NoError(t, proto.ParseRegisterReply(body, &reply))
	require.Equal(t, proto.ShmFd, reply.ShmKind)
}
