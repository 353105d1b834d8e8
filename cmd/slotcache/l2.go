package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"text/tabwriter"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"

	"github.com/slotcache/slotcache/cmd/flags"
	"github.com/slotcache/slotcache/l2"
	"github.com/slotcache/slotcache/l2/segdir"
	"github.com/slotcache/slotcache/l2/seglog"
)

type l2Command struct {
	Verify verifyCommand `cmd:"" help:"Read every record of a store that no server has open, and compare its checksum."`
	Ls     lsCommand     `cmd:"" help:"List the records of a store that no server has open."`
}

// inspect opens the files of a store.
func inspect(dir string) (*l2.Inspection, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	look, err := l2.Inspect(dir, l2.InspectOptions{Logger: log})
	switch {
	case errors.Is(err, segdir.ErrLocked):
		return nil, fmt.Errorf("%w: stop the server that has it open", err)
	case errors.Is(err, segdir.ErrForeign):
		return nil, fmt.Errorf("%w: give the server's --l2-dir", err)
	}
	return look, err
}

type verifyCommand struct {
	Dir  string `arg:"" help:"Directory of the store." type:"existingdir"`
	JSON bool   `name:"json" help:"As one JSON object."`
}

// A verification is what a store was found to hold. Bytes are those of values.
type verification struct {
	Segments   int         `json:"segments"`
	Sealed     int         `json:"sealed"` // of these, with a footer
	Records    int         `json:"records"`
	Visible    int         `json:"visible"`    // of these, those that are served
	Tombstones int         `json:"tombstones"` // deletes and clears
	Bytes      int64       `json:"bytes"`
	Bad        int         `json:"bad"`         // records whose value is not what was written
	BadVisible int         `json:"bad_visible"` // of these, those that would be looked for
	Unfinished int         `json:"unfinished"`  // the same of those that a killed process was writing: never whole, or damaged
	Ignored    []string    `json:"ignored"`     // files that are not used or not whole, with the reason
	Damaged    []badRecord `json:"damaged,omitempty"`
}

// A badRecord says where damage is.
type badRecord struct {
	Key     string `json:"key"`
	Segment uint32 `json:"segment"`
	Offset  int64  `json:"offset"`
	Error   string `json:"error"`
	// Unfinished tells that a killed process may not have written all of it.
	Unfinished bool `json:"unfinished,omitempty"`
}

// Run reads all of the store. A bad record is exit code 1.
func (cmd *verifyCommand) Run(s *session) error {
	look, err := inspect(cmd.Dir)
	if err != nil {
		return err
	}
	found, err := verify(s.whole, look)
	if err = errors.Join(err, look.Close()); err != nil {
		return fmt.Errorf("verify %s: %w", cmd.Dir, err)
	}
	if cmd.JSON {
		err = json.NewEncoder(s.out).Encode(found)
	} else {
		err = found.print(s)
	}
	if err == nil && found.Bad > 0 {
		err = fmt.Errorf("verify %s: %d bad records; the server takes each for a miss and goes on", cmd.Dir, found.Bad)
	}
	return err
}

// verify reads every value.
func verify(ctx context.Context, look *l2.Inspection) (*verification, error) {
	v := &verification{Ignored: []string{}}
	var total int64
	for i := range look.Segments {
		for k := range look.Segments[i].Records {
			total += look.Segments[i].Records[k].Size
		}
	}
	draw := bar(total, "verify")
	for i := range look.Segments {
		seg := &look.Segments[i]
		v.Segments++
		if seg.Sealed {
			v.Sealed++
		}
		if seg.Ignored != "" {
			v.Ignored = append(v.Ignored, fmt.Sprintf("segment %d: %s", seg.ID, seg.Ignored))
		}
		for k := range seg.Records {
			if err := v.look(ctx, look, &seg.Records[k]); err != nil {
				return nil, err
			}
			draw(v.Bytes)
		}
	}
	return v, nil
}

