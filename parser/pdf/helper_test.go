package pdf

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/pdf/enginetest"
	"sheaf/parser/pdf/pdfium"
)

// TestHelperInsideParsers has confined children read documents with sheaf-pdfium,
// from memory and as a file, and compares each unit with what WebAssembly reads.
func TestHelperInsideParsers(t *testing.T) {
	helper := enginetest.Helper(t)
	found, err := pdfium.Find(t.Context(), pdfium.Helper, helper, child.ProgramPath)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	dir := t.TempDir()
	sources := []child.Source{}
	add := func(path string) {
		sources = append(sources, child.Source{Path: path, Options: parser.Options{MediaType: parser.MediaPDF}})
	}
	for name, b := range enginetest.Fixtures() {
		path := filepath.Join(dir, name+".pdf")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		add(path)
	}
	sample, err := filepath.Abs("../../samples/handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	add(sample)
	read := []string{dir, filepath.Dir(sample)}

	type result struct {
		plan  *parser.Plan
		units []sheaf.UnitResult
		fail  string
	}
	run := func(t *testing.T, cfg child.Config) (all []result, notes []string) {
		cfg.Size, cfg.TempDir, cfg.Sandbox, cfg.ReadDirs = 1, t.TempDir(), child.SandboxAuto, append(cfg.ReadDirs, read...)
		cfg.Noted = func(s string) { notes = append(notes, s) }
		pool, err := child.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		for _, s := range sources {
			var r result
			plan, _, cleanup, err := pool.Plan(context.Background(), s)
			cleanup()
			if err == nil {
				r.plan = plan
				err = pool.Parse(context.Background(), s, sheaf.Range{From: 1, To: plan.Units}, func(u sheaf.UnitResult) error {
					r.units = append(r.units, u)
					return nil
				})
			}
			if err != nil {
				r.fail = err.Error()
			}
			all = append(all, r)
		}
		return all, notes
	}
	env := func(path string) []string { return []string{envHelper + "=" + path} }
	want, _ := run(t, child.Config{})
	for _, c := range []struct {
		title string
		cfg   child.Config
	}{
		{"from memory", child.Config{Env: env(child.ProgramPath), Program: found.File}},
		{"as a file", child.Config{Env: env(helper), ReadDirs: []string{helper}}},
	} {
		t.Run(c.title, func(t *testing.T) {
			got, notes := run(t, c.cfg)
			if len(notes) > 0 {
				t.Errorf("the program was not used: %q", notes)
			}
			for i := range want {
				if !reflect.DeepEqual(got[i], want[i]) {
					t.Errorf("%s reads otherwise: %d units and %q, not %d and %q", filepath.Base(sources[i].Path), len(got[i].units), got[i].fail, len(want[i].units), want[i].fail)
				}
			}
		})
	}
	t.Run("out of reach", func(t *testing.T) {
		got, notes := run(t, child.Config{Env: env(filepath.Join(t.TempDir(), "none"))})
		if len(notes) != 1 {
			t.Errorf("noted: %q", notes)
		}
		if !reflect.DeepEqual(got, want) {
			t.Error("without the program it reads otherwise")
		}
	})
}
