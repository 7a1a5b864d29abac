package command

import (
	"cmp"
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
	"slices"
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
	base    string                      // URL path of the dataset's uploads
	fields  map[string]string           // settings for every file
	known   map[string]api.UploadStatus // uploads of an earlier run, by fingerprint
	files   []source
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

// deliver uploads files, a few at a time. Each upload resumes after a dropped
// connection, even in a later run of the command. It returns their ids in file
// order, "" for those not accepted.
func (c *client) deliver(ctx context.Context, dataset string, files []source, fields map[string]string, b *bar) (*delivery, []string, error) {
	d := &delivery{client: c, base: "/v1/datasets/" + url.PathEscape(dataset) + "/uploads", fields: fields, files: files, begun: time.Now()}
	for _, f := range files {
		d.total += f.size
	}
	if err := d.recall(ctx); err != nil {
		return d, nil, err
	}
	ids := make([]string, len(files))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(uploadsAtOnce)
	shown := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(shown)
		for {
			d.show(b)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-stop:
				b.end()
				return
			}
		}
	}()
	for i, f := range files {
		if gctx.Err() != nil {
			break
		}
		group.Go(func() error {
			id, err := d.bring(gctx, f)
			if err != nil {
				return err
			}
			ids[i] = id
			return nil
		})
	}
	err := group.Wait()
	close(stop)
	<-shown
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return d, ids, err
}

// recall finds what an earlier run of the command uploaded but did not submit.
func (d *delivery) recall(ctx context.Context) error {
	d.known = map[string]api.UploadStatus{}
	q := url.Values{"limit": {"1000"}}
	for range mostFiles / 1000 {
		var page api.List[api.UploadStatus]
		if err := d.client.call(ctx, http.MethodGet, d.base+"?"+q.Encode(), nil, &page); err != nil {
			return err
		}
		for _, u := range page.Items {
			if u.Hold && u.JobID == "" && u.Fingerprint != "" {
				d.known[u.Fingerprint] = u
			}
		}
		if page.NextCursor == nil {
			break
		}
		q.Set("cursor", *page.NextCursor)
	}
	return nil
}

// bring uploads one file. A file that cannot be read, or that the server rejects,
// is recorded and does not stop the others.
func (d *delivery) bring(ctx context.Context, f source) (id string, err error) {
	up, err := d.send(ctx, f)
	if err == nil {
		d.stored.Add(1)
		for at := up.ExpiresAt.Unix(); ; {
			was := d.expires.Load()
			if was != 0 && was <= at || d.expires.CompareAndSwap(was, at) {
				break
			}
		}
		return up.ID, nil
	}
	d.sent.Add(f.size)
	if a, ok := errors.AsType[*answerError](err); ok {
		switch a.status {
		case 400, 413, 415, 422: // specific to this file
			d.mu.Lock()
			d.rejected = append(d.rejected, api.Rejected{Name: f.name, Failure: sheaf.Failure{Code: a.code, Message: strings.TrimSuffix(a.msg, " ("+a.code+")")}})
			d.mu.Unlock()
			return "", nil
		}
		return "", fmt.Errorf("%s: %w", f.name, err)
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		d.mu.Lock()
		d.unread = append(d.unread, unreadFile(f.path, p))
		d.mu.Unlock()
		return "", nil
	}
	return "", fmt.Errorf("%s: %w", f.name, err)
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
		line += fmt.Sprintf(", %.3g files/s, about %s left", float64(stored)/took, roughly(took/share-took))
	}
	b.show(share, "%s", line)
}

// waiting says what an unfinished delivery leaves on the server.
func (d *delivery) waiting() string {
	if d.stored.Load() == 0 {
		return "Nothing was stored and nothing was submitted."
	}
	return fmt.Sprintf("%s of %s are stored at the server until %s and not submitted yet. Run the same command again to resume; what is stored is not sent again.",
		number(int(d.stored.Load())), count(len(d.files), "file"), time.Unix(d.expires.Load(), 0).Local().Format("2006-01-02 15:04"))
}

// submitUploads turns uploads into documents under one job, or as few as the server
// allows. What exceeds one request is added to an open job, which is closed at the
// end, even after an error: it then ends with what it has.
func (c *client) submitUploads(ctx context.Context, dataset, name string, ids []string, query string) (answers []*api.SubmitAnswer, err error) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	for some := range slices.Chunk(ids, sheaf.MaxJobDocuments) {
		answer, err := c.submitJob(ctx, dataset, name, some, query)
		if answer != nil {
			answers = append(answers, answer)
		}
		if err != nil {
			return answers, err
		}
	}
	return answers, nil
}

func (c *client) submitJob(ctx context.Context, dataset, name string, ids []string, query string) (*api.SubmitAnswer, error) {
	base := "/v1/datasets/" + url.PathEscape(dataset)
	sum := &api.SubmitAnswer{}
	if len(ids) <= api.MaxSubmit && name == "" {
		return sum, c.call(ctx, http.MethodPost, base+"/uploads:submit"+query, map[string]any{"ids": ids}, sum)
	}
	var job sheaf.Job
	if err := c.call(ctx, http.MethodPost, base+"/jobs", map[string]any{"name": name}, &job); err != nil {
		return nil, err
	}
	var failed error
	for some := range slices.Chunk(ids, api.MaxSubmit) {
		var answer api.SubmitAnswer
		if failed = c.call(ctx, http.MethodPost, base+"/uploads:submit"+query, map[string]any{"ids": some, "job": job.ID}, &answer); failed != nil {
			break
		}
		sum.Documents, sum.Rejected = append(sum.Documents, answer.Documents...), append(sum.Rejected, answer.Rejected...)
	}
	if err := c.call(ctx, http.MethodPost, "/v1/jobs/"+job.ID+":close", nil, &job); err != nil {
		failed = cmp.Or(failed, err)
	}
	if len(sum.Documents) > 0 {
		sum.Job = &job
	}
	return sum, failed
}

// send uploads one file and returns its upload.
func (d *delivery) send(ctx context.Context, f source) (*api.UploadStatus, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	print := pieceFingerprint(f.path, info, d.fields)
	if up, ok := d.known[print]; ok && up.Complete && up.Size == info.Size() {
		d.resumed.Add(1)
		d.sent.Add(info.Size())
		return &up, nil
	}
	up := &api.UploadStatus{}
	if _, begun := d.known[print]; !begun && info.Size() < pieceFile {
		err := d.begin(ctx, up, file, info.Size(), f.name, print)
		if err == nil && up.Complete || err != nil && !passing(err) {
			return up, err
		}
	}
	for broken := 0; ; {
		before := up.Offset
		err := d.onePiece(ctx, up, file, info.Size(), f.name, print)
		if err == nil && up.Complete {
			return up, nil
		}
		if up.Offset > before {
			broken = 0
		} else {
			broken++
		}
		if err != nil && (ctx.Err() != nil || broken > pieceAttempts || !passing(err)) {
			return nil, err
		}
		select {
		case <-time.After(min(time.Second<<max(broken-1, 0), pieceMaxWait)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
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
	resp, err := d.tus(ctx, http.MethodPost, d.base, body, length, header)
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
	if err := d.client.call(ctx, http.MethodGet, d.base+"?fingerprint="+print, nil, &list); err != nil {
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
	resp, err := d.tus(ctx, http.MethodPatch, d.base+"/"+up.ID, io.NewSectionReader(file, up.Offset, size-up.Offset), size-up.Offset,
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
