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

// Kinds of error that cross package borders. Adapters turn driver errors into
// these (wrapped with %w), callers test with errors.Is, and the HTTP edge maps
// each to one status.
var (
	ErrNotFound     = errors.New("not found")
	ErrConflict     = errors.New("conflict")                // a unique key or an expected state is in the way
	ErrStale        = errors.New("stale")                   // the epoch has moved on: somebody else owns the task now
	ErrInvalid      = errors.New("invalid")                 // the caller's input is wrong; retrying cannot help
	ErrUnavailable  = errors.New("temporarily unavailable") // a dependency did not answer; retrying may help
	ErrLimit        = errors.New("limit exceeded")          // a quota or a full queue
	ErrUnauthorized = errors.New("unauthorized")            // no key, or an unknown one
	ErrForbidden    = errors.New("forbidden")               // the key lacks the scope
	ErrCanceled     = errors.New("canceled")                // somebody asked for it to stop
	// ErrMisconfigured: a dependency answers, and refuses whatever this process
	// asks: a wrong key, model or width of vectors. Work waits, at no cost, until
	// an operator has cured it.
	ErrMisconfigured = errors.New("a dependency refuses this process")
	ErrReadOnly      = errors.New("storage is not accepting writes") // disk full, read-only folder or cluster
)

// Category groups failure codes by who can cure them.
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

// Failure says why a task, a unit or a document ended badly: Code is stable
// and for programs, Message is one sentence for people that ends in what to do.
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

// Fail makes a failure that no retry can cure.
func Fail(category Category, code, format string, args ...any) *Failure {
	return &Failure{Code: code, Category: category, Message: fmt.Sprintf(format, args...)}
}

// FailRetryable makes a failure that a later attempt may not meet.
func FailRetryable(category Category, code, format string, args ...any) *Failure {
	f := Fail(category, code, format, args...)
	f.Retryable = true
	return f
}

// CodeLimit is the code of what exceeds a quota.
const CodeLimit = "usage_limit_exceeded"

// LimitFailure is the Failure of a quota that is full; it goes with ErrLimit.
type LimitFailure struct {
	*Failure
	Current int64 // what the tenant holds, in the quota's unit
	Limit   int64
}

func (l *LimitFailure) Unwrap() error { return l.Failure }

// RateLimited says that a provider asked callers to slow down. It stands beside
// the Failure in an error's chain when the provider named a wait, so that the
// task can be snoozed for as long without an attempt being counted against it.
type RateLimited struct {
	After time.Duration // from now; 0 when the provider did not say
}

func (e *RateLimited) Error() string {
	if e.After <= 0 {
		return "the provider asked to slow down"
	}
	return fmt.Sprintf("the provider asked to wait %s", e.After.Round(time.Millisecond))
}

// AsFailure finds the Failure in err's chain, or describes err as one: an
// unknown error is internal and retryable, since nobody has shown it is not, and
// its text loses the folders of the server.
// It returns nil for nil.
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

// CategoryOf is the category of a unit's failure, of which a ledger keeps the
// code alone.
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

// withoutFolders is an error's text with the names of files instead of their
// paths: a failure is shown to tenants, whom the server's folders do not concern.
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

// Warning is something a reader of the result should know that did not stop it.
type Warning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Page    int    `json:"page,omitempty"`
}
