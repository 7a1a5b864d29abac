package command

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sheaf/internal/api"
)

func (g *global) printJSON(v any) error {
	enc := json.NewEncoder(g.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// listed is an entire list as --json prints it.
func listed[T any](items []T) api.List[T] {
	if items == nil {
		items = []T{}
	}
	return api.List[T]{Items: items}
}

func (g *global) table(rows func(w io.Writer)) error {
	w := tabwriter.NewWriter(g.out, 0, 4, 2, ' ', 0)
	rows(w)
	return w.Flush()
}

// note prints what is not a result: hints, and what was done. --quiet and --json
// suppress it.
func (g *global) note(format string, args ...any) {
	if !g.quiet && !g.json {
		fmt.Fprintf(g.err, format+"\n", args...)
	}
}

// done prints the result of an action, as JSON or as a sentence.
func (g *global) done(answer any, format string, args ...any) error {
	if g.json {
		return g.printJSON(answer)
	}
	if !g.quiet {
		fmt.Fprintf(g.out, format+"\n", args...)
	}
	return nil
}

// confirmation holds the flags of a destructive command.
type confirmation struct{ yes, dryRun bool }

func (c *confirmation) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	c.dryFlag(cmd)
}

func (c *confirmation) dryFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "show what would be done and change nothing")
}

// errNotConfirmed means that the user declined.
var errNotConfirmed = errors.New("not confirmed; nothing was changed")

// ask has the user confirm something irreversible. Without a terminal, --yes is
// required.
func (g *global) ask(c confirmation, question string) error {
	if c.yes {
		return nil
	}
	if !g.isTerminal(g.in) {
		return usageError{cured(fmt.Errorf("this needs a confirmation: %s", question), "Add --yes to confirm, or --dry-run to see what would be done.")}
	}
	ok, err := g.yesNo(question)
	if err == nil && !ok {
		err = errNotConfirmed
	}
	return err
}

// yesNo asks at the terminal; the default is no.
func (g *global) yesNo(question string) (bool, error) {
	fmt.Fprintf(g.err, "%s [y/N] ", question)
	line, err := bufio.NewReader(io.LimitReader(g.in, 1000)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// columns is the width of the terminal, or 80 if unknown.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// count formats a number with its noun: "1 document", "2,415 documents".
func count(n int, noun string) string {
	if n != 1 {
		noun = plural(noun)
	}
	return number(n) + " " + noun
}

func plural(noun string) string {
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.HasSuffix(stem, "e") && !strings.HasSuffix(stem, "a") {
		return stem + "ies"
	}
	return noun + "s"
}

// number groups thousands: 12,345.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// rateOf formats how many a second: "0.25", "24.5", "2,040".
func rateOf(v float64) string {
	if v < 99.95 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return number(int(v + .5))
}

// size formats bytes: "0 B", "14 kB", "6.6 MB".
func size(n int64) string {
	v, unit := float64(n), "B"
	for _, next := range []string{"kB", "MB", "GB", "TB"} {
		if v < 999.5 {
			break
		}
		v, unit = v/1000, next
	}
	if unit == "B" || v >= 9.95 {
		return fmt.Sprintf("%.0f %s", v, unit)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

// span formats a duration: "0.4 s", "12 s", "1 min 12 s", "3 h 5 min", "2 d 4 h".
func span(d time.Duration) string {
	two := func(a int, unitA string, b int, unitB string) string {
		if b == 0 {
			return fmt.Sprintf("%d %s", a, unitA)
		}
		return fmt.Sprintf("%d %s %d %s", a, unitA, b, unitB)
	}
	switch s := int(d.Round(time.Second).Seconds()); {
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return two(s/60, "min", s%60, "s")
	case s < 86400:
		return two(s/3600, "h", s%3600/60, "min")
	default:
		return two(s/86400, "d", s%86400/3600, "h")
	}
}

// left formats the remaining time as a range of two quantiles.
func left(p50, p90 float64) string {
	if p90 < 2 {
		return "almost done"
	}
	low, high := roughly(p50), roughly(p90)
	if low == high {
		return "about " + high + " left"
	}
	lowN, lowUnit, _ := strings.Cut(low, " ")
	if _, highUnit, _ := strings.Cut(high, " "); lowUnit == highUnit {
		low = lowN
	}
	return "about " + low + "–" + high + " left"
}

// roughly formats seconds in a single unit.
func roughly(s float64) string {
	switch {
	case s < 90:
		return fmt.Sprintf("%.0f s", max(s, 1))
	case s < 90*60:
		return fmt.Sprintf("%.0f min", s/60)
	}
	return fmt.Sprintf("%.0f h", s/3600)
}

func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

// excerpt is at most n characters of a text, on one line.
func excerpt(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + " …"
	}
	return s
}

// shortName truncates a name in the middle: both its start and its end matter.
func shortName(s string, n int) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) <= n {
		return string(r)
	}
	tail := min(n/3, 16)
	return string(r[:n-tail-1]) + "…" + string(r[len(r)-tail:])
}

// moment formats a time for a table, "" if it is zero.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// quoted quotes a word for a shell.
func quoted(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r == '-' || r == '_' || r == '.' || r == '/' || r == ':' || r == ',' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 127)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// inDataset is the flag that repeats this command's dataset in a hint.
func (g *global) inDataset() string {
	if g.dataset == defaultDataset {
		return ""
	}
	return " -d " + quoted(g.dataset)
}
