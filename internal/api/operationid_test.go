package api

import (
	"regexp"
	"strings"
	"testing"

	"sheaf/internal/apidoc"
)

// Clients that are made from the description call operations by their ids.
func TestOperationsHaveNames(t *testing.T) {
	s := newTestServer(t, nil)
	readable := regexp.MustCompile(`^[a-z]+(-[a-z]+){0,4}$`)
	seen := map[string]string{}
	left := map[string]bool{}
	for route := range operationIDs {
		left[route] = true
	}
	for _, op := range apidoc.Operations(s.api.api.OpenAPI()) {
		at := op.Method + " " + op.Path
		delete(left, at)
		if id := op.OperationID; !readable.MatchString(id) || strings.Contains(id, "-by-") || strings.Contains(id, "v1") {
			t.Errorf("%s is called %s", at, id)
		}
		if was := seen[op.OperationID]; was != "" {
			t.Errorf("%s and %s are both called %s", was, at, op.OperationID)
		}
		seen[op.OperationID] = at
	}
	for route := range left {
		t.Errorf("%s has an id and is no route", route)
	}
	if len(seen) < 100 {
		t.Errorf("only %d operations", len(seen))
	}
}
