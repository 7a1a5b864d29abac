package parser

import (
	"context"
	"os"
	"testing"
)

type fakeFormat struct {
	id    string
	types []string
}

func (f fakeFormat) ID() string        { return f.id }
func (f fakeFormat) Version() int      { return 1 }
func (f fakeFormat) Types() []FileType { return Types(FileType{}, f.types...) }
func (f fakeFormat) Options() []string { return nil }
func (f fakeFormat) Open(context.Context, *os.File, Options) (Document, error) {
	return nil, os.ErrInvalid
}

func TestRegistryLooksUpByBareMediaType(t *testing.T) {
	r := NewRegistry(
		fakeFormat{"special", []string{"application/special", "text/csv"}},
		fakeFormat{"text", []string{"text/plain", "text/csv"}},
	)
	for mt, want := range map[string]string{
		"application/special":               "special",
		"Text/CSV; charset=utf-8":           "special", // the first to claim it
		"text/plain":                        "text",
		"text/x-cobol":                      "text",
		"application/vnd.nobody.reads.this": "",
		"":                                  "",
	} {
		got := ""
		if f, ok := r.ByMediaType(mt); ok {
			got = f.ID()
		}
		if got != want {
			t.Errorf("ByMediaType(%q) = %q, want %q", mt, got, want)
		}
	}
	if f, ok := r.ByID("text"); !ok || f.ID() != "text" {
		t.Errorf("ByID(text) = %v, %v", f, ok)
	}
	if _, ok := r.ByID("none"); ok {
		t.Error("ByID found a format that was never registered")
	}
}

func TestRegistryRefusesTwoFormatsWithOneID(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	NewRegistry(fakeFormat{id: "a"}, fakeFormat{id: "a"})
}
