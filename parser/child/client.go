package child

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sheaf"
	"sheaf/parser"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Source is a document to read. A call with a source equal to an earlier one reuses
// the open document if a child still has it.
type Source struct {
	Path    string         // of the file, readable by the child
	Key     string         // of the content, e.g. its SHA-256; default Path
	Format  string         // id; empty means derived from Options.MediaType
	Options parser.Options // TempDir and Fill are set by the pool
	// Fill fetches bytes of a sparse file before the child reads them; nil for a
	// complete file. Only for formats that are parser.Sparse. If it fails, the
	// child is ended and its error is returned unchanged.
	Fill func(ctx context.Context, offset, length int64) error
	// Readings are offered to the format; nil for none. They are called while the
	// child waits.
	Readings parser.Readings
	// PlanLimit is the time limit for planning once a child is available; 0 leaves
	// it to the context.
	PlanLimit time.Duration
}

// id identifies a source: the content and everything that affects how it is opened.
func (s Source) id() uint64 {
	s.Options.TempDir = ""
	b, err := json.Marshal(struct {
		P, K, F string
		O       parser.Options
	}{s.Path, s.Key, s.Format, s.Options})
	if err != nil {
		panic(err) // only for a Hint that is not JSON, a caller error
	}
	return xxhash.Sum64(b)
}

// progress records how far a call got before it failed.
type progress struct {
	accepted bool          // the child accepted the request
	opened   bool          // the document is open
	after    time.Duration // how long that took
}

// openingsIdle: a document may stay unused for this many times as long as it took
// to open; reopening it then costs little compared with having kept it.
const openingsIdle = 20

// errEmit wraps an error from the caller's own function.
type errEmit struct{ error }

func (e errEmit) Unwrap() error { return e.error }

// call sends one request and passes every frame of the answer to on.
func (p *Pool) call(ctx context.Context, c *process, req request, on func(kind byte, body []byte) error) (progress, error) {
	var at progress
	body, err := json.Marshal(req)
	if err != nil {
		return at, err
	}
	began := time.Now()
	stop := c.watch(ctx, req.limit, p.cfg.MaxRSSBytes)
	defer stop()
	if err := errors.Join(writeFrame(c.req, kindRequest, body), c.req.Flush()); err != nil {
		c.kill(killProtocol)
		return at, p.diagnose(ctx, c, began, err)
	}
	for {
		kind, body, next, err := readFrame(c.ans, c.buf)
		c.buf = next
		if err != nil {
			c.kill(killProtocol)
			return at, p.diagnose(ctx, c, began, err)
		}
		switch kind {
		case kindHello:
			at.accepted = true
		case kindOpened:
			at.opened, at.after = true, time.Since(began)
		case kindSpent:
			if len(body) != 8 {
				c.kill(killProtocol)
				return at, p.diagnose(ctx, c, began, errFrame)
			}
			// A child may lie, and cannot have used more than there was.
			most := time.Since(began) * time.Duration(runtime.NumCPU())
			took := min(time.Duration(binary.BigEndian.Uint64(body)&(1<<50-1))*time.Microsecond, most)
			spend(ctx, took)
			c.spent += took
		case kindNote:
			p.note(strings.ToValidUTF8(string(body), "?"))
		case kindDone:
			return at, nil
		case kindFailure, kindFatal:
			f := &sheaf.Failure{}
			if err := json.Unmarshal(body, f); err != nil {
				c.kill(killProtocol)
				return at, p.diagnose(ctx, c, began, errFrame)
			}
			if kind == kindFatal {
				c.kill(killEnd)
				p.count(func(s *Stats) { s.Crashes++ })
			}
			return at, f
		default:
			if err := on(kind, body); err != nil {
				c.kill(killEnd) // it would keep sending
				if errors.Is(err, errCodec) || errors.Is(err, errFrame) || errors.Is(err, errOrder) {
					return at, p.diagnose(ctx, c, began, err)
				}
				if errors.Is(err, errBudget) {
					return at, rangeTooLarge("", p.cfg.RangeBytes)
				}
				return at, errEmit{err}
			}
		}
	}
}

