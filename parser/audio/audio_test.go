package audio

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

// wav is a second of silence: the server, not the parser, looks into it.
var wav = append([]byte("RIFF\x24\x7d\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x00\x7d\x00\x00"), make([]byte, 32_000)...)

var options = parser.Options{Name: "talk.wav", MediaType: "audio/wav"}

// server answers as POST /v1/audio/transcriptions does.
func server(t *testing.T, answer http.HandlerFunc) Config {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/audio/transcriptions", answer)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return Config{URL: s.URL + "/v1", Model: "whisper-1", APIKey: "key"}
}

func code(err error) string {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f.Code
	}
	return ""
}

func TestSpeechBecomesTimedUnitsWithOneRequest(t *testing.T) {
	requests := 0
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		f, h, err := r.FormFile("file")
		if err != nil {
			t.Error(err)
			return
		}
		sent, _ := io.ReadAll(f)
		if string(sent) != string(wav) || h.Filename != "talk.wav" || r.FormValue("model") != "whisper-1" || r.FormValue("response_format") != "verbose_json" || r.Header.Get("Authorization") != "Bearer key" {
			t.Errorf("%d bytes as %s, form %q, key %q", len(sent), h.Filename, r.Form, r.Header.Get("Authorization"))
		}
		_, _ = io.WriteString(w, `{"task":"transcribe","language":"english","duration":3725.4,"text":"all","segments":[
			{"id":0,"start":0.0,"end":20.5,"text":" The harvest was good."},{"id":1,"start":20.5,"end":55,"text":" Quinces above all."},
			{"id":2,"start":55,"end":70,"text":" Then came the rain."},{"id":3,"start":70,"end":71,"text":"  "},{"id":4,"start":3661,"end":3725,"text":" Goodbye."}]}`)
	})
	f := New(c)
	plan, units, err := formattest.Read(t, f, wav, options, f)
	if err != nil {
		t.Fatal(err)
	}
	want := [][2]string{{"0:00:00–0:00:55", "The harvest was good. Quinces above all."}, {"0:00:55–0:01:10", "Then came the rain."}, {"1:01:01–1:02:05", "Goodbye."}}
	if len(units) != len(want) || requests != 1 {
		t.Fatalf("%d units with %d requests", len(units), requests)
	}
	for i, u := range units {
		if u.Label != want[i][0] || u.Blocks[0].Text != want[i][1] || u.Blocks[0].Page != i+1 {
			t.Errorf("%+v", u)
		}
	}
	if plan.Metadata["language"] != "english" || plan.Metadata["duration_seconds"] != "3725" || plan.Metadata["transcribed_by"] != "whisper-1" {
		t.Errorf("%q", plan.Metadata)
	}
}

func TestAnswerWithoutTimesIsOneUnit(t *testing.T) {
	f := New(server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"text":"Only text."}`)
	}))
	_, units, err := formattest.Read(t, f, wav, options, f)
	if err != nil || len(units) != 1 || units[0].Blocks[0].Text != "Only text." {
		t.Errorf("%+v, %v", units, err)
	}
}

func TestBadAnswersAreFailures(t *testing.T) {
	for _, c := range []struct {
		title, body, code string
		status            int
		retryable         bool
	}{
		{"busy", "", "transcription_rate_limited", 429, true},
		{"in trouble", "", "transcription_unavailable", 503, true},
		{"wrong key", "", "transcription_unauthorized", 401, true},
		{"wrong address", "", "transcription_refused", 404, true},
		{"elsewhere", "", "transcription_refused", 307, true},
		{"too large", "", "too_large", 413, false},
		{"no recording", `{"error":"unknown codec"}`, "invalid_audio", 400, false},
		{"no transcript", `{"hello":1}`, "transcription_bad_answer", 200, false},
		{"no JSON", `<html>`, "transcription_bad_answer", 200, false},
		{"silence", `{"text":"","segments":[]}`, "no_text", 200, false},
	} {
		t.Run(c.title, func(t *testing.T) {
			f := New(server(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			_, _, err := formattest.Read(t, f, wav, options, nil)
			if got, _ := errors.AsType[*sheaf.Failure](err); got == nil || got.Code != c.code || got.Retryable != c.retryable {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestServerThatIsAwayOrHangs(t *testing.T) {
	if _, _, err := formattest.Read(t, New(Config{URL: "http://127.0.0.1:1/v1"}), wav, options, nil); code(err) != "transcription_unavailable" {
		t.Error(err)
	}
	done := make(chan struct{})
	c := server(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-done
	})
	defer close(done)
	c.Timeout = 50 * time.Millisecond
	if _, _, err := formattest.Read(t, New(c), wav, options, nil); code(err) != "transcription_timeout" {
		t.Error(err)
	}
}

func TestMissingServerIsSaidAtOnce(t *testing.T) {
	f := New(Config{})
	if err := parser.Available(f); code(err) != "part_missing" || !strings.Contains(err.Error(), "parser.transcribe_url") {
		t.Error(err)
	}
	if _, _, err := formattest.Read(t, f, wav, options, nil); code(err) != "part_missing" {
		t.Error(err)
	}
	if _, _, err := formattest.Read(t, New(Config{URL: "http://x/v1"}), nil, options, nil); code(err) != "empty_file" {
		t.Error(err)
	}
}

func TestKeyIsNotPrinted(t *testing.T) {
	c := Config{URL: "http://x/v1", APIKey: "hush"}
	if strings.Contains(c.String()+c.GoString(), "hush") {
		t.Error("the key is printed")
	}
}

func FuzzTranscript(f *testing.F) {
	f.Add([]byte(`{"text":"a","duration":70,"segments":[{"start":0,"end":5,"text":"a"},{"start":60,"end":90,"text":"b"}]}`))
	o := options
	o.MediaType = TranscriptType
	format := New(Config{})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, format, b, o, nil) // it checks what it reads
	})
}
