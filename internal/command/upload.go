package command

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sheaf"

	"golang.org/x/sync/errgroup"

	"sheaf/internal/api"
)

const (
	// pieceFile is the size from which a file is announced before it is sent.
	pieceFile = 8 << 20
	// pieceAttempts is how many consecutive interruptions without a byte of
	// progress end an upload.
	pieceAttempts = 8
	pieceMaxWait  = 15 * time.Second
	uploadsAtOnce = 4
)

// delivery is the progress of one command's files to the server.
type delivery struct {
	client  *client
	base    string            // URL path of the dataset
	fields  map[string]string // settings for every file
	known   map[string]known  // uploads of an earlier run, by fingerprint
	files   []source
	jobs    submission
	begun   time.Time
	total   int64 // bytes of all files
	sent    atomic.Int64
	stored  atomic.Int64 // files
	resumed atomic.Int64 // files that an earlier run had uploaded completely
	expires atomic.Int64 // when the first of the stored uploads expires, Unix seconds

	mu       sync.Mutex
	rejected []api.Rejected
	unread   []unread
}

// known is what an earlier run of the command did with a file.
type known struct {
	api.UploadStatus
	joined bool // it is part of a job that takes more files
}

// deliver uploads files, a few at a time, and submits them to a job while others are
// being uploaded, so that reading begins at once. Each upload resumes after a dropped
// connection, even in a later run of the command, and so does the job.
func (c *client) deliver(ctx context.Context, dataset string, files []source, fields map[string]string, job, query string, b *bar) (*delivery, error) {
	d := &delivery{client: c, base: "/v1/datasets/" + url.PathEscape(dataset), fields: fields, files: files, begun: time.Now()}
	d.jobs = submission{client: c, base: d.base, name: job, query: query, room: make(chan struct{}, mostReady)}
	for _, f := range files {
		d.total += f.size
	}
	if err := d.recall(ctx); err != nil {
		return d, err
	}
	sctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	group, gctx := errgroup.WithContext(sctx)
	group.SetLimit(uploadsAtOnce)
	ended := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		for {
			d.show(b)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ended:
				b.end()
				return
			}
		}
	})
	beside.Go(func() {
		if err := d.jobs.run(ctx, ended); err != nil {
			stop(err)
		}
	})
	for i, f := range files {
		if gctx.Err() != nil {
			break
		}
		group.Go(func() error { return d.bring(gctx, i, f) })
	}
	err := group.Wait()
	close(ended)
	beside.Wait()
	if sctx.Err() != nil { // interrupted, or nothing can be submitted
		err = context.Cause(sctx)
	}
	if err != nil {
		return d, err
	}
	return d, d.jobs.finish(ctx)
}

// fewFiles is up to how many files are looked for one by one among the uploads of
// earlier runs.
const fewFiles = 10

// recall finds what an earlier run of the command uploaded, and the jobs that it left
// open.
func (d *delivery) recall(ctx context.Context) error {
	d.known = map[string]known{}
	prints := map[string]bool{}
	for _, f := range d.files {
		if info, err := os.Stat(f.path); err == nil { // otherwise sending it says why
			prints[pieceFingerprint(f.path, info, d.fields)] = true
		}
	}
	queries := []url.Values{{}}
	if len(prints) <= fewFiles {
		queries = nil
		for print := range prints {
			queries = append(queries, url.Values{"fingerprint": {print}})
		}
	}
	for _, q := range queries {
		uploads, _, err := pages[api.UploadStatus](ctx, d.client, d.base+"/uploads", q, paging{limit: mostFiles})
		if err != nil {
			return err
		}
		for _, u := range uploads {
			if old, again := d.known[u.Fingerprint]; u.Hold && prints[u.Fingerprint] && (!again || old.CreatedAt.Before(u.CreatedAt)) {
				d.known[u.Fingerprint] = known{UploadStatus: u}
			}
		}
	}
	return d.rejoin(ctx)
}

