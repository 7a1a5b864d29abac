package enrich

import (
	"context"
	"errors"
	"fmt"
	"sheaf/internal/cputest"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
)

// What is searched in parts has the findings of the whole.
func TestFindingsOfLongTextAreThoseOfItsParts(t *testing.T) {
	var b strings.Builder
	var want []Finding
	add := func(kind, s string) {
		want = append(want, Finding{kind, b.Len(), b.Len() + len(s)})
		b.WriteString(s)
	}
	for i := range 20_000 {
		b.WriteString("See ")
		switch i % 4 {
		case 0:
			add("EMAIL", fmt.Sprintf("someone.%d@mail.example", i))
		case 1:
			add("IBAN", "DE89 3704 0044 0532 0130 00")
		case 2:
			add("PHONE", "+49 30 901820")
		case 3:
			b.WriteString(strings.Repeat("word", i%7))
		}
		b.WriteString(", then.")
		b.WriteString([]string{"\n", " "}[i%2])
	}
	if got := FindPII(b.String()); !slices.Equal(got, want) {
		t.Errorf("%d found, %d are there", len(got), len(want))
	}
}

func TestPersonalDataObeysItsContext(t *testing.T) {
	why := errors.New("canceled")
	for name, text := range map[string]string{
		"letters": strings.Repeat("a", 8<<20), "digits": strings.Repeat("1 ", 4<<20), "mails": strings.Repeat("a@b.cc ", 1<<20),
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan time.Duration, 1)
		timer := time.AfterFunc(20*time.Millisecond, func() { ended <- cputest.Used(t); cancel(why) })
		_, err := Units(ctx, []sheaf.UnitResult{{Blocks: []sheaf.Block{{Text: text}}}}, true)
		if timer.Stop() {
			cancel(nil)
			t.Errorf("%s: over before it could be ended", name)
			continue
		}
		if late := cputest.Used(t) - <-ended; late > cputest.Slowdown*time.Second || !errors.Is(err, why) {
			t.Errorf("%s: %v of CPU after its context: %v", name, late, err)
		}
	}
}
