package executor

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"sheaf"
)

// outlines caches the headings of ranges that this process read recently, so that
// most ranges start under the right ones at once and need no stitch. A miss costs a
// stitch, never a wrong path: finalize compares.
type outlines struct {
	store Store

	mu    sync.Mutex
	docs  map[string]*docOutline // by document and generation
	order []string               // in order of first use
	bytes int                    // of all headings
}

type docOutline struct {
	ranges map[int]*readRange // by first unit
	asked  time.Time          // when the store was last read for it
	bytes  int                // of its headings
}

// readRange is a range that is being or has been read.
type readRange struct {
	from, to int
	headings []sheaf.Heading
	known    bool          // whether headings is set
	over     chan struct{} // closed when it is, or when it never will be
}

const (
	maxOutlined = 64              // maximum documents
	maxOutline  = 64 << 20        // maximum bytes of headings
	outlineWait = 2 * time.Second // maximum wait for earlier ranges being read in this process
	outlineAsk  = time.Second     // minimum interval between store reads for one document
)

func newOutlines(store Store) *outlines {
	return &outlines{store: store, docs: map[string]*docOutline{}}
}

func outlineKey(t *sheaf.Task) string { return t.DocumentID + "/" + strconv.Itoa(t.Generation) }

// of returns a document's entry; the caller holds mu.
func (o *outlines) of(key string) *docOutline {
	d := o.docs[key]
	if d == nil {
		if len(o.order) == maxOutlined {
			o.drop(o.order[0])
		}
		d = &docOutline{ranges: map[int]*readRange{}}
		o.docs[key], o.order = d, append(o.order, key)
	}
	return d
}

// drop forgets an entry; the caller holds mu.
func (o *outlines) drop(key string) {
	o.bytes -= o.docs[key].bytes
	delete(o.docs, key)
	o.order = slices.DeleteFunc(o.order, func(k string) bool { return k == key })
}

// know records the headings of a range of a document, and drops the oldest entries
// when the total is too large; the caller holds mu.
func (o *outlines) know(key string, r *readRange, headings []sheaf.Heading) {
	r.headings, r.known = headings, true
	d := o.docs[key]
	if d == nil || d.ranges[r.from] != r {
		return // dropped meanwhile
	}
	n := rangeBytes
	for _, h := range headings {
		n += headingBytes + len(h.Title)
	}
	d.bytes += n
	o.bytes += n
	for o.bytes > maxOutline && len(o.order) > 0 {
		o.drop(o.order[0])
	}
}

// Size of a range without headings, and of a heading without its title.
const (
	rangeBytes   = 256
	headingBytes = int(unsafe.Sizeof(sheaf.Heading{}))
)

// documents lists the documents with entries.
func (o *outlines) documents() (ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range o.order {
		id, _, _ := strings.Cut(key, "/")
		ids = append(ids, id)
	}
	return ids
}

// forget drops the entries of documents.
func (o *outlines) forget(ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range slices.Clone(o.order) {
		if id, _, _ := strings.Cut(key, "/"); slices.Contains(ids, id) {
			o.drop(key)
		}
	}
}

// begin marks a task's range as being read. end must be called, with its headings or
// with known false.
func (o *outlines) begin(t *sheaf.Task) (end func(headings []sheaf.Heading, known bool)) {
	r := &readRange{from: t.Range.From, to: t.Range.To, over: make(chan struct{})}
	o.mu.Lock()
	o.of(outlineKey(t)).ranges[t.Range.From] = r
	o.mu.Unlock()
	var once sync.Once
	return func(headings []sheaf.Heading, known bool) {
		once.Do(func() {
			if known {
				o.mu.Lock()
				o.know(outlineKey(t), r, headings)
				o.mu.Unlock()
			}
			close(r.over)
		})
	}
}

// planned records what the ranges that a plan reuses from an earlier version
// reported, for ranges that are read again here, so that the store need not be
// asked.
func (o *outlines) planned(t *sheaf.Task, tasks []sheaf.NewTask) {
	if !slices.ContainsFunc(tasks, func(n sheaf.NewTask) bool { return n.Done == nil }) {
		return
	}
	over := make(chan struct{})
	close(over)
	key := outlineKey(t)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range tasks {
		if n.Done != nil && n.Done.Outline != nil {
			r := &readRange{from: n.Range.From, to: n.Range.To, over: over}
			o.of(key).ranges[r.from] = r
			o.know(key, r, n.Done.Outline.Headings)
		}
	}
}

// before returns the headings in force where the task's range starts, as far as they
// are known now.
func (o *outlines) before(ctx context.Context, t *sheaf.Task) []sheaf.Heading {
	timeout := time.NewTimer(outlineWait)
	defer timeout.Stop()
	for next := 1; next < t.Range.From; {
		r := o.at(ctx, t, next)
		if r == nil {
			break
		}
		select {
		case <-r.over:
		case <-timeout.C:
			timeout.Reset(0)
		case <-ctx.Done():
			return nil
		}
		next = r.to + 1
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []sheaf.Heading
	d := o.of(outlineKey(t))
	var froms []int
	for from, r := range d.ranges {
		if r.known && from < t.Range.From {
			froms = append(froms, from)
		}
	}
	slices.Sort(froms)
	for _, from := range froms {
		for _, h := range d.ranges[from].headings {
			if h.Page < t.Range.From {
				all = append(all, h)
			}
		}
	}
	return sheaf.Under(nil, all)
}

// at returns the range that starts at a unit, or nil when it is unknown. What other
// processes have read is in the store.
func (o *outlines) at(ctx context.Context, t *sheaf.Task, from int) *readRange {
	key := outlineKey(t)
	o.mu.Lock()
	d := o.of(key)
	r, ask := d.ranges[from], time.Since(d.asked) > outlineAsk
	if r == nil && ask {
		d.asked = time.Now()
	}
	o.mu.Unlock()
	if r != nil || !ask {
		return r
	}
	outlines, err := o.store.RangeOutlines(ctx, t.DocumentID, t.Generation)
	if err != nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	over := make(chan struct{})
	close(over)
	for _, done := range outlines {
		if d.ranges[done.Range.From] == nil {
			r := &readRange{from: done.Range.From, to: done.Range.To, over: over}
			d.ranges[r.from] = r
			o.know(key, r, done.Headings)
		}
	}
	return d.ranges[from]
}
