package command

import (
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// later is the flag --not-before: a time of day, a duration from now, or a time.
type later struct{ at time.Time }

func (l *later) String() string {
	if l.at.IsZero() {
		return ""
	}
	return l.at.Format(time.RFC3339)
}

func (l *later) Type() string { return "TIME" }

func (l *later) Set(text string) (err error) {
	l.at, err = laterTime(text, time.Now())
	return err
}

// flag adds --not-before. When it is used, the command does not wait for the end
// unless --wait is given.
func (l *later) flag(cmd *cobra.Command, wait *bool) {
	cmd.Flags().Var(l, "not-before", "begin at this `TIME`: 22:00, 2h from now, or 2026-01-31T22:00:00Z")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		if !l.at.IsZero() && !cmd.Flags().Changed("wait") {
			*wait = false
		}
	}
}

// query is the request parameter, or "" if no time was given.
func (l *later) query() string {
	if l.at.IsZero() {
		return ""
	}
	return "?not_before=" + url.QueryEscape(l.at.UTC().Format(time.RFC3339))
}

// laterTime parses a time of day (its next occurrence, local time), a duration from
// now, or an RFC 3339 timestamp.
func laterTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(d), nil
	}
	if at, err := time.ParseInLocation("15:04", text, now.Location()); err == nil {
		next := time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), 0, 0, now.Location())
		if !next.After(now) {
			next = time.Date(now.Year(), now.Month(), now.Day()+1, at.Hour(), at.Minute(), 0, 0, now.Location())
		}
		return next, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if at, err := time.ParseInLocation("2006-01-02 15:04", text, now.Location()); err == nil {
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%q is no time; give one such as 22:00, 2h for in two hours, \"2026-01-31 22:00\" or 2026-01-31T22:00:00Z", text)
}
