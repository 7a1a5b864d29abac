package facade

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Who misspells the dataset that is to keep a document is told.
func TestParametersOfAConversion(t *testing.T) {
	for query, want := range map[string]struct {
		dataset string
		status  int
	}{
		"": {}, "?dataset=reports": {dataset: "reports"},
		"?datset=reports": {status: http.StatusBadRequest}, "?dataset=": {status: http.StatusBadRequest}, "?dataset=a&x=1": {status: http.StatusBadRequest},
	} {
		dataset, err := DatasetOf(httptest.NewRequest(http.MethodPut, "/tika"+query, nil))
		status := 0
		if err != nil {
			status = AsError(err).Status
		}
		if dataset != want.dataset || status != want.status {
			t.Errorf("%q: %q, %v, want %+v", query, dataset, err, want)
		}
	}
}