// diagnose returns the reason a child was killed or went silent.
func (p *Pool) diagnose(ctx context.Context, c *process, began time.Time, cause error) error {
	<-c.exited
	why := c.reason()
	spend(ctx, c.untold(why, began))
	if (why == killNone || why == killProtocol) && ranOut(c.stderr.String()) {
		why = killMemory
	}
	switch why {
	case killTimeout:
		p.count(func(s *Stats) { s.Timeouts++ })
		f := sheaf.FailRetryable(sheaf.CategoryTimeout, "parse_timeout", "Reading took longer than allowed. Raise the time limit, or split the file.")
		f.Detail = c.stderr.String()
		return f
	case killCanceled:
		p.count(func(s *Stats) { s.Canceled++ })
		return fmt.Errorf("%w: %w", sheaf.ErrCanceled, context.Cause(ctx))
	case killMemory:
		p.count(func(s *Stats) { s.OutOfMemory++ })
		f := sheaf.Fail(sheaf.CategoryCapacity, "parser_out_of_memory", "Reading needs more than the %d MB that a parser may use. Raise the memory limit, or split the file.", p.cfg.MaxRSSBytes>>20)
		f.Detail = c.stderr.String()
		return f
	case killClosed:
		return errClosed
	}
	p.count(func(s *Stats) { s.Crashes++ })
	state := c.state.String()
	if !errors.Is(cause, io.EOF) {
		state = cause.Error()
	}
	f := crashed(state)
	f.Detail = c.stderr.String()
	return f
}

// untold is the processor time of a request, begun then, during which the child
// ended. Programs that ended with it are not counted.
func (c *process) untold(why int32, began time.Time) time.Duration {
	if why == killTimeout { // it kept others waiting, whatever it did
		return time.Since(began)
	}
	if s := c.state; s != nil {
		return max(s.UserTime()+s.SystemTime()-c.spent, 0)
	}
	return 0
}

// ranOut reports whether the Go runtime ended a process because the kernel gave it
// no more memory: it hit its limit between two samples by the parent.
func ranOut(stderr string) bool {
	return strings.Contains(stderr, "fatal error: runtime: out of memory") || strings.Contains(stderr, "fatal error: runtime: cannot allocate") || strings.Contains(stderr, "fatal error: out of memory")
}

// with runs one request on a child that has the source open, or opens it.
func (p *Pool) with(ctx context.Context, src Source, op request, on func(kind byte, body []byte) error) (c *process, d *childDoc, at progress, err error) {
	if src.Path, err = filepath.Abs(src.Path); err != nil { // a child has its own working directory
		return nil, nil, at, err
	}
	id := src.id()
	for try := 0; ; try++ {
		if c, err = p.acquire(ctx, id, try > 0); err != nil {
			return nil, nil, at, err
		}
		at, d, err = p.on(ctx, c, id, src, op, on)
		if err == nil || at.accepted || try > 0 || ctx.Err() != nil {
			return c, d, at, err
		}
		// The child died while idle; retry once on a new one.
		p.release(c, false)
	}
}

func (p *Pool) on(ctx context.Context, c *process, id uint64, src Source, req request, on func(kind byte, body []byte) error) (progress, *childDoc, error) {
	d := c.docs[id]
	var shut []*childDoc
	if d != nil {
		p.count(func(s *Stats) { s.Reuses++ })
		req.Doc = d.id // everything else was sent when it was opened
	} else {
		dir, err := p.docDir()
		if err != nil {
			return progress{accepted: true}, nil, sheaf.FailRetryable(sheaf.CategoryCapacity, "storage_full", "No folder for temporary files could be made: %v. Free space in it.", err)
		}
		for len(c.docs) > 0 {
			oldest := c.oldest()
			if len(c.docs) < p.cfg.MaxDocs && time.Since(oldest.used) < max(p.cfg.KeepOpen, openingsIdle*oldest.opening) {
				break
			}
			delete(c.docs, oldest.key)
			shut, req.Close = append(shut, oldest), append(req.Close, oldest.id)
		}
		p.mu.Lock()
		p.nextDoc++
		d = &childDoc{key: id, id: p.nextDoc, dir: dir}
		p.stats.Opens++
		p.mu.Unlock()
		c.docs[id] = d
		c.docCount.Store(int32(len(c.docs)))
		c.served++
		req.Doc, req.Path, req.Format, req.Options = d.id, src.Path, src.Format, src.Options
		req.Options.TempDir, req.Sparse = d.dir, src.Fill != nil
	}
	d.used = time.Now()
	req.Readings = src.Readings != nil
	at, err := p.call(ctx, c, req, func(kind byte, body []byte) error {
		switch {
		case kind == kindNeed && src.Fill != nil && len(body) == 16:
			return c.fill(ctx, src, int64(binary.BigEndian.Uint64(body)), int64(binary.BigEndian.Uint64(body[8:])))
		case kind == kindRecall && req.Readings:
			return c.tell(kindRecalled, src.Readings.Recall(string(body)))
		case kind == kindKeep && req.Readings:
			key, reading, ok := bytes.Cut(body, []byte{0})
			if !ok {
				return errFrame
			}
			src.Readings.Keep(string(key), bytes.Clone(reading))
			return nil
		}
		return on(kind, body)
	})
	d.used = time.Now()
	if req.Path != "" {
		d.opening = at.after
	}
	if err != nil && !at.opened {
		delete(c.docs, id)
		c.docCount.Store(int32(len(c.docs)))
		shut = append(shut, d)
	}
	if len(shut) > 0 && c.reason() != killNone {
		<-c.exited // until then it may still write there
	}
	for _, d := range shut {
		p.dropDir(d.dir, c.reason() == killNone)
	}
	return at, d, err
}

