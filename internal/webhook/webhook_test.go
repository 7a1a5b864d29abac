package webhook

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// The example of the libraries of Standard Webhooks.
func TestSignatureIsThatOfStandardWebhooks(t *testing.T) {
	got, err := Sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestSecrets(t *testing.T) {
	a, b := NewSecret(), NewSecret()
	if a == b || CheckSecret(a) != nil {
		t.Errorf("%s and %s: %v", a, b, CheckSecret(a))
	}
	for _, bad := range []string{"", "whsec_", "whsec_short", "whsec_" + strings.Repeat("!", 40), "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))} {
		if err := CheckSecret(bad); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("secret %q: %v", bad, err)
		}
	}
}

func TestHosts(t *testing.T) {
	h := Hosts{"hooks.example.org", "10.0.0.7:8443", "plain.example.org:80"}
	for address, want := range map[string]string{
		"https://hooks.example.org/a?b=c":        "",
		"http://hooks.example.org:8080/":         "",
		"https://10.0.0.7:8443/x":                "",
		"http://plain.example.org/":              "",
		"https://plain.example.org/":             "webhooks.hosts",
		"https://10.0.0.7/x":                     "webhooks.hosts",
		"https://hooks.example.org.evil.test/":   "webhooks.hosts",
		"https://evil.test/hooks.example.org":    "webhooks.hosts",
		"https://hooks.example.org@evil.test/":   "without a name",
		"ftp://hooks.example.org/":               "http://",
		"//hooks.example.org/":                   "http://",
		"https://user:pw@hooks.example.org/":     "without a name",
		"https://hooks.example.org/#x":           "fragment",
		"https://":                               "host",
		"http://[::1]:9000/":                     "webhooks.hosts",
		"javascript:alert(1)//hooks.example.org": "http://",
	} {
		err := h.Check(address)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	// What documents may be fetched from is looked up by the same rule.
	if u, _ := url.Parse("https://example.org/a.pdf"); !(Hosts{"example.org:443"}).Allow(u) || (Hosts{"example.org:80"}).Allow(u) {
		t.Error("a URL without a port does not have that of its scheme")
	}
	if Hosts(nil).Check("http://localhost/") == nil {
		t.Error("without hosts nothing may be called")
	}
}

// outcome posts one message to a server that answers as given.
func outcome(t *testing.T, attempts, failures int, answer http.HandlerFunc) taskstore.DeliveryEnd {
	t.Helper()
	server := httptest.NewServer(answer)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	s := &Sender{Hosts: Hosts{host}, Timeout: 5 * time.Second}
	s.begin()
	return s.attempt(t.Context(), &taskstore.Webhook{URL: server.URL, Secret: NewSecret(), Failures: failures}, &taskstore.Delivery{EventID: "doc_1", Event: "document.succeeded", Data: []byte(`{}`), Attempts: attempts})
}

func TestOutcomesOfAnswers(t *testing.T) {
	code := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
		}
	}
	for _, c := range []struct {
		name     string
		attempts int
		answer   http.HandlerFunc
		want     taskstore.DeliveryEnd // Error: a part of it; Delay and Hold: at least
	}{
		{"taken", 1, code(202), taskstore.DeliveryEnd{State: taskstore.DeliveryDelivered, Status: 202}},
		{"failed", 1, code(500), taskstore.DeliveryEnd{State: taskstore.DeliveryPending, Status: 500, Error: "500", Delay: 4 * time.Second}},
		{"failed often", 12, code(500), taskstore.DeliveryEnd{State: taskstore.DeliveryPending, Status: 500, Error: "500", Delay: 2 * time.Hour}},
		{"failed too often", maxAttempts, code(500), taskstore.DeliveryEnd{State: taskstore.DeliveryDead, Status: 500, Error: "500"}},
		{"busy", 1, code(429, "Retry-After", "120"), taskstore.DeliveryEnd{State: taskstore.DeliveryPending, Status: 429, Error: "429", Delay: 2 * time.Minute, Hold: 2 * time.Minute}},
		{"busy for ever", 1, code(503, "Retry-After", "99999999"), taskstore.DeliveryEnd{State: taskstore.DeliveryPending, Status: 503, Error: "503", Delay: time.Hour, Hold: time.Hour}},
		{"busy until", 1, code(503, "Retry-After", time.Now().Add(40*time.Minute).UTC().Format(http.TimeFormat)), taskstore.DeliveryEnd{State: taskstore.DeliveryPending, Status: 503, Error: "503", Delay: 30 * time.Minute, Hold: 30 * time.Minute}},
		{"gone", 1, code(410), taskstore.DeliveryEnd{State: taskstore.DeliveryDead, Status: 410, Error: "410 Gone", Disable: true}},
		{"redirected", 1, code(307, "Location", "http://169.254.169.254/"), taskstore.DeliveryEnd{State: taskstore.DeliveryPending, Status: 307, Error: "not followed"}},
		{"hung up", 1, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, taskstore.DeliveryEnd{State: taskstore.DeliveryPending, Error: "no answer"}},
		{"endless", 1, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}, taskstore.DeliveryEnd{State: taskstore.DeliveryDelivered, Status: 200}},
	} {
		got := outcome(t, c.attempts, 0, c.answer)
		if got.State != c.want.State || got.Status != c.want.Status || got.Disable != c.want.Disable || got.Delay < c.want.Delay || got.Hold < c.want.Hold || !strings.Contains(got.Error, c.want.Error) || got.Delay > maxDelay*6/5 {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if strings.Contains(got.Error, "127.0.0.1") && strings.Contains(got.Error, "Post ") {
			t.Errorf("%s: the error shows the address: %s", c.name, got.Error)
		}
	}
}

func TestAnAddressThatIsNoLongerAllowedIsNotCalled(t *testing.T) {
	s := &Sender{}
	s.begin()
	end := s.attempt(t.Context(), &taskstore.Webhook{URL: "http://127.0.0.1:1/", Secret: NewSecret()}, &taskstore.Delivery{Attempts: 1, Data: []byte(`{}`)})
	if end.State != taskstore.DeliveryPending || !strings.Contains(end.Error, "webhooks.hosts") {
		t.Errorf("%+v", end)
	}
}

func TestBackoff(t *testing.T) {
	for _, c := range []struct {
		attempts  int
		low, high time.Duration
	}{{0, 4 * time.Second, 6 * time.Second}, {1, 4 * time.Second, 6 * time.Second}, {3, 16 * time.Second, 24 * time.Second}, {1000, maxDelay * 4 / 5, maxDelay * 6 / 5}} {
		for range 100 {
			if d := backoff(firstDelay, c.attempts, maxDelay); d < c.low || d > c.high {
				t.Fatalf("after %d attempts %s, want %s to %s", c.attempts, d, c.low, c.high)
			}
		}
	}
}
