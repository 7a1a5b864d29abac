// Package webhook notifies other systems that documents and jobs have ended. The
// store writes each message together with what it reports; this package posts due
// messages, signed, until they are accepted or given up.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/retryafter"
	"sheaf/taskstore"
)

// Headers of a message, as named by Standard Webhooks 1.0.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

const secretPrefix = "whsec_"

// NewSecret returns a signing key: whsec_ and 32 random bytes in base64.
func NewSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// CheckSecret rejects an invalid key, or one too short to be secure.
func CheckSecret(secret string) error {
	key, err := keyOf(secret)
	if err != nil || len(key) < 24 || len(key) > 64 {
		return fmt.Errorf("%w: a webhook's secret is whsec_ and 24 to 64 bytes in base64; leave it out to have one made", sheaf.ErrInvalid)
	}
	return nil
}

func keyOf(secret string) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
}

// Sign returns the signature header of a message: "v1," and the base64 of
// HMAC-SHA256 over its id, its time in seconds and its body, joined by dots.
func Sign(secret, id string, at time.Time, body []byte) (string, error) {
	key, err := keyOf(secret)
	if err != nil {
		return "", fmt.Errorf("the webhook's secret: %w", err)
	}
	if len(key) == 0 {
		return "", errors.New("the webhook's secret cannot be read with the keys of this installation; make the webhook again")
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body) // writing to a hash cannot fail
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// Hosts are the hosts that may be called, each as host or host:port.
type Hosts []string

// Allow reports whether u is on one of the hosts. A URL without a port has the
// default port of its scheme.
func (h Hosts) Allow(u *url.URL) bool {
	return slices.ContainsFunc(h, func(a string) bool {
		if host, port, err := net.SplitHostPort(a); err == nil {
			return host == u.Hostname() && port == cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		}
		return a == u.Hostname()
	})
}

// Check rejects a URL that no message may be sent to.
func (h Hosts) Check(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%w: a webhook's url is http:// or https:// with a host, without a name, password or fragment", sheaf.ErrInvalid)
	}
	if !h.Allow(u) {
		return fmt.Errorf("%w: webhooks may not call %s; add it to webhooks.hosts in the configuration", sheaf.ErrInvalid, u.Host)
	}
	return nil
}

// Store holds the messages. Each is written in the transaction of what it reports,
// so that none is lost, and is sent at least once.
type Store interface {
	AnyWebhook(ctx context.Context) (bool, error)
	DueWebhooks(ctx context.Context, after string, limit int) ([]taskstore.Webhook, error)
	ClaimDeliveries(ctx context.Context, webhookID string, limit int, lease time.Duration) ([]taskstore.Delivery, error)
	AnnounceJob(ctx context.Context, tenantID, jobID string) error
	EndDelivery(ctx context.Context, d *taskstore.Delivery, end taskstore.DeliveryEnd) error
}

// Sender posts messages. Zero fields mean the default named beside them.
type Sender struct {
	Store   Store
	Hosts   Hosts
	Timeout time.Duration // per attempt, default 10 s
	Log     *slog.Logger
	Observe func(outcome taskstore.DeliveryState) // called for each attempt; may be nil

	once   sync.Once
	client *http.Client
	asked  time.Time // when the store was last asked whether there is a webhook
	there  bool      // what it said
	after  string    // the webhook that had its turn last
}

const (
	askEvery    = time.Second // how soon the first webhook is noticed
	maxWebhooks = 100         // listed by one statement
	maxPages    = 20          // statements that look for whose turn it is
	lookEvery   = time.Second // how soon a webhook is served while others are slow
	parallel    = 16          // concurrent webhooks
	perTenant   = 8           // of a tenant: it may have any number of slow ones
	batch       = 8           // messages per webhook and turn
	// webhookTime ends a webhook's turn: a slow one gets the rest of its messages in
	// another.
	webhookTime = 15 * time.Second
	// roundTime ends a round, in which all turns end: the keeper allows it a minute.
	roundTime = 30 * time.Second

	maxAttempts = 15 // about a day with the delays below
	firstDelay  = 5 * time.Second
	maxDelay    = 6 * time.Hour
	maxHold     = 5 * time.Minute
	maxAnswer   = 4 << 10
)

// Round sends due messages until none are due, or for roundTime, and returns how
// many it processed. A webhook gets a batch at a time, side by side if it answers
// promptly: one by one, a service far away would fall behind what it is told about.
// Those about one document keep their order, and a job's comes after its documents'.
// Rounds must not overlap.
func (s *Sender) Round(ctx context.Context) (int, error) {
	s.once.Do(s.begin)
	if time.Since(s.asked) >= askEvery {
		there, err := s.Store.AnyWebhook(ctx)
		if err != nil {
			return 0, err
		}
		s.there, s.asked = there, time.Now()
	}
	if !s.there {
		return 0, nil // rounds follow each change; without webhooks they cost nothing
	}
	r := &round{Sender: s, until: time.Now().Add(roundTime), active: map[string]bool{}, tenants: map[string]int{}, spent: map[string]bool{}, ended: make(chan served)}
	return r.run(ctx)
}

