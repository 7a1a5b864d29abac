package pdfiumwasm

import (
	"context"
	"errors"
	"os"
	"testing"

	"sheaf/parser/pdf/engine"
	"sheaf/parser/pdf/enginetest"
)

func start(t *testing.T, cfg Config) *Engine {
	t.Helper()
	e := New(cfg)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if err := e.Warm(); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestContract(t *testing.T) { enginetest.Run(t, start(t, Config{})) }

// TestModuleIsReachable fails when go-pdfium moves the field that direct calls
// depend on.
func TestModuleIsReachable(t *testing.T) {
	e := start(t, Config{})
	inst, err := e.pool.GetInstance(0)
	if err != nil {
		inst, err = e.pool.GetInstanceWithContext(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	mod, im, err := moduleOf(inst.GetImplementation())
	if err != nil || mod == nil || im == nil {
		t.Fatal(mod, im, err)
	}
	for _, name := range []string{"FPDF_LoadCustomDocument", "FPDFText_GetLooseCharBox", "FPDFPath_GetPathSegment"} {
		if mod.ExportedFunction(name) == nil {
			t.Errorf("no export %s", name)
		}
	}
	for _, wrong := range []any{nil, 1, &struct{ Module int }{}, struct{}{}} {
		if _, _, err := moduleOf(wrong); err == nil {
			t.Errorf("%T passed for an instance", wrong)
		}
	}
}

func TestCacheFolderIsUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the module, 3 s")
	}
	dir := t.TempDir()
	start(t, Config{CacheDir: dir})
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Errorf("the cache is empty: %v", err)
	}
}

func TestOutOfMemoryIsAnErrorOfTheDocument(t *testing.T) {
	e := start(t, Config{MemoryPages: 400}) // 25 MB: the module starts, a large picture does not fit
	b := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "x")}}}.Bytes()
	d, err := e.Open(context.Background(), enginetest.Write(t, b), int64(len(b)), "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Render(0, 6000, 6000); err == nil {
		t.Fatal("36 million pixels in 25 MB")
	} else if !errors.Is(err, engine.ErrPage) && !errors.Is(err, engine.ErrBroken) {
		t.Errorf("unexpected kind: %v", err)
	}
}

func TestMemoryIsGivenBack(t *testing.T) {
	e := start(t, Config{})
	b := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "x")}}}.Bytes()
	f := enginetest.Write(t, b)
	for range 3 * maxOpen { // more than may be open at once
		d, err := e.Open(context.Background(), f, int64(len(b)), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("closing twice: %v", err)
		}
		if err := d.Page(0, &engine.Page{}); !errors.Is(err, engine.ErrBroken) {
			t.Errorf("a closed document gave a page: %v", err)
		}
	}
}
