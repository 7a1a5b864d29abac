package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
	"sheaf/parser"
	"sheaf/parser/archive"
	"sheaf/parser/child"
	"sheaf/parser/text"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

// unpacker stands for the parser's children: it yields files, given as path
// and content, two a step.
type unpacker struct {
	PlanParser
	t     *testing.T
	files [][2]string
}

func (u unpacker) Unpack(_ context.Context, _ child.Source, from int) (*parser.Unpacked, string, func(), error) {
	dir := u.t.TempDir()
	out := &parser.Unpacked{}
	for n := from; n <= len(u.files); n++ {
		if n == from+2 {
			out.Next = n
			break
		}
		name, content := fmt.Sprint(n), u.files[n-1][1]
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			u.t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(content))
		out.Members = append(out.Members, parser.Member{N: n, Path: u.files[n-1][0], File: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
	}
	return out, dir, func() {}, nil
}

// trap breaks off one write of those it counts: before it happens, or after,
// as when its answer is lost.
type trap struct {
	at, step int
	behind   bool
}

var errKilled = fmt.Errorf("%w: killed", sheaf.ErrUnavailable)

func (f *trap) do(write func() error) error {
	hit := f.step == f.at
	f.step++
	if hit && !f.behind {
		return errKilled
	}
	if err := write(); err != nil || !hit {
		return err
	}
	return errKilled
}

type trapStore struct {
	*sqlstore.Store
	trap *trap
}

func (s trapStore) CreateMembers(ctx context.Context, c sheaf.Claim, ask taskstore.NewMembers) (out []taskstore.MemberOutcome, err error) {
	err = s.trap.do(func() error { out, err = s.Store.CreateMembers(ctx, c, ask); return err })
	return out, err
}

type trapBlobs struct {
	blob.Store
	trap *trap
}

func (s trapBlobs) Put(ctx context.Context, key string, r io.Reader, size int64) (info blob.Info, err error) {
	err = s.trap.do(func() error { info, err = s.Store.Put(ctx, key, r, size); return err })
	return info, err
}

type noFiles struct{ Files }

func (noFiles) Fetch(context.Context, string, string, int64) (string, func(), error) {
	return "", func() {}, nil
}

// An executor may die at any write while it makes documents of an archive's
// files: the next attempt goes on, nothing is made twice and nothing is lost.
func TestUnpackingSurvivesDeathAtEveryWrite(t *testing.T) {
	var formats *parser.Registry
	formats = parser.NewRegistry(archive.New(archive.Limits{}, func() *parser.Registry { return formats }), text.New())
	files := [][2]string{{"a.txt", "alpha"}, {"b.txt", "beta"}, {"c/a.txt", "alpha"}, {"d.bin", "\x00\x01\x02"}, {"e.txt", "epsilon"}}
	for _, behind := range []bool{false, true} {
		for at := 0; ; at++ {
			ctx := t.Context()
			store := storetest.Open(t, "sqlite")
			blobs, err := file.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.CreateTenant(ctx, sheaf.Tenant{ID: "t", Name: "t", Weight: 1, Cap: 8}); err != nil {
				t.Fatal(err)
			}
			if _, err := store.CreateDataset(ctx, sheaf.Dataset{ID: "d", TenantID: "t", Name: "d"}); err != nil {
				t.Fatal(err)
			}
			id, plan := sheaf.NewID(), taskstore.PlanTask(taskstore.PlanPayload{})
			if _, err := store.CreateDocuments(ctx, sheaf.Job{ID: sheaf.NewID(), TenantID: "t", DatasetID: "d", Kind: sheaf.JobIngest}, []taskstore.NewDocument{{
				Document: sheaf.Document{ID: id, Name: "x.zip", MediaType: parser.MediaZIP, Size: 1, SHA256: "x", BlobKey: sheaf.OriginalPrefix("t", id) + "v1"}, Plan: plan,
			}}, ""); err != nil {
				t.Fatal(err)
			}

			fault := &trap{at: at, behind: behind}
			p := &Planner{Store: trapStore{store, fault}, Files: noFiles{}, Blobs: trapBlobs{blobs, fault}, Parser: unpacker{t: t, files: files}, Formats: formats}
			attempts := 0
			for done := false; !done; attempts++ {
				task, err := store.Claim(ctx, plan.ID, fmt.Sprint("worker", attempts), time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				completion, err := planned(ctx, p, task)
				switch {
				case err == nil:
					if err := store.Complete(ctx, task.Held(), completion); err != nil {
						t.Fatal(err)
					}
					done = true
				case errors.Is(err, sheaf.ErrUnavailable):
					if err := store.Release(ctx, task.Held()); err != nil {
						t.Fatal(err)
					}
				default:
					t.Fatal(err)
				}
			}

			made, err := store.Members(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			named := map[string]bool{}
			for _, d := range made {
				r, err := blobs.Open(ctx, d.BlobKey, 0, -1)
				if err != nil {
					t.Fatalf("write %d: the bytes of %s: %v", at, d.Path, err)
				}
				content, err := io.ReadAll(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = r.Close()
				tasks, err := store.GenerationTasks(ctx, d.ID, 1)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s=%s gen %d tasks %d", d.Path, content, d.Generation, len(tasks)))
				named[d.BlobKey] = true
			}
			slices.Sort(got)
			want := []string{"a.txt=alpha gen 1 tasks 1", "b.txt=beta gen 1 tasks 1", "c/a.txt=alpha gen 1 tasks 1", "e.txt=epsilon gen 1 tasks 1"}
			if !slices.Equal(got, want) {
				t.Fatalf("write %d, behind %v: %q", at, behind, got)
			}
			ledger, err := store.UnitLedger(ctx, "t", id, 1)
			if err != nil || ledger.Counts() != (sheaf.LedgerCounts{OK: 4, Skipped: 1}) {
				t.Fatalf("ledger %+v, %v", ledger, err)
			}
			// What a dead attempt left goes when the archive does.
			if err := blobs.List(ctx, "originals/", func(i blob.Info) bool {
				if !named[i.Key] && !strings.HasPrefix(i.Key, sheaf.OriginalPrefix("t", id)) {
					t.Errorf("%s belongs to nobody", i.Key)
				}
				return true
			}); err != nil {
				t.Fatal(err)
			}
			if attempts == 1 {
				if at < 7 { // four files and three steps
					t.Fatalf("only %d writes were counted", at)
				}
				break
			}
			if attempts != 2 {
				t.Fatalf("write %d: %d attempts", at, attempts)
			}
		}
	}
}

func TestWhatAChildNamesIsInItsFolder(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "member-1"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, opens := range map[string]bool{"member-1": true, "link": false, "../" + filepath.Base(outside) + "/secret": false, filepath.Join(outside, "secret"): false} {
		f, err := openWritten(dir, name)
		if (err == nil) != opens {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = f.Close()
		}
	}
}
