package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"sheaf/internal/config"
	"sheaf/samples"
)

// The committed samples are what the handbook gives, byte for byte.
func TestSamplesAreCurrent(t *testing.T) {
	md, err := os.ReadFile("../../docs/handbook.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := render(md)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := samples.FS.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what docs/handbook.md gives: run `make samples`", name)
		}
	}
}

func TestHandbookListsEverySetting(t *testing.T) {
	md, err := os.ReadFile("../../docs/handbook.md")
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	for _, f := range config.Fields(&c) {
		def := f.String()
		switch {
		case f.Name == "data_dir":
			def = "~/.local/share/sheaf" // depends on the user
		case f.Secret:
			def = ""
		}
		cell := "–"
		if def != "" {
			cell = "`" + def + "`"
		}
		doc := f.Doc
		if doc == "" {
			doc = "–"
		}
		if row := "| `" + f.Name + "` | " + cell + " | " + doc + " |\n"; !strings.Contains(string(md), row) {
			t.Errorf("docs/handbook.md, Settings: want the row\n%s", row)
		}
	}
}
