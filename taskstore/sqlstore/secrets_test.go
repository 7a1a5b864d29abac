package sqlstore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/secrets"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

// plain is in every secret of these tests.
const plain = "hunter2-in-the-clear"

func newRing(t *testing.T, keys ...string) *secrets.Keyring {
	t.Helper()
	r, err := secrets.Parse(strings.Join(keys, " "))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// secretRows writes a secret wherever the store takes one.
func secretRows(t *testing.T, s *sqlstore.Store) (check func(*sqlstore.Store)) {
	t.Helper()
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.CreateTenant(ctx, sheaf.Tenant{ID: "t", Name: "t"})
	ok(err)
	var config sheaf.ParseConfig
	ok(json.Unmarshal([]byte(`{"chunk_method":"general","password":"`+plain+`\"é"}`), &config))
	want, err := json.Marshal(config)
	ok(err)
	d, err := s.CreateDataset(ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: "t", Name: "d", ParseConfig: config})
	ok(err)
	_, err = s.CreateWebhook(ctx, taskstore.Webhook{ID: "w", TenantID: "t", DatasetID: d.ID, URL: "https://example.invalid", Secret: plain, Enabled: true})
	ok(err)
	payload, err := json.Marshal(map[string]any{"config": config})
	ok(err)
	job := sheaf.NewID()
	_, err = s.CreateDocuments(ctx, sheaf.Job{ID: job, TenantID: "t", DatasetID: d.ID, Kind: sheaf.JobIngest},
		[]taskstore.NewDocument{{Document: sheaf.Document{ID: "doc", Name: "a", ParseConfig: config}, Plan: sheaf.NewTask{ID: "task", Kind: sheaf.KindPlan, Payload: payload}}}, "")
	ok(err)
	_, err = s.CreateUpload(ctx, taskstore.PartialUpload{ID: "up", TenantID: "t", DatasetID: d.ID, Size: 1, Spec: taskstore.UploadSpec{Name: "a", Config: config}}, time.Hour)
	ok(err)
	keyed := taskstore.KeyedRequest{TenantID: "t", Key: "k", Hash: "h", Holder: "x"}
	_, err = s.Idempotent(ctx, keyed, time.Minute)
	ok(err)
	ok(s.FinishIdempotent(ctx, keyed, []byte(plain)))
	return func(s *sqlstore.Store) {
		t.Helper()
		same := func(what string, got any, err error) {
			t.Helper()
			b, _ := json.Marshal(got)
			if err != nil || !bytes.Equal(b, want) {
				t.Errorf("the %s's settings are %s, want %s: %v", what, b, want, err)
			}
		}
		ds, err := s.Dataset(ctx, "t", d.ID)
		same("dataset", ds.ParseConfig, err)
		doc, err := s.Document(ctx, "t", "doc")
		same("document", doc.ParseConfig, err)
		gens, err := s.Generations(ctx, "t", "doc")
		same("generation", gens[0].ParseConfig, err)
		up, err := s.Upload(ctx, "t", "up")
		same("upload", up.Spec.Config, err)
		task, err := s.Task(ctx, "t", "task")
		if err != nil || !bytes.Equal(task.Payload, payload) {
			t.Errorf("the payload is %s: %v", task.Payload, err)
		}
		w, err := s.Webhook(ctx, "t", d.ID, "w")
		if err != nil || w.Secret != plain {
			t.Errorf("the webhook's secret is %q: %v", w.Secret, err)
		}
		kept, err := s.Idempotent(ctx, keyed, time.Minute)
		if err != nil || string(kept.Answer) != plain {
			t.Errorf("the kept answer is %q: %v", kept.Answer, err)
		}
	}
}

// shown lists the columns that show a secret.
func shown(f *storetest.Fixture) (columns []string) {
	for table, column := range map[string]string{"webhooks": "secret", "idempotency": "answer", "datasets": "parse_config", "documents": "parse_config",
		"generations": "parse_config", "tasks": "payload", "uploads": "spec"} {
		texts := f.Strings("SELECT " + column + " FROM " + table)
		if len(texts) == 0 {
			f.T.Errorf("%s has no row", table)
		}
		for _, text := range texts {
			if strings.Contains(text, plain) {
				columns = append(columns, table+"."+column)
			}
		}
	}
	return columns
}

func TestSecretsAreSealedInTheStore(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		f := storetest.New(t, engine)
		if err := f.Store.Unlock(t.Context(), newRing(t, secrets.Generate())); err != nil {
			t.Fatal(err)
		}
		check := secretRows(t, f.Store)
		check(f.Store)
		if left := shown(f); len(left) > 0 {
			t.Errorf("readable in the database: %v", left)
		}
	})
}

