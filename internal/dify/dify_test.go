package dify

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sheaf/internal/facade"
)

func TestBadRequestsAreRefusedBeforeTheSearch(t *testing.T) {
	for body, want := range map[string]string{
		`{"query":"x"}`:                        "knowledge_id is empty",
		`{"query":"x","retrieval_setting":{}}`: "knowledge_id is empty",
		`{"knowledge_id":"d","query":"x","retrieval_setting":{"top_k":-1}}`:  "top_k cannot be -1",
		`{"knowledge_id":"d","query":"x","retrieval_setting":{"top_k":101}}`: "top_k cannot be 101",
		`{`: "The body is no JSON",
	} {
		_, err := retrieve(nil, httptest.NewRequest(http.MethodPost, "/retrieval", strings.NewReader(body)))
		if err == nil {
			t.Errorf("%s is taken", body)
		} else if e := facade.AsError(err); e.Status != http.StatusBadRequest || !strings.Contains(e.Detail, want) {
			t.Errorf("%s: %v, want %s", body, e, want)
		}
	}
}
