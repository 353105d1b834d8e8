package proto

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzSplitter deals a stream in pieces, stopping in some and receiving payload
// past the splitter, and wants the frames that the stream has when it is whole.
func FuzzSplitter(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, stream, plan []byte) {
		at := 0
		draw := func() byte {
			if len(plan) == 0 {
				return 1
			}
			at++
			return plan[(at-1)%len(plan)] + byte(at/len(plan))
		}
		want, wantErr := whole(stream)
		d := &dealer{
			hold: func() bool { return draw()%8 == 7 },
			skip: func() bool { return draw()%4 == 3 },
		}
		got, err := split(t, stream, d, func() int { return 1 + int(draw()) })
		if wantErr != nil {
			require.EqualError(t, err, wantErr.Error())
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, want, got)
	})
}

// FuzzParse wants of every body that its parser takes it or says ErrBody, and
// that what it takes is encoded again to the same bytes.
func FuzzParse(f *testing.F) {
	f.Add(byte(OpPing), false, []byte{})
	codecs := messages()
	f.Fuzz(func(t *testing.T, op byte, reply bool, body []byte) {
		for _, m := range codecs {
			if byte(m.op) != op || m.reply != reply {
				continue
			}
			fresh := m.blank()
			err := fresh.parse(body)
			used := m.parse(body) // into what earlier bodies left
			if err != nil {
				require.ErrorIs(t, err, ErrBody)
				require.EqualError(t, used, err.Error())
				return
			}
			require.NoError(t, used)
			require.Equal(t, string(body), string(fresh.encode(nil)))
			require.Equal(t, string(body), string(m.encode(nil)))
			require.Equal(t, string(body), string(wireBytes(fresh.value())))
		}
	})
}
