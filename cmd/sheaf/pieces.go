package main

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
	"time"

	"sheaf/internal/api"
)

const (
	// pieceFile is the size from which a file is sent so that it can go on
	// after a break.
	pieceFile = 8 << 20
	// pieceAttempts is how many breaks in a row, with no byte between them,
	// end an upload.
	pieceAttempts = 8
	pieceMaxWait  = 15 * time.Second
)

func resumable(s source) bool { return s.path != "" && s.size >= pieceFile }

// submitPieces uploads files so that each goes on where it stopped when the
// line breaks, also in another run of the command, and submits them as one job.
func (c *client) submitPieces(ctx context.Context, dataset string, files []source, fields map[string]string) (*api.SubmitAnswer, error) {
	base := "/v1/datasets/" + url.PathEscape(dataset) + "/uploads"
	var ids []string
	for _, f := range files {
		id, err := c.sendPieces(ctx, base, f, fields)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		ids = append(ids, id)
	}
	var answer api.SubmitAnswer
	if err := c.call(ctx, http.MethodPost, base+":submit", map[string]any{"ids": ids}, &answer); err != nil {
		return nil, err
	}
	if answer.Job == nil {
		return nil, fmt.Errorf("not one file was taken; %s: %s", answer.Rejected[0].Name, answer.Rejected[0].Failure.Message)
	}
	return &answer, nil
}

// sendPieces brings one file to the server and returns the upload's id.
func (c *client) sendPieces(ctx context.Context, base string, f source, fields map[string]string) (string, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	print := pieceFingerprint(f.path, info, fields)
	var up api.UploadStatus
	for broken := 0; ; {
		before := up.Offset
		err := c.onePiece(ctx, base, &up, file, info.Size(), f.name, print, fields)
		if err == nil && up.Complete {
			return up.ID, nil
		}
		if up.Offset > before {
			broken = 0
		} else {
			broken++
		}
		if err != nil && (ctx.Err() != nil || broken > pieceAttempts || !passing(err)) {
			return "", err
		}
		select {
		case <-time.After(min(time.Second<<max(broken-1, 0), pieceMaxWait)):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// pieceFingerprint tells this file of this machine from others.
func pieceFingerprint(path string, info fs.FileInfo, fields map[string]string) string {
	host, _ := os.Hostname() // without one the path has to do
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	settings, _ := json.Marshal(fields) // strings always encode
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d\x00%s", host, abs, info.Size(), info.ModTime().UnixNano(), settings))
	return hex.EncodeToString(sum[:])
}

// onePiece asks where the upload stands, or begins it, and sends what is missing.
func (c *client) onePiece(ctx context.Context, base string, up *api.UploadStatus, file *os.File, size int64, name, print string, fields map[string]string) error {
	var list api.List[api.UploadStatus]
	if err := c.call(ctx, http.MethodGet, base+"?fingerprint="+print, nil, &list); err != nil {
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
		about := [][2]string{{"filename", name}, {"hold", "true"}, {"fingerprint", print}}
		for k, v := range fields {
			about = append(about, [2]string{k, v})
		}
		for i, kv := range about {
			about[i][1] = base64.StdEncoding.EncodeToString([]byte(kv[1]))
		}
		pairs := make([]string, len(about))
		for i, kv := range about {
			pairs[i] = kv[0] + " " + kv[1]
		}
		resp, err := c.tus(ctx, http.MethodPost, base, nil, map[string]string{"Upload-Length": strconv.FormatInt(size, 10), "Upload-Metadata": strings.Join(pairs, ",")})
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(up); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
	}
	if up.Complete {
		return nil
	}
	resp, err := c.tus(ctx, http.MethodPatch, base+"/"+up.ID, io.NewSectionReader(file, up.Offset, size-up.Offset),
		map[string]string{"Content-Type": "application/offset+octet-stream", "Upload-Offset": strconv.FormatInt(up.Offset, 10)})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	up.Offset, err = strconv.ParseInt(resp.Header.Get("Upload-Offset"), 10, 64)
	up.Complete = up.Offset == size
	return err
}

// tus sends a request of the protocol.
func (c *client) tus(ctx context.Context, method, path string, body io.Reader, header map[string]string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if s, ok := body.(*io.SectionReader); ok {
		req.ContentLength = s.Size()
	}
	req.Header.Set("Tus-Resumable", "1.0.0")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	return c.send(req)
}

// passing reports whether the same again may work.
func passing(err error) bool {
	if p, ok := errors.AsType[*answerError](err); ok {
		return p.status >= 500 || p.status == 429 || p.status == 409 || p.status == 404 || p.code == "upload_broke_off"
	}
	return true // no answer at all
}
