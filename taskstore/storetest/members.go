package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"sheaf"
	"sheaf/taskstore"
)

// files are members of an archive with ids and hashes derived from their paths.
func files(archive string, generation int, paths ...string) []taskstore.NewDocument {
	out := make([]taskstore.NewDocument, len(paths))
	for i, p := range paths {
		path, content, _ := strings.Cut(p, "=")
		id := fmt.Sprintf("%s-%s", archive[16:], path)
		out[i] = taskstore.NewDocument{
			Document: sheaf.Document{ID: id, Name: "a.zip/" + path, Path: path, MediaType: "text/plain", Size: 10, SHA256: content + path,
				BlobKey: sheaf.MemberKey("t", archive, generation, 1, id)},
			Plan: sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1},
		}
	}
	return out
}

func asking(files []taskstore.NewDocument) taskstore.NewMembers {
	return taskstore.NewMembers{Files: files, MaxDocuments: 100, MaxBytes: 1 << 20}
}

// members creates documents for paths, none of which may be rejected.
func (f *Fixture) members(held sheaf.Claim, ask taskstore.NewMembers) {
	f.T.Helper()
	out, err := f.Store.CreateMembers(ctx, held, ask)
	f.OK(err)
	for i, o := range out {
		if o.Failure != nil || o.Wait {
			f.T.Fatalf("%s: %+v", ask.Files[i].Document.Path, o)
		}
	}
}

// plansOf returns the plan tasks of an archive's member, newest first.
func (f *Fixture) plansOf(id string) []string {
	f.T.Helper()
	return f.Strings("SELECT id FROM tasks WHERE doc_id=? AND kind='plan' ORDER BY gen DESC", id)
}

// unpacked ends the archive's plan as one that yielded n documents, and
// publishes it.
func (f *Fixture) unpacked(d Doc, t *sheaf.Task, n int) {
	f.T.Helper()
	f.OK(f.Store.Complete(ctx, t.Held(), taskstore.Completion{
		Plan: &sheaf.PlanResult{Parser: "archive/1", Unit: sheaf.UnitPart, Units: n},
		Spawn: []sheaf.NewTask{{ID: sheaf.NewID(), Kind: sheaf.KindParse, Unit: sheaf.UnitPart, Range: sheaf.Range{From: 1, To: n}, Cost: 1,
			Done: &sheaf.TaskResult{Documents: n, Ledger: sheaf.Ledger{{From: 1, To: n, Status: sheaf.UnitOK}}}}},
	}))
	f.Publish(d.ID, sheaf.DocSucceeded)
}

func membersOnce(f *Fixture) {
	d := f.Document("t")
	t := f.Claim(d.Plan, "w")
	ask := asking(files(d.ID, 1, "a", "b"))
	f.members(t.Held(), ask)
	f.members(t.Held(), ask)

	// The executor is lost, and the next one starts again, with its own keys.
	f.OK(f.Store.Release(ctx, t.Held()))
	t = f.Claim(d.Plan, "w2")
	ask = asking(files(d.ID, 1, "a", "b", "c"))
	for i := range ask.Files {
		ask.Files[i].Document.BlobKey += "-2"
	}
	out, err := f.Store.CreateMembers(ctx, t.Held(), ask)
	f.OK(err)
	want(f, "the bytes of a are the first attempt's", out[0].Stored, false)
	want(f, "those of c the second's", out[2].Stored, true)
	members, err := f.Store.Members(ctx, d.ID)
	f.OK(err)
	want(f, "members", len(members), 3)
	for i, m := range members {
		if m.Path != []string{"a", "b", "c"}[i] || m.ParentID != d.ID || m.JobID != d.Job || m.Generation != 1 || m.State != sheaf.DocQueued || m.Depth != 1 {
			f.T.Fatalf("member %d: %+v", i, m)
		}
		want(f, "plans of "+m.Path, len(f.plansOf(m.ID)), 1)
	}
	job, err := f.Store.Job(ctx, "t", d.Job)
	f.OK(err)
	want(f, "documents of the job", job.Documents.Total, 4)
	listed, _, err := f.Store.Documents(ctx, "t", taskstore.DocumentFilter{ParentID: d.ID}, taskstore.Page{})
	f.OK(err)
	want(f, "documents listed by their archive", len(listed), 3)
}

func membersFenced(f *Fixture) {
	d := f.Document("t")
	t := f.Claim(d.Plan, "w")
	zombie := t.Held()
	f.OK(f.Store.Release(ctx, zombie))
	refuse := func(held sheaf.Claim) {
		f.T.Helper()
		_, err := f.Store.CreateMembers(ctx, held, asking(files(d.ID, 1, "a")))
		f.Stale(err)
	}
	refuse(zombie)
	t = f.Claim(d.Plan, "w2")
	refuse(zombie)
	f.Cancel(d)
	refuse(t.Held())
	d = f.Document("t")
	t = f.Claim(d.Plan, "w")
	f.Reparse(d)
	refuse(t.Held())
	d = f.Document("t")
	t = f.Claim(d.Plan, "w")
	_, err := f.Store.DeleteDocuments(ctx, "t", []string{d.ID})
	f.OK(err)
	refuse(t.Held())
	want(f, "members", f.Int("SELECT COUNT(*) FROM documents WHERE parent_id<>''"), 0)
}

