package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"sheaf"
	"sheaf/taskstore"
)

// Problem is an RFC 9457 response. Code is stable and meant for programs; Detail is
// a sentence for people.
type Problem struct {
	Type      string          `json:"type" doc:"always about:blank; code tells problems apart"`
	Title     string          `json:"title" doc:"the HTTP status in words"`
	Status    int             `json:"status"`
	Code      string          `json:"code" doc:"stable name of the problem"`
	Detail    string          `json:"detail,omitempty" doc:"what happened and what to do"`
	Category  sheaf.Category  `json:"category,omitempty"`
	Retryable bool            `json:"retryable,omitempty"`
	RequestID string          `json:"request_id,omitempty" doc:"identifies it in the logs"`
	Current   *int64          `json:"current,omitempty" doc:"of a full quota: current use"`
	Limit     *int64          `json:"limit,omitempty" doc:"of a full quota"`
	Run       string          `json:"run,omitempty" doc:"id of the conflicting run"`
	Errors    []ProblemDetail `json:"errors,omitempty" doc:"the fields at fault"`
}

// ProblemDetail names one invalid field.
type ProblemDetail struct {
	Location string `json:"location,omitempty"`
	Message  string `json:"message"`
}

func (p *Problem) Error() string  { return p.Code + ": " + p.Detail }
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes huma respond with problem+json.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// codes maps an HTTP status to its default problem code.
var codes = map[int]string{
	400: "invalid", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed", 406: "not_acceptable",
	408: "timeout", 409: "conflict", 410: "gone", 412: "precondition_failed", 413: "too_large", 415: "unsupported_media_type", 422: "invalid",
	429: sheaf.CodeLimit, 500: "internal", 502: "source_unavailable", 503: "unavailable", 507: "storage_full",
}

func newProblem(status int, code, detail string) *Problem {
	if code == "" {
		code = codes[status]
	}
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: capital(detail)}
}

// capital capitalizes a sentence, unless it starts with an identifier such as
// parser_config.
func capital(text string) string {
	word, _, _ := strings.Cut(text, " ")
	if strings.ContainsFunc(word, func(c rune) bool { return !unicode.IsLetter(c) && c != '\'' && c != ',' && c != '-' }) {
		return text
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// problemOf maps an error to its response, for all routes. The text of unknown
// errors is only logged, since it may name hosts or paths.
func (s *Server) problemOf(ctx context.Context, err error) *Problem {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		p = s.mapError(ctx, err)
	}
	out := *p
	out.RequestID = requestID(ctx)
	return &out
}

func (s *Server) mapError(ctx context.Context, err error) *Problem {
	kinds := []struct {
		kind   error
		status int
	}{
		{sheaf.ErrNotFound, 404}, {sheaf.ErrLimit, 429}, {sheaf.ErrUnauthorized, 401}, {sheaf.ErrForbidden, 403},
		{sheaf.ErrConflict, 409}, {sheaf.ErrStale, 409}, {sheaf.ErrReadOnly, 507}, {sheaf.ErrInvalid, 400},
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			text := sentence(err, k.kind)
			if text == "" || !ourWords(err) || k.kind == sheaf.ErrReadOnly { // what is full, and where, concerns only the operator
				s.log.WarnContext(ctx, "a request was refused", "status", k.status, "error", err)
				text = general[k.status]
			} else if k.status == 404 && strings.Count(text, " ") == 1 { // "job 0123"
				text = "there is no " + text
			}
			p := newProblem(k.status, "", text)
			if full, ok := errors.AsType[*sheaf.LimitFailure](err); ok {
				p.Category, p.Retryable, p.Current, p.Limit = full.Category, true, &full.Current, &full.Limit
			}
			if open, ok := errors.AsType[*taskstore.RunOpen](err); ok {
				p.Code, p.Run = "run_open", open.ID
			}
			return p
		}
	}
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		p := newProblem(statusOf(f), f.Code, f.Message)
		p.Category, p.Retryable = f.Category, f.Retryable
		return p
	}
	switch {
	case errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), ErrStopping):
		return newProblem(503, "", "this server is being stopped; send the request again")
	case errors.Is(err, context.Canceled):
		return newProblem(499, "canceled", "the client went away")
	case errors.Is(err, context.DeadlineExceeded):
		return newProblem(503, "timeout", "a dependency did not answer in time; try again")
	case errors.Is(err, sheaf.ErrUnavailable):
		s.log.WarnContext(ctx, "a dependency is unavailable", "error", err)
		return newProblem(503, "", "a dependency did not answer; try again, and see /readyz for which one")
	}
	s.log.ErrorContext(ctx, "request failed", "error", err)
	return newProblem(500, "", "something went wrong inside Sheaf; the log has the details under this request id")
}

// general are the messages for errors whose own text is not for callers.
var general = map[int]string{
	400: "the request is not valid; compare it with /docs",
	401: "the API key is missing or unknown; send one as `Authorization: Bearer KEY`",
	403: "the API key may not do this; use one with the scope that it needs",
	404: "there is nothing of that name or id; list what there is, and check the address",
	409: "something of that name or id exists already, or has changed meanwhile; read it again and decide anew",
	429: "a limit is reached; try again later",
	507: "the server's storage takes no writes, because it is full or read-only, and nothing was changed; tell the operator, and send the request again later",
}

// ourWords reports whether this service wrote an error's text for users. Drivers
// and the operating system mention hosts, statements and paths, which callers must
// not see.
func ourWords(err error) bool {
	switch e := err.(type) {
	case *sheaf.Failure, *sheaf.LimitFailure, *Problem:
		return true
	case interface{ Unwrap() error }:
		return plainType(err) && (e.Unwrap() == nil || ourWords(e.Unwrap()))
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if !ourWords(inner) {
				return false
			}
		}
		return plainType(err)
	}
	return plainType(err)
}

// plainType reports whether an error is plain text or a type of this module.
func plainType(err error) bool {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == "errors" || t.PkgPath() == "fmt" || t.PkgPath() == "sheaf" || strings.HasPrefix(t.PkgPath(), "sheaf/")
}

// sentence returns the error's text without the kind's prefix, or "" if there is
// nothing else.
func sentence(err, kind error) string {
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return f.Message
	}
	text := err.Error()
	if text == kind.Error() {
		return ""
	}
	return strings.TrimPrefix(text, kind.Error()+": ")
}

func statusOf(f *sheaf.Failure) int {
	switch f.Code {
	case "too_large":
		return http.StatusRequestEntityTooLarge
	case "unsupported_format", "part_missing":
		return http.StatusUnsupportedMediaType
	}
	switch f.Category {
	case sheaf.CategoryBadInput, sheaf.CategoryEncrypted, sheaf.CategoryPolicy, sheaf.CategoryCrash, sheaf.CategoryTimeout:
		return http.StatusUnprocessableEntity // a bad document is never the server's fault
	case sheaf.CategoryCapacity:
		return http.StatusTooManyRequests
	case sheaf.CategorySource:
		return http.StatusBadGateway
	case sheaf.CategoryTarget:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// writeProblem responds outside of huma's handlers.
func (s *Server) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := s.problemOf(r.Context(), err)
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may be gone
}