// What a version before this one wrote, or another key sealed, is sealed anew.
func TestOldSecretsAreSealedAndKeysRotated(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		ctx := t.Context()
		f := storetest.New(t, engine)
		check := secretRows(t, f.Store) // without keys, as before there were any
		if len(shown(f)) != 7 {
			t.Fatalf("readable before: %v", shown(f))
		}
		a, b := secrets.Generate(), secrets.Generate()
		unlock := func(s *sqlstore.Store, keys ...string) {
			t.Helper()
			if err := s.Unlock(ctx, newRing(t, keys...)); err != nil {
				t.Fatal(err)
			}
		}
		unlock(f.Store, a)
		check(f.Store)
		done, err := f.Store.SealSecrets(ctx, false)
		if err != nil || done != (sqlstore.Sealed{Changed: 7}) || len(shown(f)) != 0 {
			t.Fatalf("sealed %+v, readable %v: %v", done, shown(f), err)
		}
		check(f.Store)
		if engine == "sqlite" {
			for _, name := range []string{f.Config.DSN, f.Config.DSN + "-wal"} {
				if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte(plain)) {
					t.Errorf("%s still holds what was overwritten", name)
				}
			}
		}
		if again, err := f.Store.SealSecrets(ctx, false); err != nil || again != (sqlstore.Sealed{}) {
			t.Errorf("a second time changes %+v: %v", again, err)
		}
		rotated := f.Second()
		unlock(rotated, b, a)
		check(rotated)
		// While both are in use nobody may be without either.
		if err := f.Second().Unlock(ctx, newRing(t, b)); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("without a key that is in use: %v", err)
		}
		if done, err = rotated.SealSecrets(ctx, false); err != nil || done.Changed != 7 {
			t.Fatalf("rotated %+v: %v", done, err)
		}
		alone := f.Second()
		unlock(alone, b)
		check(alone)
	})
}

func TestAnotherKeyIsRefused(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		f := storetest.New(t, engine)
		ring, other := newRing(t, secrets.Generate()), newRing(t, secrets.Generate())
		if err := f.Store.Unlock(t.Context(), ring); err != nil {
			t.Fatal(err)
		}
		check := secretRows(t, f.Store)
		err := f.Second().Unlock(t.Context(), other)
		if !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), ring.Current()) || !strings.Contains(err.Error(), other.Current()) {
			t.Errorf("another key: %v", err)
		}
		if ids, err := f.Store.SecretKeys(t.Context()); err != nil || fmt.Sprint(ids) != fmt.Sprint(ring.IDs()) {
			t.Errorf("the store knows the keys %v: %v", ids, err)
		}
		check(f.Store)
		// A secret that was moved to another row is no secret there.
		f.Exec("INSERT INTO webhooks (id, tenant_id, dataset_id, url, secret, events, last_error, created_at, updated_at) SELECT 'moved', tenant_id, dataset_id, url, secret, events, last_error, created_at, updated_at FROM webhooks")
		ds := f.Strings("SELECT dataset_id FROM webhooks")[0]
		w, err := f.Store.Webhook(context.Background(), "t", ds, "moved")
		if err != nil || w.Secret != "" {
			t.Errorf("the moved secret is %q: %v", w.Secret, err)
		}
		done, err := f.Store.SealSecrets(t.Context(), true)
		if err != nil || done.Unreadable != 0 {
			t.Errorf("sealed again with the same key: %+v %v", done, err)
		}
	})
}

// A deletion takes back the answers that tell of a document also where they
// are sealed.
func TestSealedAnswersAreTakenBack(t *testing.T) {
	f := storetest.New(t, "sqlite")
	ctx := t.Context()
	f.OK(f.Store.Unlock(ctx, newRing(t, secrets.Generate())))
	d := f.Document("t")
	r := taskstore.KeyedRequest{TenantID: "t", Key: "k", Hash: "h", Holder: "me"}
	_, err := f.Store.Idempotent(ctx, r, time.Minute)
	f.OK(err)
	answer, err := json.Marshal(map[string]any{"status": 202, "body": []byte(`{"documents":[{"id":"` + d.ID + `"}]}`)})
	f.OK(err)
	f.OK(f.Store.FinishIdempotent(ctx, r, answer))
	_, err = f.Store.DeleteDocuments(ctx, "t", []string{d.ID})
	f.OK(err)
	state, err := f.Store.Idempotent(ctx, r, time.Minute)
	f.OK(err)
	if string(state.Answer) != taskstore.ForgottenAnswer {
		t.Errorf("the answer is %q, want %q", state.Answer, taskstore.ForgottenAnswer)
	}
}
