package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"sheaf"
	"sheaf/internal/garbage"
	"sheaf/parser"
	"sheaf/parser/internal/program"
)

// Environment of a child. The parent passes these and a short list of others (see
// childEnv), never its own environment: the child reads untrusted files and needs
// no passwords.
const (
	envChild     = "SHEAF_PARSE_CHILD"
	envFileBytes = "SHEAF_PARSE_FILE_BYTES"
	envNice      = "SHEAF_PARSE_NICE"
	envParent    = "SHEAF_PARSE_PARENT" // pid of the service, set by the launcher
)

// Values of envChild.
const (
	roleParser   = "1"
	roleLauncher = "launcher"
)

// Descriptors of the two pipes. Standard output is not used, so that a library that
// prints cannot disturb the protocol.
const (
	fdRequests = 3
	fdAnswers  = 4
)

// ProgramPath is the path by which a child starts Config.Program.
const ProgramPath = "/proc/self/fd/5"

// fdProgram is the descriptor behind ProgramPath.
const fdProgram = 5

const (
	opPlan    = "plan"
	opParse   = "parse"
	opRender  = "render"
	opPicture = "picture"
	opUnpack  = "unpack"
	opClose   = "close"
)

// request is a request from the parent. Doc identifies the document among those the
// child has open; Path, Format and Options open it otherwise.
type request struct {
	Op      string
	Doc     uint64
	Close   []uint64 `json:",omitempty"` // documents to close first
	Path    string
	Format  string
	Options parser.Options
	Sparse  bool // the file has holes, filled by the parent
	Range   sheaf.Range
	Budget  int64 `json:",omitempty"` // bytes of memory the units of a whole range may take in the parent
	Left    int64 `json:",omitempty"` // of those, for this request
	N, DPI  int
	Clip    *sheaf.Box `json:",omitempty"`
	Name    string     `json:",omitempty"` // of a picture
	// Readings says that the parent has parser.Readings.
	Readings bool `json:",omitempty"`

	limit time.Duration // after which the parent kills the child; 0 for none
}

// MaybeRun turns the process into a parser child or its launcher if the pool started
// it, and otherwise returns at once. It must be the first statement of main, and of
// TestMain in packages that use a pool, since the child is the same binary.
func MaybeRun(formats []parser.Format) {
	switch os.Getenv(envChild) {
	case roleParser:
		os.Exit(serve(parser.NewRegistry(formats...)))
	case roleLauncher:
		os.Exit(serveLauncher())
	}
}

// Exit codes of a child that exits on its own.
const (
	exitOK       = 0
	exitProtocol = 71
	exitPanic    = 72
)

func serve(formats *parser.Registry) int {
	fileBytes, _ := strconv.ParseInt(os.Getenv(envFileBytes), 10, 64)
	nice, _ := strconv.Atoi(os.Getenv(envNice))
	limits, err := sandboxFromEnviron()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the parser's process must be started by Sheaf:", err)
		return exitProtocol
	}
	if err := dieWithParent(); err != nil {
		fmt.Fprintln(os.Stderr, "the parser's process must end with Sheaf:", err)
		return exitProtocol
	}
	if err := lowerPriority(nice); err != nil {
		fmt.Fprintln(os.Stderr, "priority of the parser's process:", err)
	}
	keepPipes(fdRequests, fdAnswers, fdProgram)                                     // fdProgram may not exist
	said, _ := json.Marshal(hello{confine(limits, fileBytes), unreachable(limits)}) // strings and booleans always encode
	in := bufio.NewReader(os.NewFile(fdRequests, "requests"))
	s := &server{
		formats:  formats,
		out:      bufio.NewWriterSize(os.NewFile(fdAnswers, "answers"), 64<<10),
		docs:     map[uint64]*openDoc{},
		filled:   make(chan struct{}, 1),
		recalled: make(chan []byte, 1),
	}
	s.garbage.Every = garbage.EveryOfChild
	s.garbage.Start()
	if errors.Join(s.send(kindHello, append([]byte{protocolVersion}, said...)), s.out.Flush()) != nil {
		return exitProtocol
	}

	// Requests are read concurrently with the work: a closed pipe means that the
	// parent is gone, and then anything still running here is pointless.
	requests := make(chan request)
	go func() {
		var buf []byte
		for {
			kind, body, next, err := readFrame(in, buf)
			buf = next
			if errors.Is(err, io.EOF) {
				os.Exit(exitOK)
			}
			if err == nil && kind == kindFilled {
				select {
				case s.filled <- struct{}{}:
				default: // not requested
					os.Exit(exitProtocol)
				}
				continue
			}
			if err == nil && kind == kindRecalled {
				select {
				case s.recalled <- bytes.Clone(body):
				default: // not requested
					os.Exit(exitProtocol)
				}
				continue
			}
			var req request
			if err != nil || kind != kindRequest || json.Unmarshal(body, &req) != nil {
				os.Exit(exitProtocol)
			}
			requests <- req
		}
	}()
	for req := range requests {
		if code, end := s.handle(req); end {
			return code
		}
	}
	return exitOK
}

