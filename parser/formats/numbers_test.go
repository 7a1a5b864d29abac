package formats

import (
	"strings"
	"testing"
)

// A list is stored without its numbers, and people ask for "step 3": each format shows
// the numbers that its readers see.
func TestNumbersOfListsAreKept(t *testing.T) {
	slide := `<p:sp><p:txBody>` +
		`<a:p><a:pPr><a:buAutoNum type="arabicPeriod"/></a:pPr><a:r><a:t>Pick</a:t></a:r></a:p>` +
		`<a:p><a:pPr lvl="1"><a:buAutoNum type="alphaLcParenBoth"/></a:pPr><a:r><a:t>ripe ones</a:t></a:r></a:p>` +
		`<a:p><a:endParaRPr/></a:p>` +
		`<a:p><a:pPr><a:buAutoNum type="arabicPeriod"/></a:pPr><a:r><a:t>Press</a:t></a:r></a:p>` +
		`<a:p><a:pPr lvl="1"><a:buAutoNum type="alphaLcParenBoth"/></a:pPr><a:r><a:t>slowly</a:t></a:r></a:p>` +
		`<a:p><a:r><a:t>Then</a:t></a:r></a:p>` +
		`<a:p><a:pPr><a:buAutoNum type="romanUcParenR" startAt="4"/></a:pPr><a:r><a:t>Bottle</a:t></a:r></a:p>` +
		`</p:txBody></p:sp>`
	for name, c := range map[string]struct{ content, want string }{
		"steps.html": {`<!doctype html><h1>T</h1><ol start=3><li>Pick<ul><li>ripe ones</ul><li><p>Press</p><p>slowly</p><ol type=a><li>wait</ol><li value=9>Bottle</ol><ol style="list-style: none"><li>Home</ol><nav><ol><li>Up</ol></nav><ol reversed><li>last<li>first</ol>`,
			"T|3. Pick|ripe ones|4. Press|slowly|a. wait|9. Bottle|Home|Up|2. last|1. first"},
		"steps.md":   {"# T\n\n3. Pick\n   - ripe ones\n4. Press\n\n   slowly\n\n   1) wait\n\n- Home\n", "T|3. Pick|ripe ones|4. Press|slowly|1) wait|Home"},
		"steps.pptx": {string(deckOf("", slide)), "1. Pick|(a) ripe ones|2. Press|(a) slowly|Then|IV) Bottle"},
		"steps.dbk": {`<article><title>T</title><procedure><step><para>Pick</para></step><step><para>Press</para></step></procedure><orderedlist numeration="upperroman"><listitem><para>one</para></listitem></orderedlist><itemizedlist><listitem><para>Home</para></listitem></itemizedlist></article>`,
			"T|1. Pick|2. Press|I. one|Home"},
		"steps.tex": {"\\documentclass{article}\\begin{document}\\section{T}\\begin{enumerate}\\item Pick\\begin{enumerate}\\item ripe ones\\end{enumerate}\\item Press\\begin{itemize}\\item slowly\\end{itemize}\\item[Last] Bottle\\end{enumerate}\\end{document}",
			"T|1. Pick|(a) ripe ones|2. Press|slowly|Last Bottle"},
	} {
		var got []string
		for _, b := range blocksOf(t, c.content, name) {
			got = append(got, b.Text)
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, s, c.want)
		}
	}
}
