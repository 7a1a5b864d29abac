package sheaf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Kinds of errors that cross package boundaries. Adapters turn driver errors into
// these (wrapped with %w), callers test with errors.Is, and the HTTP edge maps each
// to one status.
var (
	ErrNotFound     = errors.New("not found")
	ErrConflict     = errors.New("conflict")                // a unique key or an expected state prevents it
	ErrStale        = errors.New("stale")                   // the epoch has moved on: another worker owns the task now
	ErrInvalid      = errors.New("invalid")                 // the caller's input is wrong; retrying cannot help
	ErrUnavailable  = errors.New("temporarily unavailable") // a dependency did not answer; retrying may help
	ErrLimit        = errors.New("limit exceeded")          // a quota or a full queue
	ErrUnauthorized = errors.New("unauthorized")            // no key, or an unknown one
	ErrForbidden    = errors.New("forbidden")               // the key lacks the scope
	ErrCanceled     = errors.New("canceled")                // cancellation was requested
	// ErrMisconfigured: a dependency responds but refuses every request of this
	// process: wrong key, model or vector width. Work waits, at no cost, until an
	// operator fixes it.
	ErrMisconfigured = errors.New("a dependency refuses this process")
	ErrReadOnly      = errors.New("storage is not accepting writes") // disk full, read-only folder or cluster
)

// Category groups failure codes by who can fix them.
type Category string

const (
	CategoryPolicy    Category = "policy"
	CategoryCapacity  Category = "capacity"
	CategoryBadInput  Category = "bad_input"
	CategoryEncrypted Category = "encrypted"
	CategorySource    Category = "source_unavailable"
	CategoryTarget    Category = "target_unavailable"
	CategoryTimeout   Category = "timeout"
	CategoryCrash     Category = "parser_crash"
	CategoryCanceled  Category = "canceled"
	CategoryInternal  Category = "internal"
)

// Failure says why a task, a unit or a document failed: Code is stable and for
// programs; Message is one sentence for people that ends in what to do.
type Failure struct {
	Code      string   `json:"code"`
	Category  Category `json:"category"`
	Message   string   `json:"message"`
	Retryable bool     `json:"retryable"`
	Phase     string   `json:"phase,omitempty"` // upload, plan, fetch, parse, chunk, embed, index, finalize
	Page      int      `json:"page,omitempty"`  // 1-based unit, 0 when the failure is not about one
	Range     *Range   `json:"range,omitempty"`
	Attempt   int      `json:"attempt,omitempty"`
	Detail    string   `json:"detail,omitempty"` // the parser's last lines or a stack; at most 4 KB
}

func (f *Failure) Error() string { return f.Code + ": " + f.Message }

// Fail makes a failure that no retry can fix.
func Fail(category Category, code, format string, args ...any) *Failure {
	return &Failure{Code: code, Category: category, Message: fmt.Sprintf(format, args...)}
}

// FailRetryable makes a failure that a later attempt may not hit.
func FailRetryable(category Category, code, format string, args ...any) *Failure {
	f := Fail(category, code, format, args...)
	f.Retryable = true
	return f
}

// CodeLimit is the failure code for an exceeded quota.
const CodeLimit = "usage_limit_exceeded"

// LimitFailure is the Failure of a full quota; it goes with ErrLimit.
type LimitFailure struct {
	*Failure
	Current int64 // what the tenant holds, in the quota's unit
	Limit   int64
}

func (l *LimitFailure) Unwrap() error { return l.Failure }

// RateLimited says that a provider asked callers to slow down. When the provider
// named a wait, it accompanies the Failure in an error's chain, so that the task can
// be snoozed that long without counting an attempt.
type RateLimited struct {
	After time.Duration // from now; 0 when the provider did not say
}

func (e *RateLimited) Error() string {
	if e.After <= 0 {
		return "the provider asked to slow down"
	}
	return fmt.Sprintf("the provider asked to wait %s", e.After.Round(time.Millisecond))
}

// AsFailure finds the Failure in err's chain, or describes err as one. An unknown
// error is internal and retryable, since nothing shows that it is not, and server
// directories are stripped from its text. It returns nil for nil.
func AsFailure(err error, phase string) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Code: "internal", Category: CategoryInternal, Message: withoutFolders(err), Retryable: true}
	if known, ok := errors.AsType[*Failure](err); ok {
		c := *known
		f = &c
	} else if errors.Is(err, ErrMisconfigured) {
		f.Code, f.Category = "refused", CategoryTarget
	} else if errors.Is(err, ErrUnavailable) {
		f.Code, f.Category = "unavailable", CategoryTarget
	} else if errors.Is(err, ErrReadOnly) {
		f.Code, f.Category = "storage_full", CategoryCapacity
	} else if errors.Is(err, ErrInvalid) {
		f.Code, f.Category, f.Retryable = "invalid", CategoryBadInput, false
	}
	if f.Phase == "" {
		f.Phase = phase
	}
	return f
}

// CategoryOf returns the category of a unit's failure; a ledger keeps only the code.
func CategoryOf(code string) Category {
	for _, c := range []struct {
		part     string
		category Category
	}{
		{"timeout", CategoryTimeout}, {"crash", CategoryCrash}, {"memory", CategoryCrash}, {"encrypt", CategoryEncrypted},
		{"password", CategoryEncrypted}, {"cancel", CategoryCanceled}, {"internal", CategoryInternal}, {"not_planned", CategoryInternal},
	} {
		if strings.Contains(code, c.part) {
			return c.category
		}
	}
	return CategoryBadInput
}

// withoutFolders returns an error's text with file names instead of paths: failures
// are shown to tenants, who must not see the server's directories.
func withoutFolders(err error) string {
	text := err.Error()
	cut := func(file string) {
		if filepath.IsAbs(file) && file != filepath.Dir(file) {
			text = strings.ReplaceAll(text, file, filepath.Base(file))
			if dir := filepath.Dir(file); dir != filepath.Dir(dir) {
				text = strings.ReplaceAll(text, dir, filepath.Base(dir))
			}
		}
	}
	var walk func(err error)
	walk = func(err error) {
		switch e := err.(type) {
		case *fs.PathError:
			cut(e.Path)
		case *os.LinkError:
			cut(e.Old)
			cut(e.New)
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			if inner := e.Unwrap(); inner != nil {
				walk(inner)
			}
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		}
	}
	walk(err)
	return text
}

// Warning is something worth knowing about a result that did not prevent it.
type Warning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Page    int    `json:"page,omitempty"`
}
