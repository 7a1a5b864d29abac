package command

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/internal/doctor"
	"sheaf/internal/index"
)

// Everything that can disagree is made to, in a data folder whose service has
// stopped; all is found, and what can be cured is.
func TestDoctorFindsEveryDisagreement(t *testing.T) {
	engine(t, "SHEAF_TEST_REDIS_ADDR") // where Redis can be had
	redis := newRedisServer(t)
	s := start(t, func(c *config.Config) { c.Queue.Driver, c.Queue.Addrs = "redis", []string{redis.addr} })
	var files []source
	for _, bird := range []string{"terns", "gulls", "knots", "larks"} {
		files = append(files, text(bird+".md", "# "+bird+"\n\nA sentence about "+bird+".\n"))
	}
	_, docs := s.send(nil, files...)
	byName := map[string]sheaf.Document{}
	artifact, ranges := map[string]string{}, map[string]string{}
	for _, d := range docs {
		name := strings.TrimSuffix(d.Name, ".md")
		byName[name] = d
		tasks, err := s.app.store.Tasks(t.Context(), "local", d.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if task.Result.RangeID != "" {
				artifact[name], ranges[name] = task.Result.ArtifactKey, task.Result.RangeID
			}
		}
	}
	copied := s.chunks(byName["larks"].ID)[:1]
	s.post("/v1/queues:pause", nil, nil)
	waiting, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("lost.md", "# L\n\nlost"), text("deaf.md", "# D\n\ndeaf")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	s.stop()

	a, err := product.build(t.Context(), s.app.cfg, roles{}, s.app.log)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(a.index.DeleteRanges(ctx, "local", []string{ranges["terns"]}))
	ok(a.blobs.Delete(ctx, artifact["gulls"]))
	original, err := a.store.Document(ctx, "local", byName["knots"].ID)
	ok(err)
	ok(a.blobs.Delete(ctx, original.BlobKey))
	copied[0].RangeID = sheaf.RangeID(sheaf.NewID(), 1)
	copied[0].ID = sheaf.ChunkID(copied[0].RangeID, 0)
	vector := make([]float32, a.embedder.Model().Dim)
	vector[0] = 1
	ok(a.index.Write(ctx, index.Entries(index.Entry{TenantID: "local", DatasetID: copied[0].DocumentID, Name: "larks.md"}, copied, [][]float32{vector})))
	ok(a.index.Refresh(ctx))
	leaked := sheaf.OriginalPrefix("local", sheaf.NewID()) + "x"
	_, err = a.blobs.Put(ctx, leaked, strings.NewReader("x"), 1)
	ok(err)
	foreign := sheaf.ArtifactPrefix("local", byName["larks"].ID) + "notes/x.txt"
	_, err = a.blobs.Put(ctx, foreign, strings.NewReader("x"), 1)
	ok(err)
	stray := sheaf.NewID()
	_, err = a.queue.Publish(ctx, "local", sheaf.LaneNormal, []sheaf.Hint{{TaskID: stray, TenantID: "local", Lane: sheaf.LaneNormal, Kind: sheaf.KindParse, Cost: 1}})
	ok(err)
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(a.path("sheaf.db")))
	ok(err)
	defer db.Close()
	for _, damage := range []struct{ statement, document string }{
		{"UPDATE documents SET chunk_count=99 WHERE id=?", byName["larks"].ID},
		{"UPDATE tasks SET paused=0, state='running', epoch=1, worker_id='gone', lease_until=1 WHERE doc_id=?", waiting.Documents[0].ID},
		{"UPDATE tasks SET paused=0, run_at=1, enqueued_at=0 WHERE doc_id=?", waiting.Documents[1].ID},
	} {
		_, err := db.ExecContext(ctx, damage.statement, damage.document)
		ok(err)
	}

	conf := a.doctorConfig()
	conf.MinAge = time.Nanosecond
	examine := func(repair bool) map[string]doctor.Finding {
		t.Helper()
		r, err := doctor.Run(ctx, conf, repair)
		ok(err)
		found := map[string]doctor.Finding{}
		for _, f := range r.Findings {
			if f.Cure == "" {
				t.Errorf("%s has no cure", f.Code)
			}
			found[f.Code] = f
		}
		return found
	}
	codes := func(m map[string]doctor.Finding) (out []string) {
		for code := range m {
			out = append(out, code)
		}
		slices.Sort(out)
		return out
	}
	found := examine(false)
	if got := codes(found); !slices.Equal(got, doctor.Codes()) {
		t.Fatalf("found %v, want %v", got, doctor.Codes())
	}
	for code, f := range found {
		if f.Count != 1 || f.Repaired != 0 {
			t.Errorf("%s: %d found and %d repaired, want 1 and 0: %v", code, f.Count, f.Repaired, f.Examples)
		}
	}
	examine(true)
	// What needs a keeper, or a person, is left and named.
	if got, want := codes(examine(false)), []string{doctor.DeadLeases, doctor.MissingArtifacts, doctor.MissingOriginals, doctor.UnhintedTasks, doctor.UnknownBlobs}; !slices.Equal(got, want) {
		t.Errorf("after the repair there is %v, want %v", got, want)
	}
	if _, err := a.blobs.Stat(ctx, leaked); err == nil {
		t.Error("the leaked blob is still there")
	}
	if _, err := a.blobs.Stat(ctx, foreign); err != nil {
		t.Errorf("what nobody knows was taken: %v", err)
	}
	if counts, err := a.index.Count(ctx, "local", []string{ranges["terns"], copied[0].RangeID}); err != nil || counts[ranges["terns"]] != 1 || counts[copied[0].RangeID] != 0 {
		t.Errorf("the index holds %v, %v", counts, err)
	}
	if d, err := a.store.Document(ctx, "local", byName["larks"].ID); err != nil || d.Chunks != 1 {
		t.Errorf("the counter says %d, %v", d.Chunks, err)
	}
}

// A range result that is lost from the blob store is found by the keeper's own
// audit, and made anew by a parse of its document.
func TestLostResultIsFoundAndParsedAgain(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Keeper.AuditInterval = config.Duration(50 * time.Millisecond) })
	_, docs := s.send(nil, text("terns.md", "# Terns\n\nA sentence about terns.\n"), text("gulls.md", "# Gulls\n\nA sentence about gulls.\n"))
	const lost = `sheaf_index_drift{code="missing_artifacts"}`
	is := func(n float64) func() bool {
		return func() bool {
			v, ok := s.metric(lost)
			return ok && v == n
		}
	}
	waitFor(t, "an audit that finds nothing", is(0))
	results, err := s.app.store.ResultsOf(t.Context(), []string{docs[0].ID})
	if err != nil || len(results) != 1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	if err := s.app.blobs.Delete(t.Context(), results[0].ArtifactKey); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the loss to show", is(1))
	s.again("reparse", map[string]any{"filter": map[string]any{"document_ids": []string{docs[0].ID}}})
	waitFor(t, "the parse to cure it", is(0))
	if d := s.doc(docs[0].ID); d.State != sheaf.DocSucceeded || d.LiveGeneration != 2 {
		t.Errorf("the document is %s, generation %d", d.State, d.LiveGeneration)
	}
}
