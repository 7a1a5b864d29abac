package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// Tables lists the tables of the database.
func (f *Fixture) Tables() []string {
	f.T.Helper()
	switch f.Engine {
	case "sqlite":
		return f.Strings("SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%' ORDER BY name")
	case "mysql":
		return f.Strings("SELECT table_name FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name NOT LIKE 'goose_%' ORDER BY table_name")
	}
	return f.Strings("SELECT table_name FROM information_schema.tables WHERE table_schema='public' AND table_name NOT LIKE 'goose_%' ORDER BY table_name")
}

// Dump reads every value of every table, as "table.column: value".
func (f *Fixture) Dump() []string {
	f.T.Helper()
	var out []string
	for _, table := range f.Tables() {
		rows, err := f.Query("SELECT * FROM " + table)
		f.OK(err)
		columns, err := rows.Columns()
		f.OK(err)
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			f.OK(rows.Scan(values...))
			for i, c := range columns {
				v := *values[i].(*any)
				if b, ok := v.([]byte); ok {
					v = string(b)
				}
				out = append(out, fmt.Sprintf("%s.%s: %v", table, c, v))
			}
		}
		f.OK(errors.Join(rows.Err(), rows.Close()))
	}
	return out
}

// says lists the places in the database that contain any of the words, in whatever
// encoding: answers are kept as base64.
func (f *Fixture) says(words ...string) (places []string) {
	f.T.Helper()
	for _, line := range f.Dump() {
		place, value, _ := strings.Cut(line, ": ")
		var kept struct {
			Body []byte `json:"body"`
		}
		if json.Unmarshal([]byte(value), &kept) == nil {
			value += string(kept.Body)
		}
		for _, w := range words {
			if strings.Contains(strings.ToLower(value), w) {
				places = append(places, place)
			}
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// secrets are the words that secret puts into every row that can hold them.
var secrets = []string{"sesame", "hushed"}

// secret makes a document with the name sesame and the word hushed wherever text is
// kept, in a state with work of every kind.
func (f *Fixture) secret() (d Doc, hook *taskstore.Webhook, key string) {
	f.T.Helper()
	f.Document("t") // and with it tenant and dataset
	hook, err := f.Store.CreateWebhook(ctx, taskstore.Webhook{ID: sheaf.NewID(), TenantID: "t", DatasetID: "ds-t", URL: "https://example.invalid", Events: []string{}, Enabled: true})
	f.OK(err)
	d = Doc{ID: sheaf.NewID(), Tenant: "t", Dataset: "ds-t", Job: sheaf.NewID(), Plan: sheaf.NewID()}
	upload, err := f.Store.CreateUpload(ctx, taskstore.PartialUpload{ID: sheaf.NewID(), TenantID: "t", DatasetID: "ds-t", DocumentID: d.ID, Size: 0, Fingerprint: "print",
		Spec: taskstore.UploadSpec{Name: "sesame.pdf", Metadata: map[string]string{"k": "hushed"}}}, 24*time.Hour)
	f.OK(err)
	_, err = f.Store.BindUploads(ctx, "t", []string{upload.ID}, d.Job)
	f.OK(err)
	config := sheaf.ParseConfig{Password: sheaf.Set("hushed")}
	_, err = f.Store.CreateDocuments(ctx, sheaf.Job{ID: d.Job, TenantID: "t", DatasetID: "ds-t", Kind: sheaf.JobIngest}, []taskstore.NewDocument{{
		Document: sheaf.Document{ID: d.ID, Name: "sesame.pdf", MediaType: "application/pdf", Size: 10, SHA256: strings.Repeat("ab", 32), BlobKey: sheaf.OriginalPrefix("t", d.ID) + "v1",
			ParseConfig: config, Metadata: map[string]string{"title": "hushed"}, Attributes: sheaf.Attributes{"crm.note": json.RawMessage(`"hushed"`)}},
		Plan: sheaf.NewTask{ID: d.Plan, Kind: sheaf.KindPlan, Cost: 1, Payload: json.RawMessage(`{"said":"hushed"}`)},
	}}, "")
	f.OK(err)

	plan := f.Claim(d.Plan, "planner")
	spawn := Parse(4)
	for i := range spawn {
		spawn[i].Payload = json.RawMessage(`{"headings":["hushed"]}`)
	}
	f.OK(f.Store.Complete(ctx, plan.Held(), taskstore.Completion{Spawn: spawn, Plan: &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage, Units: 48,
		Metadata: map[string]string{"author": "hushed"}}}))
	tasks := f.Tasks(d.ID, 1)
	for i, t := range tasks[:2] {
		c := f.Claim(t.ID, "w")
		f.OK(f.Store.AppendEvents(ctx, c.Held(), []sheaf.Event{{Kind: sheaf.EventMessage, Text: "reading sesame: hushed", Detail: json.RawMessage(`{"said":"hushed"}`)}}))
		if i == 1 {
			failure := sheaf.Fail(sheaf.CategoryBadInput, "broken", "hushed is broken")
			failure.Detail = "hushed"
			_, err := f.Store.FailTask(ctx, c.Held(), taskstore.FailReport{Failure: *failure})
			f.OK(err)
			continue
		}
		r := Result(c)
		r.Warnings = []sheaf.Warning{{Code: "w", Message: "hushed"}}
		r.Usage.Pages = 12
		f.OK(f.Store.Complete(ctx, c.Held(), taskstore.Completion{Result: r}))
	}
	f.Claim(tasks[2].ID, "w") // runs
	f.Fold()

	// The answers of keyed requests, and a message that waits for its receiver.
	key = "key-of-" + d.ID
	for k, body := range map[string]string{key: `{"documents":[{"id":"` + d.ID + `","name":"sesame.pdf"}]}`, "another": `{"documents":[{"id":"other","name":"visible"}]}`} {
		r := taskstore.KeyedRequest{TenantID: "t", Key: k, Hash: "h", Holder: "me"}
		_, err := f.Store.Idempotent(ctx, r, time.Minute)
		f.OK(err)
		answer, err := json.Marshal(map[string]any{"status": 202, "body": []byte(body)})
		f.OK(err)
		f.OK(f.Store.FinishIdempotent(ctx, r, answer))
	}
	f.Exec("INSERT INTO webhook_deliveries (webhook_id, tenant_id, event_id, event, data, error, next_at, created_at) VALUES (?, 't', ?, 'document.failed', ?, 'hushed', 0, 0)",
		hook.ID, "doc_"+d.ID+"_1_1", `{"dataset_id":"ds-t","document_id":"`+d.ID+`","name":"sesame.pdf","generation":1,"state":"failed","failure":{"code":"x","message":"hushed"}}`)
	f.Exec("UPDATE documents SET outline='hushed', warnings='[{\"code\":\"w\",\"message\":\"hushed\"}]', failure='{\"code\":\"x\",\"message\":\"hushed\"}', member_path='sesame' WHERE id=?", d.ID)
	_, err = f.Store.SaveQueries(ctx, "t", "ds-t", []taskstore.SavedQuery{{Question: "which word opens?", Expected: []taskstore.ExpectedAnswer{{DocumentID: d.ID, Text: "hushed"}, {Text: "another"}}}})
	f.OK(err)
	f.Exec("UPDATE generations SET failure='{\"code\":\"x\",\"message\":\"hushed\"}' WHERE doc_id=?", d.ID)
	return d, hook, key
}

func deletionLeavesNothing(f *Fixture) {
	d, hook, key := f.secret()
	other := f.Document("t")
	before := f.says(secrets...)
	for _, place := range []string{"documents.name", "documents.metadata", "documents.outline", "documents.parse_config", "generations.parse_config", "generations.failure", "tasks.payload", "tasks.result", "tasks.failure",
		"events.text", "events.detail", "uploads.spec", "idempotency.answer", "saved_queries.expected", "webhook_deliveries.data", "webhook_deliveries.error"} {
		if !slices.Contains(before, place) {
			f.T.Fatalf("%s holds nothing to be removed, so that the test shows nothing; what does is %v", place, before)
		}
	}
	r, err := f.Store.DeleteDocuments(ctx, "t", []string{d.ID})
	f.OK(err)
	wantList(f, "what still tells of the document when the call is answered", f.says(secrets...))

	receipt, err := f.Store.Receipt(ctx, "t", r.ReceiptID)
	f.OK(err)
	rows := receipt.Removed.Rows
	if rows.Documents != 1 || rows.Generations != 1 || rows.Tasks != 5 || rows.Events < 8 || rows.Messages != 1 || rows.Uploads != 1 || rows.Answers != 1 {
		f.T.Fatalf("rows of the receipt: %+v", rows)
	}
	want(f, "state", receipt.State, taskstore.ReceiptPending)

	// What remains is still useful: a repeated request learns that its answer is gone,
	// receivers are notified by id, and the job knows its usage.
	state, err := f.Store.Idempotent(ctx, taskstore.KeyedRequest{TenantID: "t", Key: key, Hash: "h", Holder: "again"}, time.Minute)
	f.OK(err)
	want(f, "answer", string(state.Answer), taskstore.ForgottenAnswer)
	messages, _, err := f.Store.Deliveries(ctx, hook, nil, taskstore.Page{Ascending: true})
	f.OK(err)
	var events []string
	for _, m := range messages {
		var news taskstore.DocumentNews
		f.OK(json.Unmarshal(m.Data, &news))
		want(f, "document of a message", news.DocumentID, d.ID)
		events = append(events, m.Event+" "+string(news.State))
	}
	wantList(f, "messages", events, "document.failed failed", "document.deleted deleted")
	job, err := f.Store.Job(ctx, "t", d.Job)
	f.OK(err)
	want(f, "pages that the job used", job.Usage.Pages, 12)

	want(f, "events of the other document", f.Int("SELECT COUNT(*) FROM events WHERE doc_id=?", other.ID) > 0, true)
	want(f, "name of the other document", f.Doc(other.ID).Name, "a.pdf")
	want(f, "the other answer", strings.Contains(f.Strings("SELECT answer FROM idempotency WHERE k='another'")[0], "body"), true)
}

// deletionResumed deletes and dies immediately: the keeper continues.
func deletionResumed(f *Fixture) {
	d, _, _ := f.secret()
	f.Store.PurgeNothingNow()
	r, err := f.Store.DeleteDocuments(ctx, "t", []string{d.ID})
	f.OK(err)
	wantList(f, "where the document is still told of", f.says(secrets...), "events.detail", "events.text", "idempotency.answer", "saved_queries.expected", "tasks.failure", "tasks.payload", "tasks.result",
		"uploads.spec", "webhook_deliveries.data", "webhook_deliveries.error")
	second := f.Second() // the next leader
	n, err := second.PurgeDeleted(ctx, 10)
	f.OK(err)
	want(f, "documents purged", n, 1)
	wantList(f, "what is left", f.says(secrets...))
	n, err = second.PurgeDeleted(ctx, 10)
	f.OK(err)
	want(f, "documents purged again", n, 0)

	// A late writer still writes.
	for k, v := range map[string]string{"late": `{"id":"` + d.ID + `","name":"sesame"}`, "deleted": `{"receipt_id":"` + r.ReceiptID + `","document_ids":["` + d.ID + `"]}`} {
		q := taskstore.KeyedRequest{TenantID: "t", Key: k, Hash: "h", Holder: "me"}
		_, err = f.Store.Idempotent(ctx, q, time.Minute)
		f.OK(err)
		answer, err := json.Marshal(map[string]any{"status": 200, "body": []byte(v)})
		f.OK(err)
		f.OK(f.Store.FinishIdempotent(ctx, q, answer))
	}
	// A clock jump does not bring the second pass forward.
	f.OK(f.Store.ClockJumped(ctx, time.Hour))
	f.Store.AdvanceClock(time.Hour)
	n, err = f.Store.PurgeDeleted(ctx, 10)
	f.OK(err)
	want(f, "documents purged after the clock jumped", n, 0)
	f.Store.AdvanceClock(10 * time.Minute)
	n, err = f.Store.PurgeDeleted(ctx, 10)
	f.OK(err)
	want(f, "documents of the second pass", n, 1)
	wantList(f, "what is left of a late writer", f.says(secrets...))
	want(f, "the deletion's own answer", strings.Contains(f.Strings("SELECT answer FROM idempotency WHERE k='deleted'")[0], "body"), true)
}

// deletionOfMany deletes more documents, tasks and events than one transaction purges.
func deletionOfMany(f *Fixture) {
	f.Document("t") // and with it tenant and dataset
	job := sheaf.Job{ID: sheaf.NewID(), TenantID: "t", DatasetID: "ds-t", Kind: sheaf.JobIngest}
	var ids []string
	var docs []taskstore.NewDocument
	for range 130 {
		id := sheaf.NewID()
		ids = append(ids, id)
		docs = append(docs, taskstore.NewDocument{Document: sheaf.Document{ID: id, Name: "sesame.md", MediaType: "text/markdown", Size: 1, SHA256: id + id, BlobKey: sheaf.OriginalPrefix("t", id) + "v1"},
			Plan: sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1, Payload: json.RawMessage(`{"said":"hushed"}`)}})
	}
	_, err := f.Store.CreateDocuments(ctx, job, docs, "")
	f.OK(err)
	const large = 40 // of the documents, the one with many tasks and events
	plan := f.Claim(docs[large].Plan.ID, "planner")
	for range 6 {
		some := make([]sheaf.Event, 100)
		for i := range some {
			some[i] = sheaf.Event{Kind: sheaf.EventMessage, Text: "sesame"}
		}
		f.OK(f.Store.AppendEvents(ctx, plan.Held(), some))
	}
	spawn := Parse(520)
	for i := range spawn {
		spawn[i].Payload = json.RawMessage(`{"headings":["hushed"]}`)
	}
	f.OK(f.Store.Complete(ctx, plan.Held(), taskstore.Completion{Spawn: spawn, Plan: &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage, Units: 520}}))
	f.Fold()
	f.Store.PurgeNothingNow()
	r, err := f.Store.DeleteDocuments(ctx, "t", ids)
	f.OK(err)
	tasks := f.Int("SELECT COUNT(*) FROM tasks WHERE job_id=?", job.ID)
	events := f.Int("SELECT COUNT(*) FROM events WHERE job_id=?", job.ID)
	if tasks != 650 || events < 730 {
		f.T.Fatalf("%d tasks and %d events are too few to show anything", tasks, events)
	}
	n, err := f.Store.PurgeDeleted(ctx, 1000)
	f.OK(err)
	want(f, "documents purged", n, 130)
	wantList(f, "what is left", f.says(secrets...))
	want(f, "events left", f.Int("SELECT COUNT(*) FROM events WHERE job_id=?", job.ID), 0)
	receipt, err := f.Store.Receipt(ctx, "t", r.ReceiptID)
	f.OK(err)
	want(f, "documents of the receipt", receipt.Removed.Rows.Documents, 130)
	want(f, "tasks of the receipt", receipt.Removed.Rows.Tasks, tasks)
	want(f, "events of the receipt", receipt.Removed.Rows.Events, events)
	want(f, "generations of the receipt", receipt.Removed.Rows.Generations, 130)
}

