package command

import (
	"context"
	"database/sql"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/internal/doctor"
	"sheaf/internal/index"
)

// Everything that can disagree is made to, in a data folder whose service has
// stopped; all is found, and what can be cured is.
func TestDoctorFindsEveryDisagreement(t *testing.T) {
	addr, prefix := engine(t, "SHEAF_TEST_REDIS_ADDR"), "doctor"+sheaf.NewID()[20:]
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		if keys := rdb.Keys(context.Background(), prefix+"*").Val(); len(keys) > 0 {
			_ = rdb.Del(context.Background(), keys...)
		}
		_ = rdb.Close()
	})
	a := built(t, func(c *config.Config) {
		c.Queue.Driver, c.Queue.Addrs, c.Queue.Prefix = "redis", []string{addr}, prefix
	})
	c, stop := running(t, a)
	birds := []string{"terns", "gulls", "knots", "larks"}
	var files []source
	for _, bird := range birds {
		files = append(files, source{name: bird + ".md", open: reader("# " + bird + "\n\nA sentence about " + bird + ".\n")})
	}
	byName := map[string]string{}
	artifact, ranges := map[string]string{}, map[string]string{}
	for i, id := range send(t, c, files...) {
		name := birds[i]
		byName[name] = id
		tasks, err := a.store.Tasks(t.Context(), "local", id, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if task.Result.RangeID != "" {
				artifact[name], ranges[name] = task.Result.ArtifactKey, task.Result.RangeID
			}
		}
	}
	var chunks api.List[sheaf.Chunk]
	if err := c.call(t.Context(), http.MethodGet, "/v1/datasets/default/documents/"+byName["larks"]+"/chunks", nil, &chunks); err != nil {
		t.Fatal(err)
	}
	copied := chunks.Items[:1]
	if err := c.call(t.Context(), http.MethodPost, "/v1/queues:pause", nil, nil); err != nil {
		t.Fatal(err)
	}
	waiting, err := c.submitAnswer(t.Context(), defaultDataset, []source{{name: "lost.md", open: reader("# L\n\nlost")}, {name: "deaf.md", open: reader("# D\n\ndeaf")}}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	stop()

	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(a.index.DeleteRanges(ctx, "local", []string{ranges["terns"]}))
	ok(a.blobs.Delete(ctx, artifact["gulls"]))
	original, err := a.store.Document(ctx, "local", byName["knots"])
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
	foreign := sheaf.ArtifactPrefix("local", byName["larks"]) + "notes/x.txt"
	_, err = a.blobs.Put(ctx, foreign, strings.NewReader("x"), 1)
	ok(err)
	stray := sheaf.NewID()
	_, err = a.queue.Publish(ctx, "local", sheaf.LaneNormal, []sheaf.Hint{{TaskID: stray, TenantID: "local", Lane: sheaf.LaneNormal, Kind: sheaf.KindParse, Cost: 1}})
	ok(err)
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(a.path("sheaf.db")))
	ok(err)
	defer db.Close()
	for _, damage := range []struct{ statement, document string }{
		{"UPDATE documents SET chunk_count=99 WHERE id=?", byName["larks"]},
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
	if d, err := a.store.Document(ctx, "local", byName["larks"]); err != nil || d.Chunks != 1 {
		t.Errorf("the counter says %d, %v", d.Chunks, err)
	}
}
