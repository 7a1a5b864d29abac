package keeper

import (
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/blob/file"
	"sheaf/internal/index"
	"sheaf/internal/index/embedded"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// Garbage of every kind is collected and counted: folders, single objects (the
// former bytes of a document have no folder of their own) and index entries.
func TestCollectCountsWhatItRemoves(t *testing.T) {
	f := storetest.New(t, "sqlite")
	blobs, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	x, err := embedded.Open(t.Context(), embedded.Config{Path: t.TempDir() + "/index.db", ModelID: "m", Dim: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	config := Config{Store: f.Store, Index: x, Blobs: blobs, Sign: func(r *taskstore.Receipt) error {
		r.Signature = &taskstore.Signature{Value: "signed"}
		return nil
	}}
	k := New(config)
	put := func(key, text string) {
		t.Helper()
		if _, err := blobs.Put(t.Context(), key, strings.NewReader(text), -1); err != nil {
			t.Fatal(err)
		}
	}
	vector := []float32{1, 0, 0, 0, 0, 0, 0, 0}
	fill := func(d storetest.Doc) {
		t.Helper()
		put(sheaf.OriginalPrefix("t", d.ID)+"one", "12345")
		put(sheaf.ArtifactKey("t", d.ID, "r"), "123")
		put(sheaf.ArtifactPrefix("t", d.ID)+"plans/x/y.json", "1")
		var entries []index.Entry
		for i, v := range [][]float32{vector, nil} {
			entries = append(entries, index.Entry{TenantID: "t", DatasetID: d.Dataset, Name: "a", Vector: v,
				Chunk: sheaf.Chunk{ID: d.ID + string(rune('a'+i)), RangeID: d.ID + "r", DocumentID: d.ID, Text: "text", Pages: []int{1}}})
		}
		if err := x.Write(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
	}
	gone, kept := f.Document("t"), f.Document("t")
	fill(gone)
	fill(kept)
	put("originals/t/"+kept.ID+"/former", "old bytes")
	f.Exec("INSERT INTO garbage (tenant_id, doc_id, blob_prefix, not_before) VALUES ('t', ?, ?, 1)", kept.ID, "originals/t/"+kept.ID+"/former")
	r, err := f.Store.DeleteDocuments(t.Context(), "t", []string{gone.ID})
	if err != nil {
		t.Fatal(err)
	}
	collect := func() {
		t.Helper()
		for range 3 {
			if _, err := k.collect(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	collect()
	if _, err := blobs.Stat(t.Context(), "originals/t/"+kept.ID+"/former"); err == nil {
		t.Error("bytes that were replaced are still there")
	}
	receipt, err := f.Store.Receipt(t.Context(), "t", r.ReceiptID)
	if err != nil || receipt.State != taskstore.ReceiptPending {
		t.Fatalf("receipt %+v, %v", receipt, err)
	}
	put(sheaf.ArtifactKey("t", gone.ID, "late"), "1234567") // by who did not hear of the deletion
	f.Store.AdvanceClock(10 * time.Minute)
	k = New(config) // one that saw the clock jump would wait for as long
	collect()
	receipt, err = f.Store.Receipt(t.Context(), "t", r.ReceiptID)
	if err != nil || receipt.State != taskstore.ReceiptCompleted || receipt.Signature == nil {
		t.Fatalf("receipt %+v, %v", receipt, err)
	}
	if n := receipt.Removed; n.Objects != 4 || n.ObjectBytes != 5+3+1+7 || n.Chunks != 2 || n.Vectors != 1 {
		t.Errorf("removed %+v", n)
	}
	left := 0
	for _, d := range []storetest.Doc{gone, kept} {
		if n, _, err := x.CountDocument(t.Context(), "t", d.ID); err != nil {
			t.Fatal(err)
		} else {
			left += n
		}
	}
	if left != 2 {
		t.Errorf("%d entries are left, want the 2 of the other document", left)
	}
}
