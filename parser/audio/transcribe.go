package audio

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strings"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
)

// extensions provides a name for recordings without one: servers rely on it.
var extensions = map[string]string{
	"audio/mpeg": ".mp3", "audio/mp3": ".mp3", "audio/wav": ".wav", "audio/x-wav": ".wav", "audio/mp4": ".m4a", "audio/x-m4a": ".m4a",
	"audio/flac": ".flac", "audio/x-flac": ".flac", "audio/ogg": ".ogg", "application/ogg": ".ogg", "audio/webm": ".webm", "video/mp4": ".mp4", "video/webm": ".webm",
}

// transcribe sends the recording to the server and reads its answer. Transient
// errors are retryable.
func (c Config) transcribe(ctx context.Context, file *os.File, size int64, o parser.Options) (*transcript, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	name := path.Base(strings.ReplaceAll(clean.Line(o.Name), `\`, "/"))
	if ext := extensions[o.MediaType]; path.Ext(name) == "" {
		name = "recording" + ext
	}
	// The recording is streamed: it may exceed the parser's memory.
	body, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() {
		err := form.WriteField("model", c.Model)
		for _, f := range [][2]string{{"response_format", "verbose_json"}, {"language", c.Language}} {
			if err == nil && f[1] != "" {
				err = form.WriteField(f[0], f[1])
			}
		}
		var part io.Writer
		if err == nil {
			part, err = form.CreateFormFile("file", name)
		}
		if err == nil {
			_, err = io.Copy(part, io.NewSectionReader(file, 0, size))
		}
		w.CloseWithError(errors.Join(err, form.Close()))
	}()
	defer body.Close() // ends the goroutine if the server stops reading
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+"/audio/transcriptions", body)
	if err != nil {
		return nil, sheaf.Fail(sheaf.CategoryPolicy, "transcription_refused", "The address in parser.transcribe_url is none; it must be like https://host:port/v1.")
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	if c.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.APIKey)
	}
	// A redirect would forward the recording and the key to another host.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, sheaf.FailRetryable(sheaf.CategoryTimeout, "transcription_timeout", "The transcription server took longer than %v. It is tried again; raise parser.transcribe_timeout, or split the recording.", c.Timeout)
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, unavailable("does not answer")
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxTranscriptBytes+1))
	if err != nil {
		return nil, unavailable("broke off its answer")
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp.StatusCode, answer)
	}
	t := &transcript{}
	if len(answer) > maxTranscriptBytes || json.Unmarshal(answer, t) != nil || t.Text == "" && len(t.Segments) == 0 && !strings.Contains(string(answer[:min(len(answer), 4096)]), `"text"`) {
		return nil, sheaf.Fail(sheaf.CategoryTarget, "transcription_bad_answer", "The transcription server's answer is no transcript; check parser.transcribe_url and the server's version.")
	}
	return t, nil
}

func unavailable(why string) error {
	return sheaf.FailRetryable(sheaf.CategoryTarget, "transcription_unavailable", "The transcription server %s. It is tried again; check that the server of parser.transcribe_url runs.", why)
}

// refusal turns a status into a failure. The server's message is quoted if it is
// about the recording.
func refusal(status int, answer []byte) error {
	says := clean.Clip(clean.Line(string(answer)), 300)
	switch {
	case status == http.StatusTooManyRequests:
		return sheaf.FailRetryable(sheaf.CategoryCapacity, "transcription_rate_limited", "The transcription server asks to slow down. It is tried again.")
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return sheaf.FailRetryable(sheaf.CategoryTarget, "transcription_unauthorized", "The transcription server refuses the API key; correct parser.transcribe_api_key: the recording waits. A key from a file is read again, another needs a restart of the executor.")
	case status == http.StatusRequestEntityTooLarge:
		return sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The recording is larger than the transcription server takes; split or compress it.")
	case status == http.StatusBadRequest, status == http.StatusUnsupportedMediaType, status == http.StatusUnprocessableEntity:
		return sheaf.Fail(sheaf.CategoryBadInput, "invalid_audio", "The transcription server cannot read the recording: %s. Save it as MP3 or WAV and upload that.", says)
	case status >= 500:
		return unavailable("is in trouble")
	}
	return sheaf.FailRetryable(sheaf.CategoryTarget, "transcription_refused", "The transcription server answers with status %d; correct parser.transcribe_url or parser.transcribe_model and restart the executor: the recording waits.", status)
}
