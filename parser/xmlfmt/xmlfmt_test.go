package xmlfmt

import (
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/html"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/text"
)

func registry() *parser.Registry {
	return parser.NewRegistry(New(registry), html.New(), text.New())
}

var options = parser.Options{Name: "document.xml", MediaType: "application/xml"}

const article = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE article PUBLIC "-//NLM//DTD JATS" "JATS.dtd">
<article><front><journal-meta><issn>1234-5678</issn></journal-meta><article-meta>
 <title-group><article-title>Quince <italic>yield</italic></article-title></title-group>
 <contrib-group><contrib><name><surname>Byrne</surname><given-names>Ada</given-names></name></contrib></contrib-group>
 <abstract><p>We count quinces.</p></abstract></article-meta></front>
<body><sec><title>Method</title><p>Trees were counted<xref ref-type="bibr">1</xref> twice<fn><p>By hand.</p></fn>.</p>
 <list><list-item><p>in spring</p></list-item><list-item><p>in autumn</p><list><list-item><p>after rain</p></list-item></list></list-item></list>
 <sec><title>Plots</title><p>Two <bold>plots</bold>.</p>
 <table-wrap><label>Table 1</label><caption><p>Yield</p></caption><table><thead><tr><th>Plot</th><th>Tons</th></tr></thead>
 <tbody><tr><td>A</td><td>12</td></tr><tr><td colspan="2">none</td></tr></tbody></table></table-wrap>
 <fig><label>Figure 1</label><caption><p>An orchard.</p></caption><graphic href="a.png"/></fig></sec></sec></body>
<back><ref-list><ref><mixed-citation>Old, 1999.</mixed-citation></ref></ref-list></back></article>`

const manual = `<book xmlns="http://docbook.org/ns/docbook"><info><title>Pump manual</title><author><personname>A. Byrne</personname></author></info>
<chapter><title>Start</title><para>Press <guibutton>On</guibutton>.</para>
<programlisting language="bash">pump --start
  pump --stop</programlisting>
<informaltable><tgroup cols="3"><colspec colname="a"/><colspec colname="b"/><colspec colname="c"/>
<tbody><row><entry morerows="1">x</entry><entry namest="b" nameend="c">y</entry></row><row><entry>1</entry><entry>2</entry></row></tbody></tgroup></informaltable>
<note><para>Wear gloves.</para></note></chapter></book>`

const data = `<catalog version="2"><shop name="North"><book id="1"><title-en>Sums</title-en><price>3.50</price></book><book id="2"><title-en>Words</title-en></book></shop>
<owner><name>Ada</name><mail kind="home">ada@example.org</mail></owner></catalog>`

const feed = `<rss version="2.0"><channel><title>News</title><item><title>Rain</title><link>http://example.org/1</link><description>&lt;p&gt;It &lt;b&gt;rained&lt;/b&gt;.&lt;/p&gt;</description></item></channel></rss>`

func TestGolden(t *testing.T) {
	for name, content := range map[string]string{"article": article, "manual": manual, "data": data, "feed": feed} {
		t.Run(name, func(t *testing.T) {
			plan, units, err := formattest.Read(t, New(registry), []byte(content), options, nil)
			if err != nil {
				t.Fatal(err)
			}
			formattest.Golden(t, name, plan, units)
		})
	}
}

// all is the text of all blocks.
func all(units []sheaf.UnitResult) string {
	var b strings.Builder
	for _, u := range units {
		for _, k := range u.Blocks {
			b.WriteString(k.Text + "\n")
			if k.Table != nil {
				b.WriteString(strings.Join(k.Table.Columns, "|") + "\n")
				for _, r := range k.Table.Rows {
					b.WriteString(strings.Join(r, "|") + "\n")
				}
			}
		}
	}
	return b.String()
}

func TestEntitiesAreNeitherExpandedNorFetched(t *testing.T) {
	bomb := `<!DOCTYPE a [<!ENTITY x0 "ha"><!ENTITY secret SYSTEM "file:///etc/passwd">`
	for i := range 30 {
		bomb += `<!ENTITY x` + string(rune('1'+i)) + ` "&x` + string(rune('0'+i)) + `;&x` + string(rune('0'+i)) + `;">`
	}
	bomb += `]><a><b>&x9; &secret; fine</b></a>`
	_, units, err := formattest.Read(t, New(registry), []byte(bomb), options, nil)
	if got := all(units); err != nil || len(got) > 200 || !strings.Contains(got, "fine") || strings.Contains(got, "root:") {
		t.Errorf("%q %v", got, err)
	}
}

func TestBrokenFilesAreReadToTheBreak(t *testing.T) {
	for content, want := range map[string]string{
		`<a><b>here</b><c>cut off`:   "here",
		`no element at all, a < b`:   "no element at all",
		`<?xml version="1.0"?>`:      "<?xml",
		`<html><body><p>A page</p>`:  "A page",
		`<a b="1"/><a b="2">two</a>`: "b: 1",
		"<?xml version='1.0' encoding='iso-8859-1'?><a><b>\xe4pfel</b></a>": "äpfel",
	} {
		plan, units, err := formattest.Read(t, New(registry), []byte(content), options, nil)
		if err != nil || !strings.Contains(all(units), want) {
			t.Errorf("%q: %q %v", content, all(units), err)
		}
		if strings.Contains(content, "cut") && (len(plan.Warnings) != 1 || plan.Warnings[0].Code != "document_damaged") {
			t.Errorf("%+v", plan.Warnings)
		}
	}
}

func TestHostileNestsEndSoon(t *testing.T) {
	start := time.Now()
	for name, content := range map[string]string{
		"deep":            strings.Repeat("<sec><title>t</title>", 5000) + "<p>x</p>",
		"deep below text": "<a>" + strings.Repeat("<b>x", 900),
		"wide":            "<a>" + strings.Repeat("<b/>", 100_000) + "</a>",
		"pieces":          "<a><p>" + strings.Repeat("x<!-- -->", 200_000) + "</p></a>",
		"columns":         "<a>" + strings.Repeat("<r><x>1</x></r>", 50) + strings.Repeat("<r><y>1</y></r>", 50_000) + "</a>",
		"spans":           `<a><p/><table><tr>` + strings.Repeat(`<td colspan="999999999" rowspan="99999">x</td>`, 5000) + `</tr></table></a>`,
	} {
		if _, _, err := formattest.Read(t, New(registry), []byte(content), options, nil); err != nil && !strings.Contains(err.Error(), "deep") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d := time.Since(start); d > time.Minute { // a second, where nothing grows with the square
		t.Errorf("%v", d)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{article, manual, data, feed, "<a>&#x41;<![CDATA[x]]></a>"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(registry), b, options, nil) // it checks what it reads
	})
}
