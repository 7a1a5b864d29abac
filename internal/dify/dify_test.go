package dify

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sheaf/internal/facade"
)

// door answers every request with one status, as the API does to a key.
type door int

func (d door) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.URL.Path != "/v1/info" {
		d = http.StatusTeapot
	}
	w.WriteHeader(int(d))
	_, _ = w.WriteString("{}")
	return w.Result(), nil
}

func TestBadRequestsAreRefusedBeforeTheSearch(t *testing.T) {
	for body, want := range map[string]string{
		`{"query":"x"}`:                        "knowledge_id is empty",
		`{"query":"x","retrieval_setting":{}}`: "knowledge_id is empty",
		`{"knowledge_id":"d","query":"x","retrieval_setting":{"top_k":-1}}`:  "top_k cannot be -1",
		`{"knowledge_id":"d","query":"x","retrieval_setting":{"top_k":101}}`: "top_k cannot be 101",
		`{`: "The body is no JSON",
	} {
		ask := func(d door) error {
			_, err := retrieve(d, httptest.NewRequest(http.MethodPost, "/retrieval", strings.NewReader(body)))
			return err
		}
		if e := facade.AsError(ask(http.StatusUnauthorized)); e.Status != http.StatusUnauthorized {
			t.Errorf("%s without a key: %v", body, e)
		}
		if err := ask(http.StatusOK); err == nil {
			t.Errorf("%s is taken", body)
		} else if e := facade.AsError(err); e.Status != http.StatusBadRequest || !strings.Contains(e.Detail, want) {
			t.Errorf("%s: %v, want %s", body, e, want)
		}
	}
}
