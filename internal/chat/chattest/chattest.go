// Package chattest is a language model for tests: a local server of POST
// /v1/chat/completions whose answers depend only on the prompt. It can be slow,
// refuse for a while, truncate its answers and return invalid JSON.
package chattest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Model is the server's model name.
const Model = "parrot-1"

// Trouble is a failure mode of a request.
type Trouble int

// Failure modes.
const (
	None    Trouble = iota
	Limited         // 429 with a Retry-After of one second
	CutOff          // the connection ends in mid-answer
	Broken          // the answer is not JSON
)

// Server is a running server. It is safe for concurrent use.
type Server struct {
	URL string // up to and including "/v1"

	mu      sync.Mutex
	asked   []string
	trouble []Trouble
	delay   time.Duration
	reply   func(instruction, text string) string // nil for Answer
}

// Start runs a server until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(h.Close)
	s.URL = h.URL + "/v1"
	return s
}

// Next sets the failure modes of the next requests, one each.
func (s *Server) Next(trouble ...Trouble) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = append(s.trouble, trouble...)
}

// Slow makes each answer take this long, or until its request is canceled.
func (s *Server) Slow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// Reply makes the server answer with f instead of Answer; f may be called
// concurrently.
func (s *Server) Reply(f func(instruction, text string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = f
}

// Asked lists the texts of all requests in order, including failed ones.
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// Answer is the server's answer to a text under an instruction: the first words of
// the text, and a number that distinguishes prompts.
func Answer(instruction, text string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(instruction + "\x00" + text)) // never fails
	words := strings.Fields(text)
	return fmt.Sprintf("%s (%d)", strings.Join(words[:min(len(words), 12)], " "), h.Sum32())
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Model    string
		Messages []struct{ Role, Content string }
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&ask); err != nil || r.URL.Path != "/v1/chat/completions" || ask.Model != Model || len(ask.Messages) != 2 {
		http.Error(w, `{"error": {"message": "a POST to /v1/chat/completions with the model `+Model+` and two messages is answered, nothing else"}}`, http.StatusBadRequest)
		return
	}
	instruction, text := ask.Messages[0].Content, ask.Messages[1].Content
	s.mu.Lock()
	s.asked = append(s.asked, text)
	trouble, delay, reply := None, s.delay, s.reply
	if reply == nil {
		reply = Answer
	}
	if len(s.trouble) > 0 {
		trouble, s.trouble = s.trouble[0], s.trouble[1:]
	}
	s.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
	}
	body, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": map[string]string{"role": "assistant", "content": reply(instruction, text)}}}}) // strings always encode
	w.Header().Set("Content-Type", "application/json")
	switch trouble {
	case Limited:
		w.Header().Set("Retry-After", "1")
		http.Error(w, `{"error": {"message": "slow down"}}`, http.StatusTooManyRequests)
	case CutOff:
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body[:len(body)/2]) // the server closes the connection, since the rest is missing
	case Broken:
		_, _ = w.Write([]byte(`{"choices": [{"message": {"content": "unfinished`))
	default:
		_, _ = w.Write(body)
	}
}