// collected does what the collector does with due garbage: it finds objects under
// each prefix and 3 chunks with 2 vectors of each document.
func (f *Fixture) collected(objects int) {
	f.T.Helper()
	due, err := f.Store.Garbage(ctx, 1000)
	f.OK(err)
	var found []taskstore.GarbageCount
	var ids []int64
	for _, g := range due {
		ids = append(ids, g.ID)
		if g.ReceiptID == "" || g.Counted {
			continue
		}
		c := taskstore.GarbageCount{ID: g.ID, Objects: objects, Bytes: int64(7 * objects)}
		if g.BlobPrefix == "" {
			c = taskstore.GarbageCount{ID: g.ID, Chunks: 3 * objects, Vectors: 2 * objects}
		}
		found = append(found, c)
	}
	f.OK(f.Store.CountGarbage(ctx, found))
	f.OK(f.Store.CountGarbage(ctx, found)) // the process died before it removed anything: nothing counts twice
	f.OK(f.Store.GarbageDone(ctx, ids))
}

func (f *Fixture) settled() int {
	f.T.Helper()
	n, err := f.Store.SettleReceipts(ctx, 10, func(r *taskstore.Receipt) error {
		r.Signature = &taskstore.Signature{Algorithm: "test", Value: "signed " + string(r.State)}
		return nil
	})
	f.OK(err)
	return n
}

