package pdf

import (
	"context"
	"fmt"
	"testing"

	"sheaf"
	"sheaf/parser/pdf/enginetest"
)

func TestHyphensAtLineEnds(t *testing.T) {
	for name, c := range map[string]struct {
		head, next string
		page       string
		broken     bool
	}{
		"a word":                              {"se-", "quence", "", true},
		"a word of the list, both halves are": {"port-", "able", "", true},
		"a compound":                          {"implementation-", "dependent", "", false},
		"the rest of a compound":              {"operating-system-", "specific", "", false},
		"the start of a compound":             {"operating-", "system-specific", "", false},
		"a prefix":                            {"un-", "likely", "", true},
		"in brackets":                         {"(imple-", "mentation)", "", true},
		"a number":                            {"COVID-19-", "related", "", false},
		"a capital":                           {"Anglo-", "American", "", false},
		"neither half is a word":              {"Verant-", "wortung", "", true},
		"the page writes it with a hyphen":    {"co-", "operate", "they co-operate here ", false},
		"the page writes it joined":           {"data-", "base", "the database is ", true},
		"the page knows a longer word":        {"on-", "line", "an online-shop is ", true},
	} {
		s := &sheet{page: &wordPage{text: c.page}}
		if got := s.broken(c.head, c.next, s.texts); got != c.broken {
			t.Errorf("%s: %s|%s broken: %v", name, c.head, c.next, got)
		}
	}
}

func TestPageNumbersLeaveTheTextWhereverThePageEnds(t *testing.T) {
	f := enginetest.File{}
	for i := range 3 {
		f.Pages = append(f.Pages, enginetest.Page{Content: enginetest.Text("F4", 11, 72, 720, fmt.Sprintf("The page about %s is not full, and carries its number right below the text.", []string{"apples", "pears", "plums"}[i])) +
			enginetest.Text("F4", 10, 300, 560, fmt.Sprint(i+1))})
	}
	for _, cut := range [][2]int{{1, 3}, {2, 2}} { // what is read does not depend on the cut
		d, err := openBytes(t, f.Bytes(), sheaf.ParseConfig{})
		if err != nil {
			t.Fatal(err)
		}
		err = d.Parse(context.Background(), sheaf.Range{From: cut[0], To: cut[1]}, func(u sheaf.UnitResult) error {
			if len(u.Blocks) != 1 || len(u.Running) != 1 || u.Running[0] != fmt.Sprint(u.Unit) {
				t.Errorf("pages %v: %+v, running %q", cut, u.Blocks, u.Running)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	f.Pages = f.Pages[:1]
	f.Pages[0].Content = enginetest.Text("F4", 11, 72, 720, "A total stands alone below its column, which is no number of a page.") + enginetest.Text("F4", 10, 300, 560, "1402")
	if u := parse(t, f)[0]; len(u.Running) > 0 {
		t.Errorf("running %q", u.Running)
	}
}
