package mbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/eml"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/text"
)

func registry() *parser.Registry {
	return parser.NewRegistry(New(registry), eml.New(registry), text.New())
}

func mail(subject, body string) string {
	return "From a@example.org Mon Jan  5 10:00:00 2026\nFrom: a@example.org\nTo: b@example.org\nSubject: " + subject + "\nDate: Mon, 05 Jan 2026 10:00:00 +0000\n\n" + body + "\n\n"
}

var options = parser.Options{Name: "all.mbox", MediaType: parser.MediaMBOX}

func sample() string {
	return mail("One", "First.\n\n>From here it is quoted.\nFrom within a paragraph.") + mail("Two", "Second.") +
		"From nobody Mon Jan  5 10:00:00 2026\nno header at all\n\n" + mail("Four", "Last.")
}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(registry), []byte(sample()), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestManyMessagesAreCutIntoTasks(t *testing.T) {
	var b strings.Builder
	for i := range 250 {
		b.WriteString(strings.ReplaceAll(mail(fmt.Sprint("Number ", i), fmt.Sprintf("Body %d.", i)), "\n", "\r\n"))
	}
	plan, units, err := formattest.Read(t, New(registry), []byte(b.String()), options, nil)
	if err != nil || plan.Units != 250 || plan.RangeSize != rangeSize {
		t.Fatal(plan, err)
	}
	for i, u := range units {
		if u.Label != fmt.Sprint("Number ", i) || u.Blocks[0].Kind != sheaf.BlockHeading || u.Blocks[0].Text != u.Label || !strings.Contains(u.Blocks[2].Text, fmt.Sprintf("Body %d.", i)) {
			t.Fatalf("message %d is %q: %+v", i+1, u.Label, u.Blocks)
		}
	}
}

func TestFingerprintsFollowTheMessages(t *testing.T) {
	of := func(content string) []uint64 {
		plan, _, err := formattest.Read(t, New(registry), []byte(content), options, nil)
		if err != nil {
			t.Fatal(err)
		}
		return plan.Fingerprints
	}
	a, b := of(mail("One", "x")+mail("Two", "y")), of(mail("New", "z")+mail("One", "x")+mail("Two", "y"))
	if a[0] != b[1] || a[1] != b[2] || b[0] == b[1] {
		t.Error(a, b)
	}
}

func TestWhatIsNoMailboxIsAFailure(t *testing.T) {
	for content, code := range map[string]string{"": "empty_file", "text\n": "invalid_mbox", "From ": "invalid_mbox"} {
		_, _, err := formattest.Read(t, New(registry), []byte(content), options, nil)
		if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != code {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(sample()))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(registry), b, options, nil) // it checks what it reads
	})
}