func receiptCompletes(f *Fixture) {
	d, _, _ := f.secret()
	r, err := f.Store.DeleteDocuments(ctx, "t", []string{d.ID})
	f.OK(err)
	again, err := f.Store.DeleteDocuments(ctx, "t", []string{d.ID})
	f.OK(err)
	want(f, "receipt of a repeated delete", again.ReceiptID, "")
	f.collected(4)
	want(f, "settled while a late writer may come", f.settled(), 0)
	pending, err := f.Store.Receipt(ctx, "t", r.ReceiptID)
	f.OK(err)
	want(f, "objects so far", pending.Removed.Objects, 8)
	f.Store.AdvanceClock(10 * time.Minute)
	want(f, "settled before the second purge", f.settled(), 0)
	_, err = f.Store.PurgeDeleted(ctx, 10)
	f.OK(err)
	want(f, "settled before the second collection", f.settled(), 0)
	f.collected(0)
	want(f, "settled", f.settled(), 1)
	want(f, "settled again", f.settled(), 0)

	done, err := f.Store.Receipt(ctx, "t", r.ReceiptID)
	f.OK(err)
	if done.State != taskstore.ReceiptCompleted || done.CompletedAt.Sub(done.RequestedAt) < 9*time.Minute || done.Signature == nil || done.Signature.Value != "signed completed" ||
		done.Removed.Objects != 8 || done.Removed.ObjectBytes != 56 || done.Removed.Chunks != 3*4 || done.Removed.Vectors != 2*4 ||
		!slices.Equal(done.DocumentIDs, []string{d.ID}) || len(done.DocumentsSHA256) != 64 || done.DatasetID != "ds-t" || done.Kind != taskstore.ReceiptDocuments || done.Format != taskstore.ReceiptFormat {
		f.T.Fatalf("completed receipt: %+v", done)
	}
	// The signed receipt does not depend on the rows it was made from.
	f.Exec("DELETE FROM receipt_documents")
	same, err := f.Store.Receipt(ctx, "t", r.ReceiptID)
	f.OK(err)
	if !reflect.DeepEqual(same, done) {
		f.T.Fatalf("the receipt later: %+v, want %+v", same, done)
	}
}

