package embedserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf/internal/embed"
	"sheaf/internal/embed/embedtest"
	"sheaf/internal/embed/openai"
	"sheaf/internal/embed/static"
)

type encoderFunc func(text string) ([]float32, int, error)

func (f encoderFunc) Embed(text string) ([]float32, int, error) { return f(text) }

// builtIn stands for the native library with the model that every build has.
var builtIn = encoderFunc(func(text string) ([]float32, int, error) {
	vectors, err := static.Default().Embed(context.Background(), []string{text}, embed.Passage)
	if err != nil {
		return nil, 0, err
	}
	return vectors[0], len(strings.Fields(text)), nil
})

func serve(t *testing.T, e Encoder, c Config) (*Server, string) {
	t.Helper()
	s := New(e, c)
	t.Cleanup(s.Close)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

// The protocol, the order of texts and both encodings, as the service asks it.
func TestServerKeepsTheContractOfEmbedders(t *testing.T) {
	_, address := serve(t, builtIn, Config{Model: "m"})
	for _, encoding := range []string{"float", "base64"} {
		t.Run(encoding, func(t *testing.T) {
			e, err := openai.Open(t.Context(), openai.Config{BaseURL: address + "/v1", Model: "m", Encoding: encoding, MaxTexts: 16})
			if err != nil {
				t.Fatal(err)
			}
			embedtest.Run(t, e, embedtest.Options{})
		})
	}
}

func post(t *testing.T, address, body string) (status int, text string, header http.Header) {
	t.Helper()
	resp, err := http.Post(address+"/v1/embeddings", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func TestBadRequestsAreRefusedWithASentence(t *testing.T) {
	_, address := serve(t, builtIn, Config{Model: "m"})
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{`:                                      {400, "not JSON"},
		`{"input":[]}`:                           {400, "a text or a list"},
		`{"input":["a",null]}`:                   {400, "input 1 is null"},
		`{"input":["a",""]}`:                     {400, "input 1 is empty"},
		`{"input":[[1,2]]}`:                      {400, "a text or a list"},
		`{"input":"a","model":"other"}`:          {404, `\"m\" is`},
		`{"input":"a","dimensions":64}`:          {400, "leave dimensions out"},
		`{"input":"a","encoding_format":"int8"}`: {400, "float or base64"},
		`{"input":[` + strings.Repeat(`"a",`, maxTexts) + `"a"]}`: {413, "2049 texts"},
		`{"input":"` + strings.Repeat("a", maxBody) + `"}`:        {413, "bytes"},
	} {
		status, text, _ := post(t, address, body)
		var e struct {
			Error struct{ Message, Type string }
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil || status != want.status || e.Error.Type != "invalid_request_error" || !strings.Contains(text, want.says) {
			t.Errorf("%.60s: %d %s, want %d and %q", body, status, text, want.status, want.says)
		}
	}
	status, text, _ := post(t, address, `{"input":"two words","model":"m"}`)
	if status != 200 || !strings.Contains(text, `"prompt_tokens":2`) {
		t.Errorf("%d %.300s", status, text)
	}
}

func TestFailureOfTheModelIsTheServers(t *testing.T) {
	_, address := serve(t, encoderFunc(func(text string) ([]float32, int, error) {
		if text == "bad" {
			return nil, 0, errors.New("out of memory")
		}
		return []float32{1}, 1, nil
	}), Config{Threads: 2})
	if status, text, _ := post(t, address, `{"input":["good","bad","good"]}`); status != 500 || !strings.Contains(text, "out of memory") {
		t.Errorf("%d %s", status, text)
	}
	if status, _, _ := post(t, address, `{"input":["good"]}`); status != 200 {
		t.Errorf("after it: %d", status)
	}
}

// blocked is an encoder that says what it begins and waits to be let go.
type blocked struct {
	begun chan string
	free  chan struct{}
}

func (b blocked) Embed(text string) ([]float32, int, error) {
	b.begun <- text
	<-b.free
	return []float32{1, 0}, 1, nil
}

func ask(s *Server, texts ...string) *httptest.ResponseRecorder {
	body, _ := json.Marshal(map[string]any{"input": texts})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/v1/embeddings", bytes.NewReader(body)))
	return w
}

// A query does not wait for the documents before it, and these go on beside queries.
func TestSingleTextsGoFirstAndOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := blocked{make(chan string, 100), make(chan struct{})}
		s := New(b, Config{Threads: 1})
		defer s.Close()
		var wg sync.WaitGroup
		wg.Go(func() { ask(s, "d1", "d2", "d3") })
		synctest.Wait()
		for i := range 5 {
			wg.Go(func() { ask(s, fmt.Sprintf("q%d", i)) })
			synctest.Wait()
		}
		var order []string
		for range 8 {
			order = append(order, <-b.begun)
			b.free <- struct{}{}
		}
		wg.Wait()
		if got, want := fmt.Sprint(order), "[d1 q0 q1 d2 q2 q3 q4 d3]"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
	})
}

func TestFullQueueAsksToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := blocked{make(chan string, 100), make(chan struct{})}
		s := New(b, Config{Threads: 1, Queue: 3})
		defer s.Close()
		var wg sync.WaitGroup
		answered := func(texts ...string) {
			wg.Go(func() {
				if w := ask(s, texts...); w.Code != 200 {
					t.Errorf("%v: %d %s", texts, w.Code, w.Body)
				}
			})
			synctest.Wait()
		}
		answered("under way")
		answered("a", "b")
		if w := ask(s, "c", "d"); w.Code != 429 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d %s, want 429 and when to come back", w.Code, w.Body)
		}
		answered("c")
		for range 4 {
			b.free <- struct{}{}
		}
		synctest.Wait()
		answered("more", "than", "the", "whole", "queue") // an empty queue takes it
		for range 5 {
			b.free <- struct{}{}
		}
		wg.Wait()
	})
}

