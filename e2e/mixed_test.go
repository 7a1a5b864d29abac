package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// Files may go to and come from the blob store without passing the server.
func TestDirectUploadAndDownload(t *testing.T) {
	endpoint := engine(t, "SHEAF_TEST_S3_ENDPOINT")
	s := start(t, func(c *config.Config) {
		c.Blob.Driver, c.Blob.Endpoint, c.Blob.Bucket = "s3", endpoint, "direct"+sheaf.NewID()[20:]
		c.Blob.AccessKey, c.Blob.SecretKey = config.Secret(os.Getenv("SHEAF_TEST_S3_ACCESS_KEY")), config.Secret(os.Getenv("SHEAF_TEST_S3_SECRET_KEY"))
	})
	const all = "/v1/datasets/default/uploads"
	text := "# Herons\n\nHerons wait in shallow water until something moves.\n"
	resp, b := s.request("POST", all, "", "Tus-Resumable", "1.0.0", "Upload-Length", fmt.Sprint(len(text)), "Upload-Metadata", "filename aGVyb25zLm1k") // herons.md
	up := decodeAs[api.UploadStatus](t, b)
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s", resp.Status, b)
	}
	var direct api.DirectUpload
	s.post(all+"/"+up.ID+":presign", nil, &direct)
	if resp, b := s.request("POST", all+"/"+up.ID+":complete", ""); resp.StatusCode != http.StatusConflict {
		t.Errorf("complete before anything was sent: %s %s", resp.Status, b)
	}
	put := func(body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), direct.Method, direct.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if status := put(text + "and more"); status != http.StatusForbidden {
		t.Errorf("more bytes than were announced: %d", status)
	}
	if status := put(text); status != http.StatusOK {
		t.Fatalf("the address answers %d", status)
	}
	s.post(all+"/"+up.ID+":complete", nil, &up)
	if up.JobID == "" || !up.Complete {
		t.Fatalf("%+v", up)
	}
	job := up.JobID
	s.post(all+"/"+up.ID+":complete", nil, &up)
	if up.JobID != job {
		t.Errorf("the repeated call made job %s, the first %s", up.JobID, job)
	}
	s.ended(job)
	d := s.doc(up.DocumentID)
	mustState(t, d, sheaf.DocSucceeded)
	sum := sha256.Sum256([]byte(text))
	if d.SHA256 != hex.EncodeToString(sum[:]) || !s.finds("shallow water") {
		t.Errorf("hash %s; the text is not searchable", d.SHA256)
	}
	// A stale write to the address is rejected.
	if put(strings.ToUpper(text)); s.doc(d.ID).SHA256 != d.SHA256 {
		t.Error("a late PUT changed the document")
	}
	resp2, err := http.Get(s.base + "/v1/datasets/default/documents/" + d.ID + "/content?redirect=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp2.Body.Close()
	got, err := io.ReadAll(resp2.Body)
	if err != nil || string(got) != text || !strings.Contains(endpoint, resp2.Request.URL.Host) || !strings.Contains(resp2.Header.Get("Content-Disposition"), "herons.md") {
		t.Errorf("%q from %s, %v, %v", got, resp2.Request.URL.Host, resp2.Header, err)
	}
}

func TestDirectUploadNeedsABlobStoreOfItsOwn(t *testing.T) {
	s := start(t, nil)
	_, b := s.request("POST", "/v1/datasets/default/uploads", "", "Tus-Resumable", "1.0.0", "Upload-Length", "5", "Upload-Metadata", "filename YQ==")
	up := decodeAs[api.UploadStatus](t, b)
	if resp, b := s.request("POST", "/v1/datasets/default/uploads/"+up.ID+":presign", ""); resp.StatusCode/100 != 4 || !bytes.Contains(b, []byte("no_direct_upload")) {
		t.Errorf("%s %s", resp.Status, b)
	}
}

// redisServer is a Redis of the test's own, that it can kill.
type redisServer struct {
	t       *testing.T
	addr    string
	command []string
	cmd     *exec.Cmd
}