// look verifies one record. A value may go to the disk beside the header that lists it, so that what was being written when
// its process was killed may be listed and not there; that is no damage.
func (v *verification) look(ctx context.Context, in *l2.Inspection, r *seglog.StoredRecord) error {
	if !r.Put {
		v.Tombstones++
		return nil
	}
	v.Records++
	v.Bytes += r.Size
	if r.Visible {
		v.Visible++
	}
	err := in.Verify(ctx, r)
	if err == nil || !errors.Is(err, l2.ErrBadRecord) {
		return err
	}
	switch {
	case r.Early:
		v.Unfinished++
	case r.Visible:
		v.BadVisible++
		fallthrough
	default:
		v.Bad++
	}
	v.Damaged = append(v.Damaged, badRecord{
		Key: hex.EncodeToString(r.Key.Hash[:]), Segment: uint32(r.Addr.Segment), Offset: r.Addr.Off, Error: err.Error(), Unfinished: r.Early,
	})
	return nil
}

func (v *verification) print(s *session) error {
	for _, b := range v.Damaged {
		word := "bad"
		if b.Unfinished {
			word = "unfinished"
		}
		if err := s.printf("%s %s: %s\n", word, b.Key, b.Error); err != nil {
			return err
		}
	}
	for _, why := range v.Ignored {
		if err := s.printf("ignored %s\n", why); err != nil {
			return err
		}
	}
	return s.printf("%d segments (%d sealed), %d records of %v (%d visible), %d tombstones; %d bad (%d of them visible), %d unfinished, %d files ignored\n",
		v.Segments, v.Sealed, v.Records, flags.Size(v.Bytes), v.Visible, v.Tombstones, v.Bad, v.BadVisible, v.Unfinished, len(v.Ignored))
}

// bar shows progress in bytes on a terminal, and nothing elsewhere.
func bar(total int64, what string) func(done int64) {
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err != nil {
		return func(int64) {}
	}
	b := progressbar.NewOptions64(total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
	return func(done int64) { _ = b.Set64(done) } // a bar that cannot be drawn is no failure
}

type lsCommand struct {
	Dir  string `arg:"" help:"Directory of the store." type:"existingdir"`
	All  bool   `help:"Also records that are not served: overwritten, deleted, tombstones."`
	JSON bool   `name:"json" help:"A JSON object a line."`
}

// A listed is a record as ls prints it.
type listed struct {
	Namespace string `json:"namespace"` // as on disk: a number in hexadecimal
	Layout    string `json:"layout"`
	Key       string `json:"key"`
	Size      int64  `json:"size"`
	Sequence  uint64 `json:"sequence"`
	Segment   uint32 `json:"segment"`
	Offset    int64  `json:"offset"`
	Visible   bool   `json:"visible"`
	Put       bool   `json:"put"`
	// Early tells that it was listed before the value was written: if a process was killed then, it may not be whole.
	Early bool `json:"early,omitempty"`
}

// Run lists the records, the newest segment first.
func (cmd *lsCommand) Run(s *session) error {
	look, err := inspect(cmd.Dir)
	if err != nil {
		return err
	}
	t := table{tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)}
	lines := json.NewEncoder(s.out)
	if !cmd.JSON {
		t.row("NAMESPACE\tLAYOUT\tKEY\tSIZE\tSEGMENT\tOFFSET\tSTATE")
	}
	for i := range look.Segments {
		for k := range look.Segments[i].Records {
			r := &look.Segments[i].Records[k]
			if err != nil || !r.Visible && !cmd.All {
				continue
			}
			x := listed{
				Namespace: fmt.Sprintf("%016x", r.Key.Namespace), Layout: fmt.Sprintf("%016x", r.Key.Layout),
				Key: hex.EncodeToString(r.Key.Hash[:]), Size: r.Size, Sequence: r.Seq,
				Segment: uint32(r.Addr.Segment), Offset: r.Addr.Off, Visible: r.Visible, Put: r.Put, Early: r.Early,
			}
			if cmd.JSON {
				err = lines.Encode(&x)
				continue
			}
			t.row("%s\t%s\t%s\t%d\t%d\t%d\t%s", x.Namespace, x.Layout, x.Key, x.Size, x.Segment, x.Offset, recordState(r))
		}
	}
	return errors.Join(err, t.Flush(), look.Close())
}

func recordState(r *seglog.StoredRecord) string {
	state := "superseded"
	switch {
	case !r.Put:
		return "tombstone"
	case r.Visible:
		state = "visible"
	}
	if r.Early {
		state += ", early"
	}
	return state
}