// Texts that nobody waits for any more are not embedded.
func TestLeftRequestsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := blocked{make(chan string, 100), make(chan struct{})}
		s := New(b, Config{Threads: 1})
		defer s.Close()
		var wg sync.WaitGroup
		req := httptest.NewRequest("POST", "/v1/embeddings", strings.NewReader(`{"input":["a","b","c"]}`))
		ctx, leave := context.WithCancel(t.Context())
		wg.Go(func() { s.ServeHTTP(httptest.NewRecorder(), req.WithContext(ctx)) })
		synctest.Wait()
		wg.Go(func() { ask(s, "x", "y") })
		synctest.Wait()
		leave()
		for range 3 {
			b.free <- struct{}{}
		}
		wg.Wait()
		close(b.begun)
		var begun []string
		for text := range b.begun {
			begun = append(begun, text)
		}
		if got := fmt.Sprint(begun); got != "[a x y]" {
			t.Errorf("embedded %s, want a, which was under way, and the other request", got)
		}
	})
}

func TestTextThatTakesTooLongIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := blocked{make(chan string, 1), make(chan struct{})}
		s := New(b, Config{Threads: 2, Stuck: 10 * time.Second})
		defer s.Close()
		health := func() int {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
			return w.Code
		}
		var wg sync.WaitGroup
		wg.Go(func() { ask(s, "hangs") })
		time.Sleep(9 * time.Second)
		if got := health(); got != 200 {
			t.Errorf("after 9 s: %d", got)
		}
		time.Sleep(2 * time.Second)
		if got := health(); got != 503 {
			t.Errorf("after 11 s: %d, want 503", got)
		}
		b.free <- struct{}{}
		wg.Wait()
		if got := health(); got != 200 {
			t.Errorf("after its end: %d", got)
		}
	})
}

func TestVectorsAreThoseOfTheEncoder(t *testing.T) {
	_, address := serve(t, encoderFunc(func(string) ([]float32, int, error) { return []float32{0.25, -0.5}, 1, nil }), Config{})
	_, text, _ := post(t, address, `{"input":"a"}`)
	var answer struct {
		Data []struct {
			Index     int
			Embedding []float64
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Data) != 1 || math.Abs(answer.Data[0].Embedding[1]+0.5) > 1e-9 {
		t.Errorf("%s, %v", text, err)
	}
}