// newRedisServer starts command, or a redis-server that saves nothing, on a
// free port.
func newRedisServer(t *testing.T, command ...string) *redisServer {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &redisServer{t: t, addr: ln.Addr().String(), command: command}
	if len(command) == 0 {
		r.command = []string{"redis-server", "--save", ""}
	}
	_ = ln.Close()
	t.Cleanup(r.kill)
	r.start()
	return r
}

func (r *redisServer) start() {
	r.t.Helper()
	_, port, _ := net.SplitHostPort(r.addr)
	r.cmd = exec.Command(r.command[0], append(slices.Clone(r.command[1:]), "--port", port, "--bind", "127.0.0.1", "--dir", r.t.TempDir())...)
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	c := r.client()
	defer c.Close()
	waitFor(r.t, "Redis to answer", func() bool { return c.Ping(r.t.Context()).Err() == nil })
}

func (r *redisServer) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.addr, DialTimeout: time.Second, MaxRetries: -1})
}

func (r *redisServer) kill() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// A lane with a Redis of its own has its streams there alone, goes on while the
// other Redis is away, and the other lanes when that is back.
func TestLaneWithARedisOfItsOwn(t *testing.T) {
	t.Parallel()                       // it mostly waits
	engine(t, "SHEAF_TEST_REDIS_ADDR") // where Redis can be had
	common, own := newRedisServer(t), newRedisServer(t)
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	cfg.Queue.Driver, cfg.Queue.Addrs, cfg.Queue.Prefix = "redis", []string{common.addr}, "mixed:"
	cfg.Queue.Interactive.Addrs = []string{own.addr}
	var log safeBuffer
	s := startLogging(t, cfg, "info", &log)
	// fedAgain are the lanes that the keeper found empty of memory, each time.
	fedAgain := func() (out []string) {
		for _, l := range log.lines(t) {
			if l["msg"] == "the queue is new or has lost its memory; feeding it again" {
				out = append(out, fmt.Sprint(l["lanes"]))
			}
		}
		return out
	}
	send := func(name, lane string) api.SubmitAnswer {
		t.Helper()
		resp, b := s.request("POST", "/v1/datasets/default/documents?lane="+lane+"&name="+name+".md", "# "+name+"\n\nAll about "+name+".\n", "Content-Type", "text/markdown")
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("%s %s", resp.Status, b)
		}
		return decodeAs[api.SubmitAnswer](t, b)
	}
	for lane, name := range map[string]string{"1": "egrets", "2": "storks"} {
		if job := s.ended(send(name, lane).Job.ID); job.State != sheaf.DocSucceeded {
			t.Fatalf("lane %s ended %s", lane, job.State)
		}
	}
	streams := func(r *redisServer, lane string) bool {
		c := r.client()
		defer c.Close()
		keys, err := c.Keys(t.Context(), "mixed:*").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if strings.HasSuffix(k, ":p"+lane) {
				return true
			}
		}
		return false
	}
	if !streams(own, "1") || streams(own, "2") || streams(common, "1") || !streams(common, "2") {
		t.Fatal("the streams are not where their lanes' Redis is")
	}
	common.kill()
	waiting := send("bitterns", "2")
	for _, name := range []string{"cranes", "herons"} { // whose plan, pages and end are tasks one after the other
		if job := s.ended(send(name, "1").Job.ID); job.State != sheaf.DocSucceeded {
			t.Errorf("while the other Redis was away an interactive job ended %s", job.State)
		}
	}
	var job sheaf.Job
	if s.get("/v1/jobs/"+waiting.Job.ID, &job); job.State.Terminal() {
		t.Errorf("the job of the lane whose Redis is away is %s", job.State)
	}
	common.start()
	if job := s.ended(waiting.Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("after Redis came back the job ended %s", job.State)
	}
	own.kill()
	waiting = send("avocets", "1")
	if job := s.ended(send("godwits", "2").Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("while the interactive lane's Redis was away another job ended %s", job.State)
	}
	own.start()
	if job := s.ended(waiting.Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("after the interactive lane's Redis came back its job ended %s", job.State)
	}
	// Of each loss only the lanes of that Redis are fed again.
	if got, want := strings.Join(fedAgain(), " "), "[1 2 3] [2 3] [1]"; got != want {
		t.Errorf("lanes that were fed again: %s, want %s", got, want)
	}
}
