package html

import (
	"fmt"
	"strings"
	"testing"

	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

func sample() []byte {
	return []byte(`<!doctype html><html lang="en"><head><title>Lamp</title><meta name="author" content="Ann"><style>p{}</style></head><body>
<nav><a href="/">Home</a></nav><h1>The lamp</h1><p>Turn it <b>on</b>.<br>Then off.</p><p hidden>secret</p><script>x()</script>
<ul><li>one<ul><li>inner</li></ul></li><li>two</li></ul><dl><dt>Watt</dt><dd>unit of power</dd></dl>
<table><caption>Sizes</caption><tr><th>Part</th><th colspan="2">Size</th></tr><tr><td rowspan="2">Foot</td><td>1</td><td>2</td></tr><tr><td>3</td><td>4</td></tr></table>
<pre><code class="language-go">func main() {
	x()
}</code></pre><blockquote><p>Said he.</p></blockquote><figure><img src="data:image/png;base64,AAAA" alt="A brass lamp"><figcaption>Figure 1</figcaption></figure></body></html>`)
}

var options = parser.Options{Name: "document", MediaType: parser.MediaHTML}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(), sample(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestEmptyFileIsAFailure(t *testing.T) {
	if _, _, err := formattest.Read(t, New(), nil, options, nil); err == nil {
		t.Fatal("a file without bytes was read")
	}
}

func TestDeepNestingIsReadAsText(t *testing.T) {
	page := strings.Repeat("<div>", 100_000) + "needle"
	plan, units, err := formattest.Read(t, New(), []byte(page), options, nil)
	if err != nil || len(plan.Warnings) == 0 || units[0].Blocks[0].Text != "needle" {
		t.Fatalf("plan %+v, units %+v, error %v", plan, units, err)
	}
}

func TestUnclosedTagsDoNotMultiplyWithoutBound(t *testing.T) {
	var page strings.Builder
	for i := range 400 {
		fmt.Fprintf(&page, "<b id=%d>", i)
	}
	page.WriteString(strings.Repeat("<p>x", 50_000))
	if _, _, err := formattest.Read(t, New(), []byte(page.String()), options, nil); err != nil {
		t.Fatal(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add([]byte(`<table><tr><td rowspan=3 colspan=900>x<td>y</table>`))
	f.Add([]byte(`<meta charset=windows-1252>\xe9`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, nil) // it checks what it reads
	})
}