func membersQuota(f *Fixture) {
	d := f.Document("t")
	set := func(q sheaf.Quota) {
		_, err := f.Store.ChangeTenant(ctx, "t", taskstore.TenantChange{Documents: &q.Documents, Bytes: &q.Bytes, QueuedTasks: &q.QueuedTasks})
		f.OK(err)
	}
	t := f.Claim(d.Plan, "w")
	set(sheaf.Quota{Documents: 3})
	out, err := f.Store.CreateMembers(ctx, t.Held(), asking(files(d.ID, 1, "a", "b", "c")))
	f.OK(err)
	if out[0].Failure != nil || out[1].Failure != nil || out[2].Failure == nil || out[2].Failure.Code != "usage_limit_exceeded" || out[2].Stored {
		f.T.Fatalf("the third of three documents beside the archive: %+v", out)
	}
	set(sheaf.Quota{Bytes: 35})
	out, err = f.Store.CreateMembers(ctx, t.Held(), asking(files(d.ID, 1, "c")))
	f.OK(err)
	want(f, "refused for its bytes", out[0].Failure != nil, true)

	// The queue empties over time: what exceeds its capacity waits.
	set(sheaf.Quota{QueuedTasks: 3})
	out, err = f.Store.CreateMembers(ctx, t.Held(), asking(files(d.ID, 1, "a", "b", "c", "d")))
	f.OK(err)
	if !out[3].Wait || out[3].Failure != nil || out[2].Wait {
		f.T.Fatalf("a full queue: %+v", out)
	}
	set(sheaf.Quota{})
	ask := asking(files(d.ID, 1, "a", "d", "e"))
	ask.MaxDocuments = 4
	out, err = f.Store.CreateMembers(ctx, t.Held(), ask)
	f.OK(err)
	if out[0].Failure != nil || out[1].Failure != nil || out[2].Failure == nil || out[2].Failure.Code != "archive_limit" {
		f.T.Fatalf("the bound on one archive: %+v, %+v", out[1].Failure, out[2].Failure)
	}
}

func membersFollow(f *Fixture) {
	d := f.Document("t")
	t := f.Claim(d.Plan, "w")
	f.members(t.Held(), asking(files(d.ID, 1, "a", "b", "gone")))
	f.unpacked(d, t, 3)
	a, b, gone := d.ID[16:]+"-a", d.ID[16:]+"-b", d.ID[16:]+"-gone"

	// A document inside a member goes with it.
	t = f.Claim(f.plansOf(gone)[0], "w")
	inner := files(d.ID, 1, "inner")
	inner[0].Document.BlobKey = sheaf.MemberKey("t", gone, 1, 1, inner[0].Document.ID)
	f.members(t.Held(), asking(inner))
	want(f, "depth", f.Doc(inner[0].Document.ID).Depth, 2)

	d = f.Reparse(d)
	t = f.Claim(d.Plan, "w")
	ask := asking(files(d.ID, 2, "a", "b=new"))
	f.members(t.Held(), ask)
	f.members(t.Held(), ask)
	want(f, "generation of what stayed", f.Doc(a).Generation, 2)
	want(f, "its bytes", f.Doc(a).BlobKey, sheaf.MemberKey("t", d.ID, 1, 1, a))
	want(f, "generation of what changed", f.Doc(b).Generation, 2)
	want(f, "its bytes", f.Doc(b).BlobKey, ask.Files[1].Document.BlobKey)
	want(f, "its plans", len(f.plansOf(b)), 2)
	want(f, "generation of what is gone, while the archive is being read", f.Doc(gone).Generation, 1)
	f.unpacked(d, t, 2)
	for _, id := range []string{gone, inner[0].Document.ID} {
		if _, err := f.Store.DocumentByID(ctx, id); !errors.Is(err, sheaf.ErrNotFound) {
			f.T.Fatalf("%s outlived its archive's version: %v", id, err)
		}
	}

	// Kept members belong to the new generation without a generation of their own.
	d = f.Reparse(d)
	t = f.Claim(d.Plan, "w")
	keep := asking(files(d.ID, 3, "a", "b=new"))
	keep.Keep = true
	f.members(t.Held(), keep)
	f.unpacked(d, t, 2)
	want(f, "generation of what was kept", f.Doc(a).Generation, 2)

	r, err := f.Store.CancelDocuments(ctx, "t", []string{d.ID})
	f.OK(err)
	want(f, "canceled with the archive, which is done", r.Documents, 2)
	deleted, err := f.Store.DeleteDocuments(ctx, "t", []string{d.ID})
	f.OK(err)
	want(f, "deleted with the archive", deleted.Documents, 3)
	want(f, "left", f.Int("SELECT COUNT(*) FROM documents WHERE deleted_at=0"), 0)
	if f.Int("SELECT COUNT(*) FROM garbage WHERE doc_id=? AND blob_prefix=?", a, sheaf.MemberKey("t", d.ID, 1, 1, a)) == 0 {
		f.T.Fatal("the bytes of a member stay behind")
	}
}

func membersRace(f *Fixture) {
	for range 5 {
		d := f.Document("t")
		t := f.Claim(d.Plan, "w")
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				_, err := f.Store.CreateMembers(ctx, t.Held(), asking(files(d.ID, 1, fmt.Sprint("x", n), fmt.Sprint("y", n))))
				if err != nil && !errors.Is(err, sheaf.ErrStale) {
					f.T.Error(err)
				}
			})
		}
		wg.Go(func() {
			if _, err := f.Store.DeleteDocuments(ctx, "t", []string{d.ID}); err != nil {
				f.T.Error(err)
			}
		})
		wg.Wait()
		want(f, "documents that outlived their archive", f.Int("SELECT COUNT(*) FROM documents WHERE parent_id=? AND deleted_at=0", d.ID), 0)
	}
}
