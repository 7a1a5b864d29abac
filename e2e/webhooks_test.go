package e2e

import (
	"crypto/hmac"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/internal/webhook"
	"sheaf/taskstore"
)

// hook is a server that webhooks call. It answers with status.
type hook struct {
	*httptest.Server
	sync.Mutex
	secret string
	status int
	got    []message
	forged int
}

type message struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

func newHook(t *testing.T) *hook {
	h := &hook{status: 204}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		h.Lock()
		defer h.Unlock()
		id := r.Header.Get(webhook.HeaderID)
		seconds, _ := strconv.ParseInt(r.Header.Get(webhook.HeaderTimestamp), 10, 64)
		want, _ := webhook.Sign(h.secret, id, time.Unix(seconds, 0), body)
		var m message
		if json.Unmarshal(body, &m) != nil || m.ID != id || !hmac.Equal([]byte(want), []byte(r.Header.Get(webhook.HeaderSignature))) || time.Since(time.Unix(seconds, 0)) > time.Minute {
			h.forged++
		}
		h.got = append(h.got, m)
		w.WriteHeader(h.status)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) host() string { return strings.TrimPrefix(h.URL, "http://") }

func (h *hook) answer(status int) {
	h.Lock()
	defer h.Unlock()
	h.status = status
}

// count is how often messages of a type came.
func (h *hook) count(event string) int {
	h.Lock()
	defer h.Unlock()
	n := 0
	for _, m := range h.got {
		if m.Type == event {
			n++
		}
	}
	return n
}

func TestWebhooks(t *testing.T) {
	h := newHook(t)
	s := start(t, func(c *config.Config) { c.Webhooks.Hosts = []string{h.host()} })
	const base = "/v1/datasets/default/webhooks"
	if resp, b := s.request("POST", base, `{"url":"http://169.254.169.254/latest"}`, "Content-Type", "application/json"); resp.StatusCode != 400 || !strings.Contains(string(b), "webhooks.hosts") {
		t.Errorf("a host that is not allowed: %s %s", resp.Status, b)
	}
	if resp, b := s.request("POST", base, `{"url":"`+h.URL+`","events":["document.exploded"]}`, "Content-Type", "application/json"); resp.StatusCode != 400 || !strings.Contains(string(b), "document.succeeded") {
		t.Errorf("an event that is none: %s %s", resp.Status, b)
	}
	var w taskstore.Webhook
	h.Lock() // nothing is told before the key is known
	s.post(base, map[string]any{"url": h.URL}, &w)
	h.secret = w.Secret
	h.Unlock()
	at := base + "/" + w.ID
	var again taskstore.Webhook
	s.get(at, &again)
	if !strings.HasPrefix(w.Secret, "whsec_") || again.Secret != "" || again.URL != h.URL {
		t.Fatalf("made %+v, read %+v", w, again)
	}

	// One good and one bad document: each end is told, and that of the job.
	answer, err := s.submitAnswer(t.Context(), "default", []source{text("good.md", "# Terns\n\nTerns fly far."), text("bad.pdf", "%PDF-1.7 nothing")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(answer.Job.ID)
	for event, n := range map[string]int{"document.succeeded": 1, "document.failed": 1, "job.partially_succeeded": 1} {
		waitFor(t, event, func() bool { return h.count(event) == n })
	}
	h.Lock()
	var news taskstore.DocumentNews
	for _, m := range h.got {
		if m.Type == "document.failed" {
			_ = json.Unmarshal(m.Data, &news)
		}
		if !slices.Contains(taskstore.WebhookEvents, m.Type) {
			t.Errorf("an unknown event %q", m.Type)
		}
	}
	if h.forged > 0 || news.Failure == nil || news.Failure.Message == "" || news.JobID != answer.Job.ID || news.Name != "bad.pdf" {
		t.Errorf("%d of %d messages have no good signature; of the failure it says %+v", h.forged, len(h.got), news)
	}
	h.Unlock()

	// What is not taken stays, with the answer, and is sent again when asked.
	h.answer(500)
	var ping taskstore.Delivery
	s.post(at+":ping", nil, &ping)
	delivery := func(id string) (d taskstore.Delivery) {
		var all api.List[taskstore.Delivery]
		s.get(at+"/deliveries?limit=100", &all)
		for _, one := range all.Items {
			if one.EventID == id {
				d = one
			}
		}
		return d
	}
	waitFor(t, "the refusal to be noted", func() bool { return delivery(ping.EventID).Status == 500 })
	if d := delivery(ping.EventID); d.State != taskstore.DeliveryPending || d.Attempts < 1 || d.Error == "" || !d.NextAt.After(d.CreatedAt) {
		t.Errorf("a refused message: %+v", d)
	}
	h.answer(200)
	var replayed api.Replayed
	s.post(at+":replay", map[string]any{"event_ids": []string{ping.EventID}}, &replayed)
	waitFor(t, "the replay to be taken", func() bool { return delivery(ping.EventID).State == taskstore.DeliveryDelivered })
	if replayed.Deliveries != 1 {
		t.Errorf("replayed %d", replayed.Deliveries)
	}

	// 410 turns it off; nothing is written for it from then on.
	h.answer(410)
	s.post(at+":ping", nil, &ping)
	waitFor(t, "the webhook to be turned off", func() bool { s.get(at, &again); return !again.Enabled })
	if again.LastError == "" || delivery(ping.EventID).State != taskstore.DeliveryDead {
		t.Errorf("%+v, %+v", again, delivery(ping.EventID))
	}

	// Turned on again, for one kind of event only.
	h.answer(200)
	if resp, b := s.request("PATCH", at, `{"enabled":true,"events":["document.deleted"]}`, "Content-Type", "application/json"); resp.StatusCode != 200 {
		t.Fatalf("%s %s", resp.Status, b)
	}
	before := h.count("document.succeeded")
	third, err := s.submitAnswer(t.Context(), "default", []source{text("third.md", "# Knots\n\nKnots flock.")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(third.Job.ID)
	if resp, b := s.request("DELETE", "/v1/datasets/default/documents/"+third.Documents[0].ID, ""); resp.StatusCode != 200 {
		t.Fatalf("%s %s", resp.Status, b)
	}
	waitFor(t, "the deletion to be told", func() bool { return h.count("document.deleted") == 1 })
	if n := h.count("document.succeeded"); n != before {
		t.Errorf("%d messages that nobody asked for", n-before)
	}
	if resp, b := s.request("DELETE", at, ""); resp.StatusCode != 204 {
		t.Errorf("%s %s", resp.Status, b)
	}
}
