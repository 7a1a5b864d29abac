package main

import (
	"bytes"
	"os"
	"testing"

	"sheaf/samples"
)

// The committed samples are what their text gives, byte for byte.
func TestSamplesAreCurrent(t *testing.T) {
	md, err := os.ReadFile("../handbook.md")
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
			t.Errorf("%s is not what samples/handbook.md gives: run `make samples`", name)
		}
	}
}