// rejoin goes on with the jobs that an earlier run opened and did not close. A file
// that is part of another job was submitted by a run that ended, and is sent again.
func (d *delivery) rejoin(ctx context.Context) error {
	open := map[string]bool{}
	for print, u := range d.known {
		if u.JobID == "" {
			continue
		}
		is, asked := open[u.JobID]
		if !asked {
			job, err := d.client.job(ctx, u.JobID, "")
			if err != nil && !isMissing(err) {
				return err
			}
			if is = err == nil && job.OpenUntil.After(time.Now()); is {
				d.jobs.open = append(d.jobs.open, &openJob{job: job, files: job.Documents.Total, full: job.Documents.Total >= sheaf.MaxJobDocuments})
			}
			open[u.JobID] = is
		}
		if u.joined = is; is {
			d.known[print] = u
		} else {
			delete(d.known, print)
		}
	}
	return nil
}

// bring uploads one file. A file that cannot be read, or that the server rejects,
// is recorded and does not stop the others.
func (d *delivery) bring(ctx context.Context, n int, f source) error {
	select {
	case d.jobs.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	up, joined, err := d.send(ctx, f)
	if err != nil || joined {
		<-d.jobs.room
	}
	if err == nil {
		d.stored.Add(1)
		if joined {
			return nil
		}
		d.jobs.add(n, up.ID)
		for at := up.ExpiresAt.Unix(); ; {
			was := d.expires.Load()
			if was != 0 && was <= at || d.expires.CompareAndSwap(was, at) {
				break
			}
		}
		return nil
	}
	d.sent.Add(f.size)
	if a, ok := errors.AsType[*answerError](err); ok {
		switch a.status {
		case 400, 413, 415, 422: // specific to this file
			d.mu.Lock()
			d.rejected = append(d.rejected, api.Rejected{Name: f.name, Failure: sheaf.Failure{Code: a.code, Message: strings.TrimSuffix(a.msg, " ("+a.code+")")}})
			d.mu.Unlock()
			return nil
		}
		return fmt.Errorf("%s: %w", f.name, err)
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		d.mu.Lock()
		d.unread = append(d.unread, unreadFile(f.path, p))
		d.mu.Unlock()
		return nil
	}
	return fmt.Errorf("%s: %w", f.name, err)
}

// show draws the progress of the files.
func (d *delivery) show(b *bar) {
	sent, total, stored := min(d.sent.Load(), d.total), d.total, int(d.stored.Load())
	share := float64(stored) / float64(max(len(d.files), 1))
	if total > 0 {
		share = (share + float64(sent)/float64(total)) / 2 // many small files take long, and so do a few large ones
	}
	line := fmt.Sprintf("uploading: %s of %s, %s of %s", number(stored), count(len(d.files), "file"), size(sent), size(total))
	if took := time.Since(d.begun).Seconds(); took > 1 && share > 0.01 && share < 1 {
		line += fmt.Sprintf(", %s files/s, about %s left", rateOf(float64(stored)/took), roughly(took/share-took))
	}
	b.show(share, "%s", line)
}

// waiting says what an unfinished delivery leaves on the server.
func (d *delivery) waiting() string {
	stored, joined := int(d.stored.Load()), d.jobs.joined()
	if stored == 0 && joined == 0 {
		return "Nothing was stored and nothing was submitted."
	}
	if joined == 0 {
		return fmt.Sprintf("%s of %s are stored at the server until %s and not submitted yet. Run the same command again to resume; what is stored is not sent again.",
			number(stored), count(len(d.files), "file"), moment(time.Unix(d.expires.Load(), 0)))
	}
	last := d.jobs.open[len(d.jobs.open)-1].job
	return fmt.Sprintf("%s of %s are stored at the server, %s of them in %s. Run the same command again before %s to resume; what is stored is not sent again. `sheaf jobs close %s` ends the job with what it has, `sheaf jobs cancel %s` stops it.",
		number(stored), count(len(d.files), "file"), number(min(joined, stored)), d.jobs.inWords(), moment(last.OpenUntil), last.ID, last.ID)
}

// send uploads one file and returns its upload, and whether an earlier run submitted
// it.
func (d *delivery) send(ctx context.Context, f source) (up *api.UploadStatus, joined bool, err error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, false, err
	}
	print := pieceFingerprint(f.path, info, d.fields)
	if up, ok := d.known[print]; ok && up.Complete && up.Size == info.Size() {
		d.resumed.Add(1)
		d.sent.Add(info.Size())
		return &up.UploadStatus, up.joined, nil
	}
	up = &api.UploadStatus{}
	if _, begun := d.known[print]; !begun && info.Size() < pieceFile {
		err := d.begin(ctx, up, file, info.Size(), f.name, print)
		if err == nil && up.Complete || err != nil && !passing(err) {
			return up, false, err
		}
	}
	for broken := 0; ; {
		before := up.Offset
		err := d.onePiece(ctx, up, file, info.Size(), f.name, print)
		if err == nil && up.Complete {
			return up, false, nil
		}
		if up.Offset > before {
			broken = 0
		} else {
			broken++
		}
		if err != nil && (ctx.Err() != nil || broken > pieceAttempts || !passing(err)) {
			return nil, false, err
		}
		if err := pause(ctx, broken); err != nil {
			return nil, false, err
		}
	}
}

