package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/taskstore"
)

// server is the real binary, running all roles on a data folder.
type server struct {
	dsn    string // of a fleet's store
	cmd    *exec.Cmd
	url    string
	data   string
	log    string // output file
	exited chan struct{}
}

// start runs `sheaf up` and waits until it reports its address.
func (b *bench) start(ctx context.Context, data string) (*server, error) {
	s, err := b.spawn(data, nil, "up")
	if err != nil {
		return nil, err
	}
	return s, s.listening(ctx)
}

// spawn runs one role of the service on a data folder, with env added to the
// environment of this process.
func (b *bench) spawn(data string, env []string, role string) (*server, error) {
	s := &server{data: data, log: data + ".log", exited: make(chan struct{})}
	logFile, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	args := []string{role, "--data-dir", data, "--set", "parser.tesseract=", "--set", "parser.soffice="}
	if role == "up" || role == "serve" {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	s.cmd = exec.Command(b.bin, args...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = logFile, logFile
	_ = os.Remove(filepath.Join(data, "server.json")) // from an earlier start
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s %s: %w", b.bin, role, err)
	}
	go func() { _ = s.cmd.Wait(); close(s.exited) }() // its state tells how it ended
	return s, nil
}

// listening waits until the service reports its address; one that does not is stopped.
func (s *server) listening(ctx context.Context) error {
	deadline := time.After(30 * time.Second)
	for {
		var at struct{ URL string }
		if text, err := os.ReadFile(filepath.Join(s.data, "server.json")); err == nil && json.Unmarshal(text, &at) == nil && at.URL != "" {
			s.url = at.URL
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-s.exited:
			return s.broken("the service ended while it started")
		case <-deadline:
			s.stop()
			return s.broken("the service did not start within 30 s")
		case <-ctx.Done():
			s.stop()
			return ctx.Err()
		}
	}
}

func (s *server) broken(what string) error {
	out, _ := os.ReadFile(s.log)
	return fmt.Errorf("%s; it said: %s", what, bytes.TrimSpace(out[max(0, len(out)-2000):]))
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// stop ends the service and waits for it, at most 40 s.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(40 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

// discard ends the service. Its data is moved away, and removed when the bench ends
// unless there is much of it: for minutes, ext4 looks through the inodes of deleted
// files whenever it creates one, which took 4 % of the CPU of the next service.
func (s *server) discard() {
	s.stop()
	_ = os.Remove(s.log)
	if folderBytes(s.data) > maxKept || os.Rename(s.data, fmt.Sprintf("%s.ended-%d", s.data, s.pid())) != nil {
		_ = os.RemoveAll(s.data)
	}
}

// maxKept is how many bytes a service may leave until the bench ends.
const maxKept = 128 << 20

func folderBytes(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil // what cannot be read is not counted
	})
	return sum
}

// call sends JSON and decodes the answer into out, which may be nil.
func (s *server) call(ctx context.Context, method, path string, body, out any) error {
	var r io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(text)
	}
	return s.send(ctx, method, path, "application/json", r, out)
}

func (s *server) send(ctx context.Context, method, path, contentType string, body io.Reader, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// file is a file to upload.
type file struct {
	name string
	open func() (io.ReadCloser, error)
}

func onDisk(path string) file {
	return file{name: filepath.Base(path), open: func() (io.ReadCloser, error) { return os.Open(path) }}
}

// upload sends files in one request, streaming, and returns their job.
func (s *server) upload(ctx context.Context, config sheaf.ParseConfig, files ...file) (*sheaf.Job, error) {
	return s.join(ctx, "", config, files...)
}

// join is upload into an open job, or into a new one if the id is empty.
func (s *server) join(ctx context.Context, job string, config sheaf.ParseConfig, files ...file) (*sheaf.Job, error) {
	pr, pw := io.Pipe()
	defer pr.Close()
	w := multipart.NewWriter(pw)
	go func() { pw.CloseWithError(writeParts(w, config, files)) }()
	var answer api.SubmitAnswer
	path := "/v1/datasets/default/documents"
	if job != "" {
		path += "?" + url.Values{"job": {job}}.Encode()
	}
	if err := s.send(ctx, http.MethodPost, path, w.FormDataContentType(), pr, &answer); err != nil {
		return nil, err
	}
	if len(answer.Rejected) > 0 {
		return nil, fmt.Errorf("%s was refused: %s", answer.Rejected[0].Name, answer.Rejected[0].Failure.Message)
	}
	if answer.Job == nil {
		return nil, errors.New("the upload made no job")
	}
	return answer.Job, nil
}

func writeParts(w *multipart.Writer, config sheaf.ParseConfig, files []file) error {
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := w.WriteField("parser_config", string(text)); err != nil {
		return err
	}
	for _, f := range files {
		part, err := w.CreateFormFile("file", f.name)
		if err != nil {
			return err
		}
		r, err := f.open()
		if err != nil {
			return err
		}
		_, err = io.Copy(part, r)
		_ = r.Close()
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// ended waits for the end of a job, as a waiting client does.
func (s *server) ended(ctx context.Context, id string) (*sheaf.Job, error) {
	for {
		var job sheaf.Job
		if err := s.call(ctx, http.MethodGet, "/v1/jobs/"+id+"?wait=20s", nil, &job); err != nil {
			select {
			case <-s.exited:
				return nil, s.broken("the service ended at work")
			default:
				return nil, err
			}
		}
		if job.State.Terminal() {
			return &job, nil
		}
	}
}

// why returns the first failure of a job.
func (s *server) why(ctx context.Context, id string) string {
	var list struct {
		Items []taskstore.JobError `json:"items"`
	}
	if err := s.call(ctx, http.MethodGet, "/v1/jobs/"+id+"/errors", nil, &list); err != nil {
		return err.Error()
	}
	if len(list.Items) == 0 {
		return "no failure is listed"
	}
	return list.Items[0].Failure.Message
}