func receiptKept(f *Fixture) {
	a, b := f.Document("t"), f.Document("t")
	zip := f.Document("t")
	sum := strings.Repeat("cd", 32)
	f.Exec("UPDATE documents SET sha256=? WHERE id IN (?, ?)", sum, a.ID, b.ID)
	plan := f.Claim(zip.Plan, "w")
	f.members(plan.Held(), asking(files(zip.ID, 1, "x", "y")))
	members, err := f.Store.Members(ctx, zip.ID)
	f.OK(err)
	// c has ranges with the same content as a, and other bytes.
	c := f.Document("t")
	for _, d := range []Doc{a, c} {
		for _, t := range f.Plan(d, Parse(2)...) {
			f.Done(t.ID)
		}
	}
	r, err := f.Store.DeleteDocuments(ctx, "t", []string{a.ID, members[0].ID})
	f.OK(err)
	kept := func(id string) (out []string) {
		receipt, err := f.Store.Receipt(ctx, "t", id)
		f.OK(err)
		for _, k := range receipt.Kept {
			out = append(out, fmt.Sprintf("%s %s %s %d", k.DocumentID, k.HeldBy, k.Reason, k.Ranges))
		}
		slices.Sort(out)
		return out
	}
	wanted := []string{a.ID + " " + b.ID + " same_bytes 0", a.ID + " " + c.ID + " same_ranges 2", members[0].ID + " " + zip.ID + " in_archive 0"}
	slices.Sort(wanted)
	wantList(f, "kept", kept(r.ReceiptID), wanted...)
	// A document that is deleted too keeps nothing.
	later, err := f.Store.DeleteDocuments(ctx, "t", []string{b.ID, zip.ID})
	f.OK(err)
	wantList(f, "kept after more was deleted", kept(r.ReceiptID), a.ID+" "+c.ID+" same_ranges 2")
	wantList(f, "kept of what was deleted together", kept(later.ReceiptID))
}

