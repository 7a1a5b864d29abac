package jsonfmt

import (
	"bytes"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

func sample() []byte {
	return []byte(`{"name":"Lamp","sizes":[1,2,3],"maker":{"city":"Ulm"},"parts":[{"id":1,"name":"foot"},{"id":2,"name":"shade","new":true}]}`)
}

var options = parser.Options{Name: "document", MediaType: parser.MediaJSON}

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

func TestDeepNestingIsAFailure(t *testing.T) {
	_, _, err := formattest.Read(t, New(), bytes.Repeat([]byte("["), 100_000), options, nil)
	if f := sheaf.AsFailure(err, ""); f == nil || f.Code != "too_deep" {
		t.Fatalf("error %v, want too_deep", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add([]byte(`[{"a":1},{"a":2}]`))
	f.Add([]byte(`{"a":[[[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, nil) // it checks what it reads
	})
}
