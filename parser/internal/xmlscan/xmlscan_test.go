package xmlscan_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"sheaf/parser/internal/xmlscan"
)

// text joins all character data, with a mark for each element.
func text(r io.Reader) (string, error) {
	var b strings.Builder
	for s := xmlscan.New(r); ; {
		k, err := s.Next()
		if err != nil {
			return b.String(), err
		}
		switch k {
		case xmlscan.EOF:
			return b.String(), nil
		case xmlscan.Start:
			b.WriteString("<" + string(s.Name()) + s.Attr("v") + ">")
		case xmlscan.End:
			b.WriteString("</>")
		case xmlscan.Text:
			b.Write(s.Text())
		}
	}
}

func reference(doc string) (string, error) {
	var b strings.Builder
	for d := xml.NewDecoder(strings.NewReader(doc)); ; {
		t, err := d.RawToken()
		if err == io.EOF {
			return b.String(), nil
		}
		if err != nil {
			return "", err
		}
		switch t := t.(type) {
		case xml.StartElement:
			v := ""
			for _, a := range t.Attr {
				if a.Name.Local == "v" {
					v = a.Value
					break
				}
			}
			b.WriteString("<" + t.Name.Local + v + ">")
		case xml.EndElement:
			b.WriteString("</>")
		case xml.CharData:
			b.Write(t)
		}
	}
}

func TestReadsWhatEncodingXMLReads(t *testing.T) {
	long := strings.Repeat("grüße &amp; 日本語 ", 20_000)
	for _, doc := range []string{
		`<?xml version="1.0"?><a:b v="1 &gt; 0"><!-- <x> --><c v='>'/>t&#x41;&#66;<![CDATA[<&]]></a:b>`,
		`<!DOCTYPE a [<!ENTITY e "x">]><a>` + long + `</a>`,
		"\ufeff<a/>",
		`<a w="'>" v = '">"' ><b:c x='"' v="/>"/><d v="` + strings.Repeat("x>'", 3_000) + `" w=''>text</d ></a>`,
	} {
		want, err := reference(strings.TrimPrefix(doc, "\ufeff"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []io.Reader{strings.NewReader(doc), iotest.HalfReader(strings.NewReader(doc)), iotest.OneByteReader(strings.NewReader(doc))} {
			if got, err := text(r); err != nil || got != want {
				t.Errorf("got %.80q, error %v, want %.80q", got, err, want)
			}
		}
	}
}

func TestBounds(t *testing.T) {
	for doc, want := range map[string]error{
		strings.Repeat("<a>", 5000):             xmlscan.ErrDepth,
		`<a v="` + strings.Repeat("x", 3<<20):   xmlscan.ErrTag,
		`<a`:                                    io.ErrUnexpectedEOF,
		`<a><!-- never closed`:                  io.ErrUnexpectedEOF,
		strings.Repeat(`<b v="&lt;"/>`, 10_000): nil,
	} {
		if _, err := text(strings.NewReader(doc)); !errors.Is(err, want) {
			t.Errorf("%.20q: error %v, want %v", doc, err, want)
		}
	}
}

func FuzzNext(f *testing.F) {
	f.Add(`<a v="1"><b/>&amp;</a>`)
	f.Add("<?xml encoding='utf-16'?><![CDATA[")
	f.Fuzz(func(t *testing.T, doc string) {
		whole, err := text(strings.NewReader(doc))
		bytewise, err2 := text(iotest.OneByteReader(strings.NewReader(doc)))
		if (err == nil) != (err2 == nil) || err == nil && whole != bytewise {
			t.Fatalf("%q and %q (%v, %v)", whole, bytewise, err, err2)
		}
	})
}