// pause waits before the next attempt.
func pause(ctx context.Context, attempts int) error {
	select {
	case <-time.After(min(time.Second<<max(attempts-1, 0), pieceMaxWait)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pieceFingerprint identifies this file on this machine.
func pieceFingerprint(path string, info fs.FileInfo, fields map[string]string) string {
	host, _ := os.Hostname() // without one, the path has to suffice
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	settings, _ := json.Marshal(fields) // strings always encode
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d\x00%s", host, abs, info.Size(), info.ModTime().UnixNano(), settings))
	return hex.EncodeToString(sum[:])
}

// begin announces an upload. A small file is sent along with it, so that many of
// them take one request each.
func (d *delivery) begin(ctx context.Context, up *api.UploadStatus, file *os.File, size int64, name, print string) error {
	about := [][2]string{{"filename", name}, {"hold", "true"}, {"fingerprint", print}}
	for k, v := range d.fields {
		about = append(about, [2]string{k, v})
	}
	pairs := make([]string, len(about))
	for i, kv := range about {
		pairs[i] = kv[0] + " " + base64.StdEncoding.EncodeToString([]byte(kv[1]))
	}
	header := map[string]string{"Upload-Length": strconv.FormatInt(size, 10), "Upload-Metadata": strings.Join(pairs, ",")}
	var body io.Reader
	length := int64(0)
	if size < pieceFile {
		header["Content-Type"] = "application/offset+octet-stream"
		body, length = io.NewSectionReader(file, 0, size), size
	}
	resp, err := d.tus(ctx, http.MethodPost, d.base+"/uploads", body, length, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(up); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return nil
}

// onePiece finds or starts the upload and sends what is missing.
func (d *delivery) onePiece(ctx context.Context, up *api.UploadStatus, file *os.File, size int64, name, print string) error {
	var list api.List[api.UploadStatus]
	if err := d.client.call(ctx, http.MethodGet, d.base+"/uploads?fingerprint="+print, nil, &list); err != nil {
		return err
	}
	up.ID = ""
	for _, u := range list.Items {
		if u.JobID == "" && u.Hold && u.Size == size {
			*up = u
			break
		}
	}
	if up.ID == "" {
		if err := d.begin(ctx, up, file, size, name, print); err != nil {
			return err
		}
	}
	if up.Complete {
		return nil
	}
	resp, err := d.tus(ctx, http.MethodPatch, d.base+"/uploads/"+up.ID, io.NewSectionReader(file, up.Offset, size-up.Offset), size-up.Offset,
		map[string]string{"Content-Type": "application/offset+octet-stream", "Upload-Offset": strconv.FormatInt(up.Offset, 10)})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	up.Offset, err = strconv.ParseInt(resp.Header.Get("Upload-Offset"), 10, 64)
	up.Complete = up.Offset == size
	return err
}

// tus sends a tus request.
func (d *delivery) tus(ctx context.Context, method, path string, body io.Reader, length int64, header map[string]string) (*http.Response, error) {
	if body != nil {
		body = &counted{body, &d.sent}
	}
	req, err := http.NewRequestWithContext(ctx, method, d.client.base+path, body)
	if err != nil {
		return nil, err
	}
	if req.ContentLength = length; length == 0 {
		req.Body = http.NoBody
	}
	req.Header.Set("Tus-Resumable", "1.0.0")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	return d.client.send(req)
}

// counted adds the bytes read from it to n.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// passing reports whether retrying may succeed.
func passing(err error) bool {
	if p, ok := errors.AsType[*answerError](err); ok {
		if p.code == sheaf.CodeLimit {
			return false // a full quota stays full
		}
		return p.status >= 500 || p.status == 429 || p.status == 409 || p.status == 404 || p.code == "upload_broke_off"
	}
	return true // no answer at all
}
