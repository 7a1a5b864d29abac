package subtitles

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/cputest"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

var options = parser.Options{Name: "film.srt", MediaType: "application/x-subrip"}

const srt = "\ufeff1\r\n00:00:01,000 --> 00:00:20,500\r\n<i>The harvest</i>\r\nwas good.\r\n\r\n2\r\n00:00:20,500 --> 00:00:59,000 X1:40\r\n{\\an8}Quinces above all.\r\n\r\n3\r\n01:01:01,5 --> 01:02:05,000\r\n1984\r\n"

const vtt = "WEBVTT - a title\n\nSTYLE\n::cue { color: red }\n\nNOTE a remark\nof two lines\n\nintro\n00:01.000 --> 00:02.500 align:start\n<v Ann>Hello <c.loud>there</c>.\n\n00:03.000 --> 00:04.000\n\n"

// show is a line a unit.
func show(units []sheaf.UnitResult) string {
	var b strings.Builder
	for _, u := range units {
		fmt.Fprintf(&b, "%s %s\n", u.Label, u.Blocks[0].Text)
	}
	return b.String()
}

func TestCuesBecomeTimedUnits(t *testing.T) {
	for content, want := range map[string]string{
		srt: "0:00:01–0:00:59 The harvest was good. Quinces above all.\n1:01:01–1:02:05 1984\n",
		vtt: "0:00:01–0:00:02 Hello there.\n",
	} {
		plan, units, err := formattest.Read(t, New(), []byte(content), options, nil)
		if err != nil || show(units) != want || plan.Metadata["duration_seconds"] == "" {
			t.Errorf("%v %+v\n%s", err, plan, show(units))
		}
	}
}

func TestOtherEncodingsAreRead(t *testing.T) {
	o := options
	o.Config.Encoding = sheaf.Set("windows-1252")
	_, units, err := formattest.Read(t, New(), []byte("1\n00:00:01,000 --> 00:00:02,000\ncaf\xe9\n"), o, nil)
	if err != nil || !strings.HasSuffix(show(units), "café\n") {
		t.Errorf("%v %s", err, show(units))
	}
}

func TestBadInput(t *testing.T) {
	for content, code := range map[string]string{"": "empty_file", "Only prose.\n": "invalid_subtitles", "1\n00:00:01,000 --> 00:00:02,000\n\n": "invalid_subtitles"} {
		_, _, err := formattest.Read(t, New(), []byte(content), options, nil)
		if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != code {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(srt))
	f.Add([]byte(vtt))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, nil) // it checks what it reads
	})
}

// Many cues, and a cue of many lines, are read in the time of their length.
func TestManyLinesAreReadInTime(t *testing.T) {
	const n = 100_000
	one := "1\n00:00:01,000 --> 00:00:02,000\n"
	for name, text := range map[string]string{"cues": strings.Repeat(one+"Words.\n\n", n), "lines of one cue": one + strings.Repeat("Words of a line that goes on.\n", n)} {
		begun := cputest.Used(t)
		got := cues(text)
		if took := cputest.Used(t) - begun; took > cputest.Slowdown*time.Second {
			t.Errorf("%s: %d segments took %s", name, len(got), took)
		}
		if len(got) == 0 || !strings.HasPrefix(got[0].Text, "Words") {
			t.Errorf("%s: %d segments", name, len(got))
		}
	}
}