func datasetReceipt(f *Fixture) {
	d, _, _ := f.secret()
	unfinished, err := f.Store.CreateUpload(ctx, taskstore.PartialUpload{ID: sheaf.NewID(), TenantID: "t", DatasetID: "ds-t", DocumentID: sheaf.NewID(), Size: 9,
		Spec: taskstore.UploadSpec{Name: "sesame.zip"}}, time.Hour)
	f.OK(err)
	f.Exec("UPDATE datasets SET name='sesame' WHERE id='ds-t'")
	r, err := f.Store.DeleteDataset(ctx, "t", "ds-t")
	f.OK(err)
	wantList(f, "what still tells of the dataset", f.says(secrets...))
	_, err = f.Store.Upload(ctx, "t", unfinished.ID)
	if !errors.Is(err, sheaf.ErrNotFound) {
		f.T.Fatalf("an upload into a deleted dataset: %v", err)
	}
	f.collected(1)
	f.Store.AdvanceClock(10 * time.Minute)
	f.collected(1)
	_, err = f.Store.PurgeDeleted(ctx, 10)
	f.OK(err)
	want(f, "settled", f.settled(), 1)
	list, _, err := f.Store.Receipts(ctx, "t", "ds-t", taskstore.Page{})
	f.OK(err)
	if len(list) != 1 || list[0].ID != r.ReceiptID || list[0].Kind != taskstore.ReceiptDataset || list[0].State != taskstore.ReceiptCompleted ||
		list[0].Documents != 2 || list[0].Removed.Rows.Webhooks != 1 || list[0].Removed.Objects != 8+2 {
		f.T.Fatalf("receipts of the dataset: %+v", list)
	}
	docs, next, err := f.Store.ReceiptDocuments(ctx, "t", r.ReceiptID, taskstore.Page{Limit: 1, Ascending: true})
	f.OK(err)
	rest, last, err := f.Store.ReceiptDocuments(ctx, "t", r.ReceiptID, taskstore.Page{Limit: 1, Ascending: true, Cursor: next})
	f.OK(err)
	if len(docs) != 1 || len(rest) != 1 || last != "" || docs[0].DocumentID != d.ID && rest[0].DocumentID != d.ID {
		f.T.Fatalf("documents of the receipt: %+v and %+v", docs, rest)
	}
	// An empty one also has a receipt.
	_, err = f.Store.CreateDataset(ctx, sheaf.Dataset{ID: "empty", TenantID: "t", Name: "empty"})
	f.OK(err)
	r, err = f.Store.DeleteDataset(ctx, "t", "empty")
	f.OK(err)
	f.Store.AdvanceClock(10 * time.Minute)
	_, err = f.Store.PurgeDeleted(ctx, 10)
	f.OK(err)
	want(f, "settled", f.settled(), 1)
	receipt, err := f.Store.Receipt(ctx, "t", r.ReceiptID)
	f.OK(err)
	want(f, "documents of an empty dataset", receipt.Documents, 0)
}

// formerMembersReceipt publishes a version of an archive that lacks a former file.
func formerMembersReceipt(f *Fixture) {
	d := f.Document("t")
	t := f.Claim(d.Plan, "w")
	f.members(t.Held(), asking(files(d.ID, 1, "sesame", "b")))
	f.unpacked(d, t, 2)
	d = f.Reparse(d)
	t = f.Claim(d.Plan, "w")
	f.members(t.Held(), asking(files(d.ID, 2, "b")))
	f.unpacked(d, t, 1)
	list, _, err := f.Store.Receipts(ctx, "t", "", taskstore.Page{})
	f.OK(err)
	if len(list) != 1 || list[0].Kind != taskstore.ReceiptMembers || list[0].Documents != 1 || len(list[0].Kept) != 0 {
		f.T.Fatalf("receipts: %+v", list)
	}
	_, err = f.Store.PurgeDeleted(ctx, 10)
	f.OK(err)
	want(f, "rows with the file's name beside its id", f.Int("SELECT COUNT(*) FROM documents WHERE name LIKE '%sesame%' OR member_path LIKE '%sesame%'"), 0)
}