// fill fetches bytes that the child waits for.
func (c *process) fill(ctx context.Context, src Source, offset, length int64) error {
	if err := src.Fill(ctx, offset, length); err != nil {
		return err
	}
	return c.tell(kindFilled, nil)
}

// tell answers a child that waits.
func (c *process) tell(kind byte, body []byte) error {
	if errors.Join(writeFrame(c.req, kind, body), c.req.Flush()) != nil {
		return errFrame
	}
	return nil
}

// finish releases the child and unwraps what call has wrapped.
func (p *Pool) finish(c *process, err error) error {
	if c == nil {
		return err
	}
	p.release(c, c.reason() == killNone)
	var own errEmit
	if errors.As(err, &own) {
		return own.error
	}
	return err
}

// askOne runs a request whose answer is one frame of kind want, holding JSON. The
// child stays busy until finish; noun names the answer in messages. other handles
// frames of other kinds; nil if there are none.
func askOne[T any](ctx context.Context, p *Pool, src Source, req request, want byte, noun string, other func(kind byte, body []byte) error) (answer *T, c *process, d *childDoc, err error) {
	c, d, _, err = p.with(ctx, src, req, func(kind byte, body []byte) error {
		if kind != want && other != nil {
			return other(kind, body)
		}
		if kind != want || answer != nil {
			return errFrame
		}
		answer = new(T)
		if json.Unmarshal(body, answer) != nil {
			return errCodec
		}
		return nil
	})
	if err == nil && answer == nil {
		c.kill(killProtocol)
		err = crashed("it gave no " + noun)
	}
	return answer, c, d, err
}

// Plan counts the document's units and determines how it may be split. shardDir is
// the folder that PlannedRange.Shard is relative to, "" when the plan has no
// shards; it exists until cleanup, which is never nil, is called.
func (p *Pool) Plan(ctx context.Context, src Source) (plan *parser.Plan, shardDir string, cleanup func(), err error) {
	cleanup = func() {}
	plan, c, d, err := askOne[parser.Plan](ctx, p, src, request{Op: opPlan, limit: src.PlanLimit}, kindPlan, "plan", nil)
	if err != nil {
		return nil, "", cleanup, p.finish(c, err)
	}
	for _, r := range plan.Ranges {
		if r.Shard == "" {
			continue
		}
		if shardDir, cleanup, err = p.handOver(ctx, c, d); err != nil {
			return nil, "", cleanup, p.finish(c, err)
		}
		break
	}
	return plan, shardDir, cleanup, p.finish(c, nil)
}

// handOver closes a document and leaves its folder, with the files written there,
// to the caller.
func (p *Pool) handOver(ctx context.Context, c *process, d *childDoc) (dir string, cleanup func(), err error) {
	_, err = p.call(ctx, c, request{Op: opClose, Doc: d.id}, func(byte, []byte) error { return errFrame })
	delete(c.docs, d.key)
	c.docCount.Store(int32(len(c.docs)))
	cleanup = func() { _ = os.RemoveAll(d.dir) }
	if err != nil {
		<-c.exited
		cleanup()
		return "", func() {}, err
	}
	return d.dir, cleanup, nil
}

