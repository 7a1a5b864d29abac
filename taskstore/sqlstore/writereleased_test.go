package sqlstore_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// keep makes TestKeepStores write stores of the present schema, which is done
// once for each release.
var keep = flag.Bool("keep", false, "write a small store of each engine with the present schema to testdata/released")

// releasedStore is all rows of a small store that a release left, in testdata.
type releasedStore struct {
	Schema int64           `json:"schema"` // its newest migration
	At     int64           `json:"at"`     // when it was made, in ms: its clock goes on from there
	Tables []releasedTable `json:"tables"`
}

type releasedTable struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"` // strings and json.Number
}

// releasedSecret is the secret of its webhook and the password in its settings.
const releasedSecret = "whispered at the release"

// TestKeepStores keeps a store with rows in every table, and open work in each
// phase. Sources of a later schema may write more; what is here already must
// stay, for tests of released stores count on it.
func TestKeepStores(t *testing.T) {
	if !*keep {
		t.Skip("-keep is not set")
	}
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		f := storetest.New(t, engine)
		fillReleased(f)
		snapshot := releasedStore{Schema: int64(f.Int("SELECT MAX(version_id) FROM goose_db_version")), At: time.Now().UnixMilli()}
		tables := map[string]string{
			"sqlite":   "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%' ORDER BY name",
			"mysql":    "SELECT table_name FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name NOT LIKE 'goose_%' ORDER BY table_name",
			"postgres": "SELECT table_name FROM information_schema.tables WHERE table_schema='public' AND table_name NOT LIKE 'goose_%' ORDER BY table_name",
		}[engine]
		for _, name := range f.Strings(tables) {
			rows, err := f.Query("SELECT * FROM " + name)
			f.OK(err)
			table := releasedTable{Name: name}
			table.Columns, err = rows.Columns()
			f.OK(err)
			for rows.Next() {
				row, at := make([]any, len(table.Columns)), make([]any, len(table.Columns))
				for i := range row {
					at[i] = &row[i]
				}
				f.OK(rows.Scan(at...))
				for i, v := range row {
					if b, ok := v.([]byte); ok {
						row[i] = string(b)
					}
				}
				table.Rows = append(table.Rows, row)
			}
			f.OK(rows.Err())
			f.OK(rows.Close())
			if len(table.Rows) == 0 && name != "receipts" && name != "receipt_documents" && name != "secret_keys" {
				t.Errorf("%s is empty", name)
			}
			snapshot.Tables = append(snapshot.Tables, table)
		}
		path := filepath.Join("testdata", "released", fmt.Sprintf("%04d-%s.json.gz", snapshot.Schema, engine))
		f.OK(os.MkdirAll(filepath.Dir(path), 0o755))
		file, err := os.Create(path)
		f.OK(err)
		z, err := gzip.NewWriterLevel(file, gzip.BestCompression)
		f.OK(err)
		f.OK(json.NewEncoder(z).Encode(snapshot))
		f.OK(z.Close())
		f.OK(file.Close())
	})
}