// round sends messages to webhooks side by side, in turn by their ids. One that
// answers slowly keeps a place, and nobody waits for it but what its tenant has.
type round struct {
	*Sender
	until   time.Time
	active  map[string]bool // webhooks that have their turn, each in one place
	tenants map[string]int  // how many of them are a tenant's
	spent   map[string]bool // webhooks that had nothing to send
	ended   chan served
}

// served is the outcome of a webhook's turn.
type served struct {
	webhook *taskstore.Webhook
	n       int
	err     error
}

func (r *round) run(ctx context.Context) (n int, err error) {
	for {
		if err == nil && ctx.Err() == nil && len(r.active) < parallel && time.Now().Before(r.until) {
			err = r.fill(ctx)
		}
		if len(r.active) == 0 {
			return n, err
		}
		select {
		case s := <-r.ended:
			delete(r.active, s.webhook.ID)
			r.tenants[s.webhook.TenantID]--
			if n, err = n+s.n, errors.Join(err, s.err); s.n == 0 {
				r.spent[s.webhook.ID] = true
			}
		case <-time.After(lookEvery): // others may have something by now
		}
	}
}

// fill gives the free places to the webhooks whose turn it is.
func (r *round) fill(ctx context.Context) error {
	from, wrapped := r.after, r.after == ""
	for range maxPages {
		due, err := r.Store.DueWebhooks(ctx, r.after, maxWebhooks)
		if err != nil {
			return err
		}
		for i := range due {
			w := &due[i]
			if len(r.active) == parallel || wrapped && from != "" && w.ID > from {
				return nil
			}
			r.after = w.ID
			// guard: webhooks: those of a tenant do not take all places
			if r.active[w.ID] || r.spent[w.ID] || r.tenants[w.TenantID] == perTenant {
				continue
			}
			r.active[w.ID] = true
			r.tenants[w.TenantID]++
			go func() {
				n, err := r.serve(ctx, w, r.until)
				r.ended <- served{w, n, err}
			}()
		}
		if len(due) == maxWebhooks {
			continue
		}
		r.after = ""
		if wrapped {
			return nil
		}
		wrapped = true
	}
	return nil
}

func (s *Sender) begin() {
	s.Timeout = cmp.Or(s.Timeout, 10*time.Second)
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	s.client = &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: batch, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		// A redirect would carry the message to a host that was not allowed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// serve sends a batch of its messages to one webhook, the last before until.
func (s *Sender) serve(ctx context.Context, w *taskstore.Webhook, until time.Time) (int, error) {
	if turn := time.Now().Add(webhookTime); turn.Before(until) {
		until = turn
	}
	messages, err := s.Store.ClaimDeliveries(ctx, w.ID, batch, webhookTime+2*s.Timeout)
	if err != nil {
		return 0, err
	}
	// Before any of them is completed: the last document's message is what
	// indicates that its job may have ended.
	told := map[string]bool{"": true}
	for i := range messages {
		m := &messages[i]
		if m.Followed || told[m.JobID] {
			continue
		}
		if err := s.Store.AnnounceJob(ctx, m.TenantID, m.JobID); err != nil && !errors.Is(err, sheaf.ErrNotFound) {
			return 0, err // the claims expire, and all of it is retried
		}
		told[m.JobID] = true
	}
	t := turn{Sender: s, webhook: w, under: map[string]bool{}}
	for i := range messages {
		m := &messages[i]
		about := documentOf(m)
		if about == "" || t.under[about] || !t.prompt() {
			t.wait()
		}
		if ctx.Err() != nil {
			break
		}
		switch {
		case t.stopped() || time.Now().After(until):
			t.end(ctx, m, taskstore.DeliveryEnd{Untried: true})
		case !w.Wants(m.Event):
			t.end(ctx, m, taskstore.DeliveryEnd{Unwanted: true})
		default:
			t.send(ctx, m, about)
		}
		if about == "" {
			t.wait()
		}
	}
	t.wait()
	if ctx.Err() != nil {
		return t.ended, ctx.Err()
	}
	// Last, since a success clears what a failure holds back. However many of a turn
	// have failed, the webhook has failed once.
	var hold time.Duration
	for _, f := range t.failed {
		hold = max(hold, f.end.Hold)
	}
	for _, f := range t.failed {
		f.end.Hold, hold = hold, 0
		t.end(ctx, f.message, f.end)
	}
	return t.ended, t.err
}

// turn is a batch of a webhook's messages on its way.
type turn struct {
	*Sender
	webhook *taskstore.Webhook
	group   sync.WaitGroup
	under   map[string]bool // documents of messages under way

	mu      sync.Mutex
	answers int
	longest time.Duration // until an answer
	failed  []failure
	ended   int
	err     error // of the store
}

type failure struct {
	message *taskstore.Delivery
	end     taskstore.DeliveryEnd
}

// send posts a message about a document in the background.
func (t *turn) send(ctx context.Context, m *taskstore.Delivery, about string) {
	t.under[about] = true
	t.group.Go(func() {
		begun := time.Now()
		end := t.attempt(ctx, t.webhook, m)
		t.answered(time.Since(begun))
		switch {
		case ctx.Err() != nil: // its outcome is the end of this process
		case end.State == taskstore.DeliveryDelivered:
			t.end(ctx, m, end)
		default:
			t.mu.Lock()
			defer t.mu.Unlock()
			t.failed = append(t.failed, failure{m, end})
		}
	})
}

// wait waits for what is under way.
func (t *turn) wait() {
	t.group.Wait()
	clear(t.under)
}

// answered records how long an answer took.
func (t *turn) answered(after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers++
	t.longest = max(t.longest, after)
}

// prompt reports whether messages may go side by side: answers come so soon that a
// service which handles one after another still answers a batch within the timeout.
func (t *turn) prompt() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answers > 0 && t.longest <= t.Timeout/batch
}