// Unpack extracts files from a container, starting with the from-th. dir is the
// folder that Member.File is relative to; it exists until cleanup, which is never
// nil, is called. The document stays open until the last step, since each step
// continues where the previous one stopped.
func (p *Pool) Unpack(ctx context.Context, src Source, from int) (u *parser.Unpacked, dir string, cleanup func(), err error) {
	u, c, d, err := askOne[parser.Unpacked](ctx, p, src, request{Op: opUnpack, N: from}, kindUnpacked, "files", nil)
	if err != nil {
		return nil, "", func() {}, p.finish(c, err)
	}
	if u.Next == 0 {
		dir, cleanup, err = p.handOver(ctx, c, d)
		return u, dir, cleanup, p.finish(c, err)
	}
	dir, err = p.moveOut(d, u.Members)
	return u, dir, func() { _ = os.RemoveAll(dir) }, p.finish(c, err)
}

// moveOut moves files of a document that stays open into their own folder: the
// document's folder is removed when its child evicts the document.
func (p *Pool) moveOut(d *childDoc, members []parser.Member) (dir string, err error) {
	dir, err = os.MkdirTemp(p.root, "step-")
	for _, m := range members {
		switch {
		case err != nil || m.File == "":
		case m.File == "." || !filepath.IsLocal(m.File) || filepath.Base(m.File) != m.File:
			err = errFrame // a child may not name files outside its folder
		default:
			err = os.Rename(filepath.Join(d.dir, m.File), filepath.Join(dir, m.File))
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", sheaf.FailRetryable(sheaf.CategoryInternal, "members_missing", "The files of the archive could not be taken over: %v. It is tried again.", err)
	}
	return dir, nil
}

// errOrder means that a child emitted units that were not requested, twice, or out
// of order.
var errOrder = errors.New("the parser emitted units out of order")

// Parse reads the units of r and calls emit for each, in order, exactly once. A
// unit that does not fit into Config.RangeBytes is emitted as failed, with
// range_too_large. On an error the units emitted so far are valid and the rest was
// not read. An error from emit is returned unchanged. When the context ends, the
// child is killed: past the deadline the error is the failure parse_timeout, on
// cancellation sheaf.ErrCanceled.
func (p *Pool) Parse(ctx context.Context, src Source, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	left := p.cfg.RangeBytes
	_, err := p.parse(ctx, src, r, &left, emit)
	return err
}

// parse is Parse for part of a range; left is what remains of the whole range's
// budget.
func (p *Pool) parse(ctx context.Context, src Source, r sheaf.Range, left *int64, emit func(sheaf.UnitResult) error) (progress, error) {
	if r.From < 1 || r.To < r.From {
		return progress{}, fmt.Errorf("%w: range %v", sheaf.ErrInvalid, r)
	}
	next := r.From
	c, _, at, err := p.with(ctx, src, request{Op: opParse, Range: r, Budget: p.cfg.RangeBytes, Left: *left}, func(kind byte, body []byte) error {
		if kind != kindUnit {
			return errFrame
		}
		u, rest, err := decodeUnit(body, *left)
		if err != nil {
			return err
		}
		*left = rest
		last := max(u.Unit, u.LastUnit)
		if u.Unit != next || last > r.To {
			return fmt.Errorf("%w: %d to %d where %d was due", errOrder, u.Unit, last, next)
		}
		next = last + 1
		return emit(u)
	})
	if err == nil && next <= r.To {
		c.kill(killProtocol)
		err = crashed(fmt.Sprintf("it ended after unit %d of %d", next-1, r.To))
	}
	return at, p.finish(c, err)
}

// Render draws unit n, or the part of it within clip, at dpi as a PNG or JPEG.
func (p *Pool) Render(ctx context.Context, src Source, n, dpi int, clip *sheaf.Box) (img []byte, mediaType string, err error) {
	return p.draw(ctx, src, request{Op: opRender, N: n, DPI: dpi, Clip: clip})
}

// Picture draws the named picture of a file, at most side pixels per side, as a
// JPEG: see parser.Illustrated.
func (p *Pool) Picture(ctx context.Context, src Source, name string, side int) (img []byte, mediaType string, err error) {
	return p.draw(ctx, src, request{Op: opPicture, Name: name, N: side})
}

func (p *Pool) draw(ctx context.Context, src Source, req request) (img []byte, mediaType string, err error) {
	c, _, _, err := p.with(ctx, src, req, func(kind byte, body []byte) error {
		for i, b := range body {
			if b == 0 && kind == kindImage && img == nil {
				mediaType, img = string(body[:i]), append([]byte(nil), body[i+1:]...)
				return nil
			}
		}
		return errFrame
	})
	if err == nil && img == nil {
		c.kill(killProtocol)
		err = crashed("it gave no picture")
	}
	if err = p.finish(c, err); err != nil {
		return nil, "", err
	}
	return img, mediaType, nil
}
