package enginetest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"

	"sheaf/parser/pdf/engine"
)

// Run tests an engine against its contract.
func Run(t *testing.T, e engine.Engine) {
	t.Run("CharactersWithBoxesAndFonts", func(t *testing.T) { characters(t, e) })
	t.Run("RotationAndCropBox", func(t *testing.T) { rotation(t, e) })
	t.Run("RulesAndImages", func(t *testing.T) { drawings(t, e) })
	t.Run("LabelsOutlineAndMetadata", func(t *testing.T) { extras(t, e) })
	t.Run("Render", func(t *testing.T) { render(t, e) })
	t.Run("Refusals", func(t *testing.T) { refusals(t, e) })
	t.Run("DocumentsAreIndependent", func(t *testing.T) { independent(t, e) })
}

// Write writes a fixture to disk and opens it.
func Write(t testing.TB, b []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fixture.pdf")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Encrypt protects a fixture with a user password.
func Encrypt(t testing.TB, b []byte, password string) []byte {
	t.Helper()
	api.DisableConfigDir()
	conf := model.NewAESConfiguration(password, "owner", 256)
	conf.Permissions = model.PermissionsNone
	var out bytes.Buffer
	if err := api.Encrypt(bytes.NewReader(b), &out, conf); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func open(t *testing.T, e engine.Engine, b []byte, password string) engine.Document {
	t.Helper()
	d, err := e.Open(context.Background(), Write(t, b), int64(len(b)), password)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

func page(t *testing.T, d engine.Document, n int) *engine.Page {
	t.Helper()
	p := &engine.Page{}
	if err := d.Page(n, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func text(p *engine.Page) string {
	var b strings.Builder
	for _, c := range p.Chars {
		b.WriteRune(rune(c.Unit))
	}
	return b.String()
}

// find returns the first character of s on the page.
func find(t *testing.T, p *engine.Page, s string) engine.Char {
	t.Helper()
	i := strings.Index(text(p), s)
	if i < 0 {
		t.Fatalf("%q is not in %q", s, text(p))
	}
	return p.Chars[i]
}

func near(a, b, slack float32) bool { return math.Abs(float64(a-b)) <= float64(slack) }

func characters(t *testing.T, e engine.Engine) {
	d := open(t, e, File{Pages: []Page{{Content: Text("F1", 12, 72, 700, "Plain words") + Text("F2", 24, 72, 600, "Bold") + Text("F3", 10, 72, 500, "code()") +
		"BT /F4 1 Tf 14 0 0 14 72 400 Tm (Scaled) Tj ET\nBT /F1 12 Tf 0 1 -1 0 500 300 Tm (Upwards) Tj ET\nBT /F1 12 Tf 0 -1 1 0 550 300 Tm (Down) Tj ET\n"}}}.Bytes(), "")
	if d.Pages() != 1 {
		t.Fatalf("%d pages", d.Pages())
	}
	p := page(t, d, 0)
	if p.Width != 612 || p.Height != 792 || p.Rotation != 0 || p.Box != (engine.Rect{R: 612, T: 792}) || p.Truncated {
		t.Errorf("page %v × %v, box %v, rotation %d", p.Width, p.Height, p.Box, p.Rotation)
	}
	c := find(t, p, "Plain")
	if !near(c.Box.L, 72, 1.5) || !near(c.Box.R, 80, 1.5) || c.Box.B > 700 || c.Box.T < 708 || c.Box.T > 714 {
		t.Errorf("box of P: %+v", c.Box)
	}
	for _, want := range []struct {
		text  string
		font  string
		size  float32
		angle float64
	}{
		{"Plain", "Helvetica", 12, 0},
		{"Bold", "Helvetica-Bold", 24, 0},
		{"code", "Courier", 10, 0},
		{"Scaled", "Times-Roman", 1, 0},
		{"Upwards", "Helvetica", 12, math.Pi / 2},
		{"Down", "Helvetica", 12, 3 * math.Pi / 2},
	} {
		c := find(t, p, want.text)
		if c.Run < 0 || int(c.Run) >= len(p.Runs) {
			t.Fatalf("%s: run %d of %d", want.text, c.Run, len(p.Runs))
		}
		r := p.Runs[c.Run]
		if r.Font < 0 || int(r.Font) >= len(p.Fonts) {
			t.Fatalf("%s: font %d of %d", want.text, r.Font, len(p.Fonts))
		}
		f := p.Fonts[r.Font]
		if f.Name != want.font || r.Size != want.size || math.Abs(float64(r.Angle)-want.angle) > 0.01 {
			t.Errorf("%s: font %+v, size %v, angle %v", want.text, f, r.Size, r.Angle)
		}
	}
	if h := find(t, p, "Scaled").Box; h.T-h.B < 10 || h.T-h.B > 20 {
		t.Errorf("the box follows the text matrix, not the font size: %+v", h)
	}
	for i, c := range p.Chars {
		if (c.Run < 0) != engine.Space(c.Unit) {
			t.Errorf("character %d (%q) has run %d", i, rune(c.Unit), c.Run)
		}
	}
	if len(p.Fonts) != 4 {
		t.Errorf("a font is described once: %v", p.Fonts)
	}
}

func rotation(t *testing.T, e engine.Engine) {
	content := Text("F1", 12, 100, 500, "Mark")
	d := open(t, e, File{Pages: []Page{
		{Content: content, Rotate: 90},
		{Content: content, CropBox: [4]int{50, 60, 450, 660}, Rotate: 270},
	}}.Bytes(), "")
	p := page(t, d, 0)
	if p.Width != 792 || p.Height != 612 || p.Rotation != 1 {
		t.Errorf("turned page %v × %v, rotation %d", p.Width, p.Height, p.Rotation)
	}
	if c := find(t, p, "Mark"); !near(c.Box.L, 100, 1.5) || c.Box.B > 501 || c.Box.T < 505 {
		t.Errorf("boxes are in the page's own space: %+v", c.Box)
	}
	p = page(t, d, 1)
	if p.Width != 600 || p.Height != 400 || p.Rotation != 3 || p.Box != (engine.Rect{L: 50, B: 60, R: 450, T: 660}) {
		t.Errorf("cropped page %v × %v, box %v, rotation %d", p.Width, p.Height, p.Box, p.Rotation)
	}
	w, h, err := d.Size(1)
	if err != nil || w != 600 || h != 400 {
		t.Errorf("Size: %v × %v, %v", w, h, err)
	}
}

func drawings(t *testing.T, e engine.Engine) {
	d := open(t, e, File{Pages: []Page{{Content: Line(100, 200, 300, 200) + Line(100, 200, 100, 260) + "100 400 200 50 re S\n" +
		"1 0 0 1 100 0 cm /X1 Do\n" + Image(50, 500, 120, 80)}, {Content: Text("F1", 12, 72, 700, "Only text")}}}.Bytes(), "")
	p := page(t, d, 0)
	for _, want := range []engine.Rect{
		{L: 100, B: 200, R: 300, T: 200}, {L: 100, B: 200, R: 100, T: 260}, // strokes
		{L: 100, B: 400, R: 300, T: 400}, {L: 100, B: 450, R: 300, T: 450}, {L: 100, B: 400, R: 100, T: 450}, {L: 300, B: 400, R: 300, T: 450}, // a box's sides
		{L: 115, B: 100, R: 115, T: 300}, // inside a form: its own matrix and the page's
	} {
		found := false
		for _, r := range p.Rules {
			found = found || near(r.L, want.L, 1) && near(r.B, want.B, 1) && near(r.R, want.R, 1) && near(r.T, want.T, 1)
		}
		if !found {
			t.Errorf("no rule %+v in %+v", want, p.Rules)
		}
	}
	if len(p.Images) != 1 || !near(p.Images[0].L, 150, 0.5) || !near(p.Images[0].T, 580, 0.5) {
		t.Errorf("images %+v", p.Images)
	}
	if p := page(t, d, 1); len(p.Rules)+len(p.Images) != 0 {
		t.Errorf("left over from another page: %+v %+v", p.Rules, p.Images)
	}
}

func extras(t *testing.T, e engine.Engine) {
	body := Text("F1", 12, 72, 700, "x")
	d := open(t, e, File{
		Pages:   []Page{{Content: body}, {Content: body}, {Content: body}},
		Labels:  "0 << /S /r >> 2 << /S /D /St 7 >>",
		Info:    map[string]string{"Title": "A title", "Producer": "by hand"},
		Outline: []Mark{{1, "One", 0}, {2, "One point one", 1}, {1, "Two", 2}},
	}.Bytes(), "")
	if a, b, c := d.Label(0), d.Label(1), d.Label(2); a != "i" || b != "ii" || c != "7" {
		t.Errorf("labels %q %q %q", a, b, c)
	}
	if a, b := d.Meta("Title"), d.Meta("Subject"); a != "A title" || b != "" {
		t.Errorf("metadata %q %q", a, b)
	}
	marks, err := d.Outline(10, true)
	want := []engine.Bookmark{{Level: 1, Title: "One", Page: 0}, {Level: 2, Title: "One point one", Page: 1}, {Level: 1, Title: "Two", Page: 2}}
	if err != nil || len(marks) != 3 || marks[0] != want[0] || marks[1] != want[1] || marks[2] != want[2] {
		t.Errorf("outline %+v, %v", marks, err)
	}
	if marks, err := d.Outline(2, false); err != nil || len(marks) != 2 || marks[0].Page != -1 {
		t.Errorf("two bookmarks without pages: %+v, %v", marks, err)
	}
}

func render(t *testing.T, e engine.Engine) {
	d := open(t, e, File{Pages: []Page{{Content: "1 0 0 rg 0 0 306 792 re f\n"}}}.Bytes(), "")
	img, err := d.Render(0, 61, 79)
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dx() != 61 || b.Dy() != 79 {
		t.Fatalf("picture of %v", b)
	}
	if r, g, b, a := img.At(10, 40).RGBA(); r>>8 != 255 || g != 0 || b != 0 || a>>8 != 255 {
		t.Errorf("left half: %d %d %d %d, want red", r>>8, g>>8, b>>8, a>>8)
	}
	if r, g, b, a := img.At(50, 40).RGBA(); r>>8 != 255 || g>>8 != 255 || b>>8 != 255 || a>>8 != 255 {
		t.Errorf("right half: %d %d %d %d, want white", r>>8, g>>8, b>>8, a>>8)
	}
	if _, err := d.Render(1, 10, 10); !errors.Is(err, engine.ErrPage) {
		t.Errorf("a page that does not exist: %v", err)
	}
}

func refusals(t *testing.T, e engine.Engine) {
	good := File{Pages: []Page{{Content: Text("F1", 12, 72, 700, "Secret")}}}.Bytes()
	locked := Encrypt(t, good, "sesame")
	try := func(b []byte, password string) error {
		d, err := e.Open(context.Background(), Write(t, b), int64(len(b)), password)
		if err == nil {
			_ = d.Close()
		}
		return err
	}
	for _, c := range []struct {
		title, password string
		bytes           []byte
		want            error
	}{
		{"no password", "", locked, engine.ErrPassword},
		{"wrong password", "open", locked, engine.ErrPassword},
		{"endless password", strings.Repeat("x", 1<<16), locked, engine.ErrPassword},
		{"no PDF", "", []byte("hello, I am a text\n"), engine.ErrFormat},
		{"nothing", "", []byte{}, engine.ErrFormat},
		{"only a header", "", []byte("%PDF-1.7\n"), engine.ErrFormat},
	} {
		if err := try(c.bytes, c.password); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.title, err, c.want)
		}
	}
	d := open(t, e, locked, "sesame")
	if p := page(t, d, 0); !strings.Contains(text(p), "Secret") {
		t.Errorf("with the password: %q", text(p))
	}
	p := &engine.Page{}
	for _, n := range []int{-1, 1, 1 << 30} {
		if err := d.Page(n, p); !errors.Is(err, engine.ErrPage) {
			t.Errorf("page %d: %v", n, err)
		}
	}
	if err := d.Page(0, p); err != nil {
		t.Errorf("after pages that do not exist: %v", err)
	}
}

func independent(t *testing.T, e engine.Engine) {
	a := open(t, e, File{Pages: []Page{{Content: Text("F1", 12, 72, 700, "First")}}}.Bytes(), "")
	b := open(t, e, File{Pages: []Page{{Content: Text("F3", 12, 72, 700, "Second")}}}.Bytes(), "")
	pa, pb := page(t, a, 0), page(t, b, 0)
	if !strings.Contains(text(pa), "First") || !strings.Contains(text(pb), "Second") || pb.Fonts[0].Name != "Courier" {
		t.Errorf("%q %q %v", text(pa), text(pb), pb.Fonts)
	}
}