type server struct {
	formats  *parser.Registry
	out      *bufio.Writer
	docs     map[uint64]*openDoc
	buf      []byte
	asked    bool // a request has been answered
	filled   chan struct{}
	recalled chan []byte
	garbage  garbage.Collector
}

type openDoc struct {
	file *os.File
	doc  parser.Document
}

func (s *server) send(kind byte, body []byte) error { return writeFrame(s.out, kind, body) }

// sendJSON sends v, or returns err if it is not nil.
func (s *server) sendJSON(kind byte, v any, err error) error {
	if err != nil {
		return err
	}
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.send(kind, body)
}

// handle answers one request. end is true when the process must stop: the pipe is
// broken, or a panic left the parser in an unknown state.
func (s *server) handle(req request) (code int, end bool) {
	before := spent()
	err := s.answer(req)
	s.garbage.Tune()
	took := binary.BigEndian.AppendUint64(nil, uint64((spent() - before).Microseconds()))
	kind, body := byte(kindDone), []byte(nil)
	if err != nil {
		var p *panicError
		kind = kindFailure
		f := sheaf.AsFailure(err, "")
		if errors.As(err, &p) {
			kind, code, end = kindFatal, exitPanic, true
			f = crashed("the parser panicked: " + p.value)
			f.Detail = p.stack
		}
		if body, err = json.Marshal(f); err != nil {
			return exitProtocol, true
		}
	}
	if errors.Join(s.send(kindSpent, took), s.send(kind, body), s.out.Flush()) != nil {
		return exitProtocol, true
	}
	return code, end
}

// spent is the processor time of this process and of the programs it ran.
func spent() time.Duration { return ownTime() + program.Spent() }

type panicError struct{ value, stack string }

func (p *panicError) Error() string { return p.value }

