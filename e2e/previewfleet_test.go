package e2e

import (
	"net/http"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/config"
)

// preview tries settings on the first page of a document.
func (s *service) preview(doc string, config map[string]any) (out tried, err error) {
	s.t.Helper()
	err = s.call(s.t.Context(), http.MethodPost, "/v1/datasets/default/documents/"+doc+":preview", map[string]any{"page": 1, "parser_config": config}, &out)
	return out, err
}

// Settings are tried by an API process that runs no tasks, and lacks the programs
// that the executors have: what it cannot read as they do it says.
func TestSettingsAreTriedInAFleet(t *testing.T) {
	t.Parallel()
	program(t, "tesseract")
	program(t, "soffice")
	f := newFleet(t)
	f.sheaf("migrate")
	f.sheaf("tenant", "create", "alpha")
	secret := f.sheaf("key", "create", "alpha", "--scope", "write")
	f.start("keeper")
	f.start("executor")
	f.env = append(f.env, "SHEAF_PARSER_SOFFICE=", "SHEAF_PARSER_TESSERACT=", "SHEAF_PARSER_REMOTE_FORMATS=office,image")
	s := &service{client: newClient(f.serve(), secret), t: t}
	const lacks = "server that makes previews has no tesseract"
	for _, c := range []struct {
		file   source
		config map[string]any
		says   string // in a chunk
		note   string
	}{
		{text("harvest.pdf", string(report(12, "Harvest"))), map[string]any{"chunk_token_num": 32}, "keeper", ""},
		{text("rows.csv", "name,tons\n"+strings.Repeat("corn,12\n", 300)), map[string]any{"chunk_token_num": 32}, "corn", ""},
		// What LibreOffice made of it is in the blob store.
		{text("old.rtf", `{\rtf1\ansi The quartzite of the old mill was measured twice.\par}`), map[string]any{"chunk_token_num": 32}, "quartzite", ""},
		{text("report.docx", illustrated(t)["report.docx"]), map[string]any{"ocr_pictures": true}, "Before the barn", lacks},
		{text("photo.png", writtenPNG(t, 1300, 400, "The keeper counts every sheaf")), nil, "", ""},
	} {
		d := s.add("default", c.file)[0]
		var doc sheaf.Document
		s.get("/v1/datasets/default/documents/"+d.ID, &doc)
		if doc.State != sheaf.DocSucceeded {
			t.Fatalf("%s ended %s", doc.Name, doc.State)
		}
		out, err := s.preview(d.ID, c.config)
		if c.says == "" {
			if err == nil || !strings.Contains(err.Error(), "the server that answers, which lacks a part that executors may have") {
				t.Errorf("%s: %v", doc.Name, err)
			}
			continue
		}
		if err != nil || len(out.Chunks) == 0 || !strings.Contains(out.Chunks[0].Text, c.says) || out.Before == nil || strings.Contains(strings.Join(out.Notes, " "), lacks) != (c.note != "") {
			t.Errorf("%s: %v %+v", doc.Name, err, out)
		}
	}
}

// A preview without tesseract says that text in pictures is missing from it.
func TestPreviewSaysThatPicturesAreNotRead(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir, cfg.Parser.Tesseract = t.TempDir(), ""
	s := startWith(t, cfg)
	d := s.add("default", text("report.docx", illustrated(t)["report.docx"]))[0]
	for _, read := range []bool{true, false} {
		out, err := s.preview(d.ID, map[string]any{"ocr_pictures": read})
		if err != nil || len(out.Chunks) != 1 || strings.Contains(strings.Join(out.Notes, " "), "has no tesseract") != read {
			t.Errorf("pictures read %v: %v %+v", read, err, out)
		}
	}
}

// So does the preview of a scanned page, whose document is otherwise read.
func TestPreviewSaysThatScansAreNotRead(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir, cfg.Parser.Tesseract = t.TempDir(), ""
	s := startWith(t, cfg)
	d := s.add("default", text("scan.pdf", scanned(t, "The keeper counts every sheaf")))[0]
	out, err := s.preview(d.ID, nil)
	if err != nil || len(out.Chunks) != 0 || !strings.Contains(strings.Join(out.Notes, " "), "has no tesseract") {
		t.Errorf("%v %+v", err, out)
	}
}
