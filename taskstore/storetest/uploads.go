package storetest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

func (b *bench) newUpload(size int64) *taskstore.PartialUpload {
	b.t.Helper()
	u, err := b.CreateUpload(b.ctx, taskstore.PartialUpload{
		ID: sheaf.NewID(), TenantID: b.tenant, DatasetID: b.dataset.ID, DocumentID: sheaf.NewID(), Size: size, Fingerprint: "print",
		Spec: taskstore.UploadSpec{Name: "a.pdf", Lane: sheaf.LaneBackfill, Hold: true, Metadata: map[string]string{"k": "v"}},
	}, time.Hour)
	b.ok(err)
	return u
}

// stored claims an upload and stores its next n bytes.
func (b *bench) stored(u *taskstore.PartialUpload, n int64) *taskstore.PartialUpload {
	b.t.Helper()
	c, err := b.ClaimUpload(b.ctx, b.tenant, u.ID, u.Offset, time.Hour)
	b.ok(err)
	c.Pieces = append(c.Pieces, taskstore.UploadPiece{N: c.NextPiece, Size: n})
	c.NextPiece++
	c.Offset += n
	c.Hash = []byte{0, 255, byte(n)}
	b.ok(b.AdvanceUpload(b.ctx, c, true))
	return c
}

func testUploads(t *testing.T, b *bench) {
	u := b.newUpload(100)
	if u.Offset != 0 || u.Complete() || u.Spec.Name != "a.pdf" || u.Spec.Metadata["k"] != "v" || u.ExpiresAt.Sub(u.CreatedAt) != time.Hour {
		t.Fatalf("created %+v", u)
	}
	u = b.stored(u, 60)
	again, err := b.Upload(b.ctx, b.tenant, u.ID)
	b.ok(err)
	b.same("pieces", again.Pieces, []taskstore.UploadPiece{{N: 0, Size: 60}})
	b.same("hash", again.Hash, []byte{0, 255, 60})

	// A wrong offset changes nothing; a second writer fences the first, whose piece
	// number is not reused.
	_, err = b.ClaimUpload(b.ctx, b.tenant, u.ID, 59, time.Hour)
	b.is(err, sheaf.ErrConflict)
	first, err := b.ClaimUpload(b.ctx, b.tenant, u.ID, 60, time.Hour)
	b.ok(err)
	second, err := b.ClaimUpload(b.ctx, b.tenant, u.ID, 60, time.Hour)
	b.ok(err)
	if second.NextPiece <= first.NextPiece || second.Epoch <= first.Epoch {
		t.Errorf("the second writer has number %d under epoch %d, the first %d under %d", second.NextPiece, second.Epoch, first.NextPiece, first.Epoch)
	}
	first.Offset = 100
	b.is(b.AdvanceUpload(b.ctx, first, true), sheaf.ErrStale)
	b.ok(b.AdvanceUpload(b.ctx, second, true))
	third, err := b.ClaimUpload(b.ctx, b.tenant, u.ID, 60, time.Hour)
	b.ok(err)
	if third.NextPiece != second.NextPiece {
		t.Errorf("a writer that said it was done cost a number: %d, want %d", third.NextPiece, second.NextPiece)
	}

	// Only complete uploads are bound, and to one job.
	whole := b.stored(b.newUpload(5), 5)
	_, err = b.BindUploads(b.ctx, b.tenant, []string{whole.ID, u.ID}, sheaf.NewID())
	b.is(err, sheaf.ErrConflict)
	_, err = b.BindUploads(b.ctx, b.tenant, []string{whole.ID, whole.ID}, sheaf.NewID())
	b.is(err, sheaf.ErrInvalid)
	var wins sync.Map
	var group sync.WaitGroup
	var failed atomic.Int32
	for range 4 {
		group.Go(func() {
			bound, err := b.BindUploads(b.ctx, b.tenant, []string{whole.ID}, sheaf.NewID())
			if err != nil {
				failed.Add(1)
				return
			}
			wins.Store(bound[0].JobID, true)
		})
	}
	group.Wait()
	n := 0
	wins.Range(func(any, any) bool { n++; return true })
	if n != 1 || failed.Load() != 0 {
		t.Errorf("four submits at once saw %d jobs, %d failed", n, failed.Load())
	}
	_, err = b.ClaimUpload(b.ctx, b.tenant, whole.ID, 5, time.Hour)
	b.is(err, sheaf.ErrConflict)
	bound, err := b.Upload(b.ctx, b.tenant, whole.ID)
	b.ok(err)
	b.ok(b.UnbindUploads(b.ctx, b.tenant, bound.JobID))
	if bound, err = b.Upload(b.ctx, b.tenant, whole.ID); err != nil || bound.JobID != "" {
		t.Errorf("still bound to %q: %v", bound.JobID, err)
	}

	// Whoever creates an upload may be its first writer.
	begun, err := b.CreateUpload(b.ctx, taskstore.PartialUpload{ID: sheaf.NewID(), TenantID: b.tenant, DatasetID: b.dataset.ID, DocumentID: sheaf.NewID(), Size: 5, Epoch: 1}, time.Hour)
	b.ok(err)
	next, err := b.ClaimUpload(b.ctx, b.tenant, begun.ID, 0, time.Hour)
	b.ok(err)
	if begun.Epoch != 1 || begun.NextPiece != 0 || next.NextPiece != 1 {
		t.Errorf("the first writer has epoch %d and stores piece %d; the next one stores piece %d, want 1, 0 and 1", begun.Epoch, begun.NextPiece, next.NextPiece)
	}
	begun.Offset = 5
	b.is(b.AdvanceUpload(b.ctx, begun, true), sheaf.ErrStale)
	b.ok(b.DropUpload(b.ctx, b.tenant, next.ID))

	// Listing, another tenant, dropping.
	list, _, err := b.Uploads(b.ctx, b.tenant, b.dataset.ID, "print", taskstore.Page{})
	b.ok(err)
	none, _, err := b.Uploads(b.ctx, b.tenant, b.dataset.ID, "another", taskstore.Page{})
	b.ok(err)
	if len(list) != 2 || len(none) != 0 {
		t.Errorf("%d uploads of the fingerprint, %d of another", len(list), len(none))
	}
	_, err = b.Upload(b.ctx, "nobody", u.ID)
	b.is(err, sheaf.ErrNotFound)
	b.is(b.DropUpload(b.ctx, "nobody", u.ID), sheaf.ErrNotFound)
	_, err = b.BindUploads(b.ctx, "nobody", []string{whole.ID}, sheaf.NewID())
	b.is(err, sheaf.ErrNotFound)
	b.ok(b.DropUpload(b.ctx, b.tenant, u.ID))
	_, err = b.Upload(b.ctx, b.tenant, u.ID)
	b.is(err, sheaf.ErrNotFound)

	// The quota counts pending uploads.
	_, err = b.ChangeTenant(b.ctx, b.tenant, taskstore.TenantChange{Bytes: new(int64(1000))})
	b.ok(err)
	_, err = b.CreateUpload(b.ctx, taskstore.PartialUpload{ID: sheaf.NewID(), TenantID: b.tenant, DatasetID: b.dataset.ID, DocumentID: sheaf.NewID(), Size: 996}, time.Hour)
	b.is(err, sheaf.ErrLimit)
	last := b.newUpload(995)
	more := taskstore.PartialUpload{ID: sheaf.NewID(), TenantID: b.tenant, DatasetID: b.dataset.ID, DocumentID: sheaf.NewID(), Size: 1}
	_, err = b.CreateUpload(b.ctx, more, time.Hour)
	b.is(err, sheaf.ErrLimit)
	b.ok(b.DropUpload(b.ctx, b.tenant, last.ID))
	_, err = b.CreateUpload(b.ctx, more, time.Hour) // there is room immediately
	b.ok(err)
	// A document that was created otherwise takes its place immediately.
	held, err := b.QuotaUsage(b.ctx, b.tenant)
	b.ok(err)
	list, _, err = b.Uploads(b.ctx, b.tenant, b.dataset.ID, "", taskstore.Page{})
	b.ok(err)
	list = slices.DeleteFunc(list, func(u taskstore.PartialUpload) bool { return u.JobID != "" })
	_, err = b.ChangeTenant(b.ctx, b.tenant, taskstore.TenantChange{Bytes: new(int64(0)), Documents: new(held.Documents + len(list) + 2)})
	b.ok(err)
	b.newUpload(1)
	b.create("a.pdf")
	more.ID, more.DocumentID = sheaf.NewID(), sheaf.NewID()
	_, err = b.CreateUpload(b.ctx, more, time.Hour)
	b.is(err, sheaf.ErrLimit)

	// An expired upload ends immediately, and leaves its pieces to the collector later.
	b.AdvanceClock(61 * time.Minute)
	_, err = b.Upload(b.ctx, b.tenant, whole.ID)
	b.is(err, sheaf.ErrNotFound)
	for {
		n, err := b.ExpireUploads(b.ctx, 1)
		b.ok(err)
		if n == 0 {
			break
		}
	}
	prefixes := map[string]bool{}
	b.AdvanceClock(10 * time.Minute)
	garbage, err := b.Garbage(b.ctx, 1000)
	b.ok(err)
	for _, g := range garbage {
		prefixes[g.BlobPrefix] = true
	}
	for _, id := range []string{u.ID, whole.ID} {
		if !prefixes[taskstore.UploadPrefix(b.tenant, id)] {
			t.Errorf("the pieces of %s are not among the garbage", id)
		}
	}
}