func (s *server) answer(req request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{fmt.Sprint(v), clip(string(debug.Stack()))}
		}
	}()
	if s.asked {
		if _, err := os.Stderr.Write([]byte{outputMark}); err != nil {
			return err
		}
	}
	s.asked = true
	// A request is acknowledged before work begins: a child that dies without this
	// was dead already, and the document is not to blame.
	if err := s.send(kindHello, []byte{protocolVersion}); err != nil {
		return err
	}
	d := s.docs[req.Doc]
	if d == nil { // otherwise both frames leave together: each wakes the parent
		if err := s.out.Flush(); err != nil {
			return err
		}
	}
	for _, id := range req.Close {
		s.closeDoc(id)
	}
	if req.Op == opClose {
		s.closeDoc(req.Doc)
		return nil
	}
	// The parent enforces the deadline: it kills this process.
	ctx := context.Background()
	if req.Readings {
		ctx = parser.WithReadings(ctx, readings{s})
	}
	if d == nil {
		if d, err = s.open(ctx, req); err != nil {
			return err
		}
	}
	if err := errors.Join(s.send(kindOpened, nil), s.out.Flush()); err != nil {
		return err
	}
	switch req.Op {
	case opPlan:
		plan, err := d.doc.Plan(ctx)
		return s.sendJSON(kindPlan, plan, err)
	case opParse:
		left := req.Left
		return d.doc.Parse(ctx, req.Range, func(u sheaf.UnitResult) (err error) {
			if s.buf, left, err = fits(s.buf[:0], &u, left, req.Budget); err != nil {
				return err
			}
			// Flushed one by one: a later unit may kill this process, and what was
			// read before it must have been sent.
			return errors.Join(s.send(kindUnit, s.buf), s.out.Flush())
		})
	case opUnpack:
		u, ok := d.doc.(parser.Unpacker)
		if !ok {
			return sheaf.Fail(sheaf.CategoryBadInput, "no_members", "This kind of file contains no other files.")
		}
		unpacked, err := u.Unpack(ctx, req.N)
		return s.sendJSON(kindUnpacked, unpacked, err)
	case opRender:
		r, ok := d.doc.(parser.Renderer)
		if !ok {
			return sheaf.Fail(sheaf.CategoryBadInput, "no_picture", "This kind of file has no pages to draw.")
		}
		img, mediaType, err := r.Render(ctx, req.N, req.DPI, req.Clip)
		if err != nil {
			return err
		}
		return s.send(kindImage, append(append([]byte(mediaType), 0), img...))
	case opPicture:
		img, err := parser.PictureOf(ctx, d.doc, req.Name, req.N)
		if err != nil {
			return err
		}
		return s.send(kindImage, append([]byte("image/jpeg\x00"), img...))
	}
	return fmt.Errorf("unknown operation %q", req.Op)
}

func (s *server) open(ctx context.Context, req request) (*openDoc, error) {
	format, ok := s.formats.ByID(req.Format)
	if !ok && req.Format == "" {
		format, ok = s.formats.ByMediaType(req.Options.MediaType)
	}
	if !ok {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "unsupported_type", "Files of type %q cannot be read; convert the file to a supported type.", req.Options.MediaType)
	}
	f, err := os.Open(req.Path)
	if err != nil {
		return nil, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be opened: %v.", err)
	}
	if req.Sparse {
		req.Options.Fill = s.fill
	}
	req.Options.Note = s.note
	d, err := format.Open(ctx, f, req.Options)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	s.docs[req.Doc] = &openDoc{f, d}
	return s.docs[req.Doc], nil
}

// fill asks the parent to fetch bytes of a sparse file. A parent that cannot kills
// this process instead of answering.
func (s *server) fill(offset, length int64) {
	body := binary.BigEndian.AppendUint64(nil, uint64(offset))
	body = binary.BigEndian.AppendUint64(body, uint64(length))
	if errors.Join(s.send(kindNeed, body), s.out.Flush()) != nil {
		os.Exit(exitProtocol)
	}
	<-s.filled
}

// readings are those of the parent.
type readings struct{ *server }

// Recall implements parser.Readings.
func (s readings) Recall(key string) []byte {
	if errors.Join(s.send(kindRecall, []byte(key)), s.out.Flush()) != nil {
		os.Exit(exitProtocol)
	}
	return <-s.recalled
}

// Keep implements parser.Readings. If the pipe is broken, sending the answer will
// notice.
func (s readings) Keep(key string, reading []byte) {
	_ = s.send(kindKeep, append(append([]byte(key), 0), reading...))
}

// note sends a message for the log. If the pipe is broken, sending the answer will
// notice.
func (s *server) note(text string) { _ = s.send(kindNote, []byte(clip(text))) }

func (s *server) closeDoc(id uint64) {
	if d, ok := s.docs[id]; ok {
		delete(s.docs, id)
		_ = d.doc.Close() // it was only read
		_ = d.file.Close()
	}
}

// crashed is the failure of a document or unit that crashed the parser.
func crashed(why string) *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryCrash, "parser_crash", "The parser process exited while reading this (%s). Save the file again with the program that created it, or report it.", why)
}

// clip limits a failure's detail to 4 KB: the start, with the reason, and the end,
// with the location.
func clip(s string) string {
	const head, tail = 1 << 10, 3<<10 - 8
	if len(s) <= head+tail {
		return s
	}
	return s[:head] + "\n…\n" + s[len(s)-tail:]
}