// stopped reports that nothing more is sent in this turn.
func (t *turn) stopped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failed) > 0 || t.err != nil
}

// end stores the outcome of a message.
func (t *turn) end(ctx context.Context, m *taskstore.Delivery, end taskstore.DeliveryEnd) {
	err := t.Store.EndDelivery(ctx, m, end)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err = errors.Join(t.err, err); err == nil {
		t.ended++
	}
}

// documentOf returns the document that a message is about, "" for others.
func documentOf(m *taskstore.Delivery) string {
	var about struct {
		Document string `json:"document_id"`
	}
	_ = json.Unmarshal(m.Data, &about) // others have none
	return about.Document
}

// envelope is the body of a message.
type envelope struct {
	Type string          `json:"type"`
	ID   string          `json:"id"`
	At   time.Time       `json:"timestamp"` // of the event, not of the attempt
	Data json.RawMessage `json:"data"`
}

// attempt posts a message and returns the outcome.
func (s *Sender) attempt(ctx context.Context, w *taskstore.Webhook, m *taskstore.Delivery) taskstore.DeliveryEnd {
	status, after, err := s.post(ctx, w, m)
	if err == nil {
		s.observe(taskstore.DeliveryDelivered)
		return taskstore.DeliveryEnd{State: taskstore.DeliveryDelivered, Status: status}
	}
	end := taskstore.DeliveryEnd{
		State: taskstore.DeliveryPending, Status: status, Error: err.Error(), Disable: status == http.StatusGone,
		Delay: max(backoff(firstDelay, m.Attempts, maxDelay), after), Hold: max(backoff(time.Second, w.Failures+1, maxHold), after),
	}
	if m.Attempts >= maxAttempts || end.Disable {
		end.State = taskstore.DeliveryDead
	}
	s.observe(end.State)
	s.Log.WarnContext(ctx, "webhook delivery failed", "webhook", w.ID, "event", m.EventID, "attempt", m.Attempts, "status", status, "error", err, "state", end.State)
	return end
}

func (s *Sender) observe(state taskstore.DeliveryState) {
	if s.Observe != nil {
		s.Observe(state)
	}
}

func (s *Sender) post(ctx context.Context, w *taskstore.Webhook, m *taskstore.Delivery) (status int, after time.Duration, err error) {
	if err := s.Hosts.Check(w.URL); err != nil {
		return 0, 0, err
	}
	body, err := json.Marshal(envelope{Type: m.Event, ID: m.EventID, At: m.CreatedAt, Data: m.Data})
	if err != nil {
		return 0, 0, fmt.Errorf("the message cannot be encoded: %w", err)
	}
	now := time.Now()
	signature, err := Sign(w.Secret, m.EventID, now, body)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return 0, 0, fmt.Errorf("the url cannot be requested: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sheaf-webhook/1")
	req.Header.Set(HeaderID, m.EventID)
	req.Header.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(HeaderSignature, signature)
	resp, err := s.client.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // without the URL, which may contain a token
		}
		return 0, 0, fmt.Errorf("no answer: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // allows the connection to be reused
	switch {
	case resp.StatusCode/100 == 2:
		return resp.StatusCode, 0, nil
	case resp.StatusCode == http.StatusGone:
		return resp.StatusCode, 0, errors.New("answered 410 Gone: the webhook was turned off; enable it when the address is there again")
	case resp.StatusCode/100 == 3:
		return resp.StatusCode, 0, fmt.Errorf("answered %s: redirects are not followed; set the final address", resp.Status)
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
		after = retryafter.Parse(resp.Header.Get("Retry-After"), time.Now())
	}
	return resp.StatusCode, after, fmt.Errorf("answered %s", resp.Status)
}

// backoff doubles with each attempt, with a fifth of jitter so that messages that
// failed together are not retried together.
func backoff(first time.Duration, attempts int, most time.Duration) time.Duration {
	d := most
	if n := max(attempts-1, 0); n < 30 {
		d = min(first<<n, most)
	}
	return time.Duration((0.8 + 0.4*mathrand.Float64()) * float64(d))
}
