package pdf

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/child"
)

type sample struct {
	file     string
	from, to int
}

// samples of real documents: small ones of mixed origin, and manuals.
func samples(t *testing.T) map[string][]sample {
	sets := map[string][]sample{}
	for _, f := range corpus(t, "pdf/*.pdf") {
		project, _, _ := strings.Cut(filepath.Base(f), "__")
		switch project {
		case "docling", "unstructured", "kreuzberg", "markitdown", "cocoindex", "kernel-memory", "pdfplumber":
			sets["realistic"] = append(sets["realistic"], sample{f, 1, 120})
		}
	}
	for _, f := range corpus(t, "pdf-large/*.pdf") {
		s := sample{f, 1, 700}
		if filepath.Base(f) == "fullrefman.pdf" {
			s.from, s.to = 1001, 1600
		}
		sets["large"] = append(sets["large"], s)
	}
	return sets
}

// TestSpeedAgainstPdftotext compares CPU time, of all processes, with
// pdftotext -bbox-layout on the same pages in the same run. It takes a quiet
// machine and runs when SHEAF_BENCH is set.
func TestSpeedAgainstPdftotext(t *testing.T) {
	if os.Getenv("SHEAF_BENCH") == "" {
		t.Skip("set SHEAF_BENCH=1 to measure")
	}
	if _, err := exec.LookPath("pdftotext"); err != nil {
		t.Skip("pdftotext is not installed: apt install poppler-utils")
	}
	bound := map[string]float64{"realistic": 0.7, "large": 1.0}
	for name, set := range samples(t) {
		t.Run(name, func(t *testing.T) {
			before := cpu(t)
			pages, readable := parseAll(t, set)
			own := cpu(t) - before

			before = cpu(t)
			for _, s := range readable {
				cmd := exec.Command("pdftotext", "-bbox-layout", "-f", fmt.Sprint(s.from), "-l", fmt.Sprint(s.to), s.file, os.DevNull)
				_ = cmd.Run() // some files it refuses; then it was quick
			}
			ref := cpu(t) - before
			ratio := ref.Seconds() / own.Seconds()
			t.Logf("%d pages: own %.1f pages/CPU-s, pdftotext %.1f, ratio %.2f", pages, float64(pages)/own.Seconds(), float64(pages)/ref.Seconds(), ratio)
			if ratio < bound[name] {
				t.Errorf("ratio %.2f is under %.1f", ratio, bound[name])
			}
		})
	}
}

// cpu is the time of this process and of its children that have ended.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

func parseAll(t *testing.T, set []sample) (pages int, readable []sample) {
	pool, err := child.New(child.Config{TempDir: t.TempDir(), Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, s := range set {
		src := child.Source{Path: s.file, Options: parser.Options{Name: filepath.Base(s.file), MediaType: parser.MediaPDF}}
		// The page count comes from a plan elsewhere; here a range past the
		// end says where it is.
		for from := s.from; from <= s.to; from += rangeSize {
			r := sheaf.Range{From: from, To: min(from+rangeSize-1, s.to)}
			err := pool.Parse(context.Background(), src, r, func(u sheaf.UnitResult) error { pages++; return nil })
			if err != nil {
				if f, ok := err.(*sheaf.Failure); ok && f.Code == "no_such_page" {
					var have int
					if _, err := fmt.Sscanf(f.Message[strings.LastIndex(f.Message, "has"):], "has %d", &have); err == nil && have >= from {
						_ = pool.Parse(context.Background(), src, sheaf.Range{From: from, To: have}, func(u sheaf.UnitResult) error { pages++; return nil })
					}
				} else {
					break
				}
			}
			if err != nil {
				s.to = min(s.to, from+rangeSize-1)
				break
			}
		}
		readable = append(readable, s)
	}
	return pages, readable
}
