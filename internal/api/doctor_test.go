package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/doctor"
	"sheaf/parser/child"
)

// Parsers that do not start must not keep the doctor from saying what else is wrong.
func TestDoctorReportsBesideParsersThatDoNotStart(t *testing.T) {
	s := New(Config{
		Doctor: func(context.Context, bool) (*doctor.Report, error) {
			return &doctor.Report{Ranges: 7, Findings: []doctor.Finding{{Code: doctor.LeakedBlobs, Count: 1}}}, nil
		},
		Confinement: func(context.Context) ([]child.Protection, error) {
			return nil, sheaf.FailRetryable(sheaf.CategoryInternal, "parser_start_failed", "The parser's process did not start.")
		},
	})
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/v1/doctor", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if body := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(body, doctor.LeakedBlobs) || !strings.Contains(body, `"in_force":false`) || !strings.Contains(body, "did not start") {
		t.Errorf("%d %s", w.Code, body)
	}
}
