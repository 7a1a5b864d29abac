package worker

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"sheaf"
)

// What a tenant reads of a failure names no host, and the log has all of it.
func TestFailuresNameNoHosts(t *testing.T) {
	var log bytes.Buffer
	w := &Worker{cfg: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	driver := errors.New("dial tcp db-7.internal:5432: failed to connect to `user=sheaf database=prod`")
	ours := sheaf.Fail(sheaf.CategoryBadInput, "encrypted", "The file is locked; give its password.")
	for _, c := range []struct {
		err        error
		code, says string
		hidden     bool
	}{
		{driver, "internal", "Something went wrong inside Sheaf", true},
		{fmt.Errorf("%w: %w", sheaf.ErrUnavailable, driver), "unavailable", "something that Sheaf depends on does not answer", true},
		{&broken{dependency: "index", cause: fmt.Errorf("%w: %w", sheaf.ErrUnavailable, driver)}, "unavailable", "the index does not answer", true},
		{fmt.Errorf("reading page 3: %w", ours), "encrypted", "give its password", false},
		{fmt.Errorf("%w: the password is empty", sheaf.ErrInvalid), "invalid", "the password is empty", false},
	} {
		log.Reset()
		f := w.shown(&sheaf.Task{ID: "the-task", Kind: sheaf.KindPlan}, c.err)
		if f.Code != c.code || !strings.Contains(f.Message, c.says) || strings.Contains(fmt.Sprintf("%+v", *f), "db-7") {
			t.Errorf("%v: %+v", c.err, f)
		}
		if told := strings.Contains(log.String(), "db-7.internal:5432") && strings.Contains(log.String(), "the-task"); told != c.hidden {
			t.Errorf("%v: the log says %q", c.err, log.String())
		}
	}
}