// fillReleased writes as clients, executors and keepers do.
func fillReleased(f *storetest.Fixture) {
	s, ctx, ok := f.Store, context.Background(), f.OK
	const tenant, dataset = "kept", "kept-set"
	_, err := s.CreateTenant(ctx, sheaf.Tenant{ID: tenant, Name: "Kept", Weight: 3, Cap: 5, Quota: sheaf.Quota{Documents: 100}})
	ok(err)
	ok(s.CreateKey(ctx, sheaf.Key{ID: "kept-key", TenantID: tenant, Name: "reader", Scopes: []string{"read"}}, "hash-of-the-key"))
	var config sheaf.ParseConfig
	ok(json.Unmarshal([]byte(`{"chunk_method":"general","chunk_token_num":256,"password":"`+releasedSecret+`"}`), &config))
	_, err = s.CreateDataset(ctx, sheaf.Dataset{ID: dataset, TenantID: tenant, Name: "contracts", ParseConfig: config})
	ok(err)
	_, err = s.CreateWebhook(ctx, taskstore.Webhook{ID: "kept-hook", TenantID: tenant, DatasetID: dataset, URL: "https://example.invalid/hook", Secret: releasedSecret, Enabled: true})
	ok(err)

	payload, err := json.Marshal(map[string]any{"config": config})
	ok(err)
	create := func(name string) storetest.Doc {
		d := storetest.Doc{ID: name, Tenant: tenant, Dataset: dataset, Job: "job-" + name, Plan: "plan-" + name}
		_, err := s.CreateDocuments(ctx, sheaf.Job{ID: d.Job, TenantID: tenant, DatasetID: dataset, Kind: sheaf.JobIngest}, []taskstore.NewDocument{{
			Document: sheaf.Document{ID: name, Name: name + ".pdf", MediaType: "application/pdf", Size: 10, SHA256: strings.Repeat(name, 8), BlobKey: "originals/" + name, ParseConfig: config, Metadata: map[string]string{"shelf": name}},
			Plan:     sheaf.NewTask{ID: d.Plan, Kind: sheaf.KindPlan, Cost: 1, Payload: payload},
		}}, "")
		ok(err)
		return d
	}
	parse := func(d storetest.Doc, n int) []sheaf.NewTask {
		out := storetest.Parse(n)
		for i := range out {
			out[i].ID, out[i].Payload = fmt.Sprintf("%s-%02d", d.ID, i), payload
		}
		return out
	}

	done := create("done")
	for _, t := range f.Plan(done, parse(done, 2)...) {
		f.Done(t.ID)
	}
	f.Publish(done.ID, sheaf.DocSucceeded)
	failed := create("failed")
	_, err = s.FailTask(ctx, f.Claim(failed.Plan, "w").Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "send the password")})
	ok(err)
	f.Fold()
	gone := create("gone")
	_, err = s.DeleteDocuments(ctx, tenant, []string{gone.ID})
	ok(err)
	large := create("large")
	f.Plan(large, parse(large, 40)...)
	graph := create("graph")
	first := parse(graph, 1)
	f.Plan(graph, first[0], sheaf.NewTask{ID: "graph-after", Kind: sheaf.KindDataflow, Node: "after", Cost: 1, DependsOn: []string{first[0].ID}})
	ending := create("ending")
	for _, t := range f.Plan(ending, parse(ending, 1)...) {
		f.Done(t.ID)
	}
	f.Fold()
	small := create("small")
	f.Plan(small, parse(small, 3)...)
	f.Done("small-00")
	running := f.Claim("small-01", "kept-worker")
	create("queued")

	_, err = s.Heartbeat(ctx, taskstore.WorkerStatus{ID: "kept-worker", Host: "barn", Slots: 4}, time.Minute, []sheaf.Claim{running.Held()})
	ok(err)
	_, err = s.AcquireLease(ctx, "kept-lease", "kept-worker", time.Minute)
	ok(err)
	ok(s.SetMeta(ctx, "kept", "yes"))
	up, err := s.CreateUpload(ctx, taskstore.PartialUpload{ID: "kept-up", TenantID: tenant, DatasetID: dataset, DocumentID: "kept-up-doc", Size: 100, Fingerprint: "print", Spec: taskstore.UploadSpec{Name: "late.pdf", Config: config}}, time.Hour)
	ok(err)
	up, err = s.ClaimUpload(ctx, tenant, up.ID, 0, time.Hour)
	ok(err)
	up.Pieces, up.NextPiece, up.Offset, up.Hash = []taskstore.UploadPiece{{N: up.NextPiece, Size: 60}}, up.NextPiece+1, 60, []byte{0, 255, 60}
	ok(s.AdvanceUpload(ctx, up, true))
	for _, key := range []string{"answered", "held"} {
		r := taskstore.KeyedRequest{TenantID: tenant, Key: key, Hash: "hash", Holder: "old"}
		_, err = s.Idempotent(ctx, r, time.Minute)
		ok(err)
		if key == "answered" {
			ok(s.FinishIdempotent(ctx, r, []byte(`{"status":202,"body":"e30="}`)))
		}
	}
}
