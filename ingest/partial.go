package ingest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/taskstore"
)

const (
	// pieceBytes is how much of an upload one process holds in memory, and loses when
	// killed.
	pieceBytes = 8 << 20
	// mostPieces keeps an upload of any size below what stores can compose, even if
	// many of its pieces have the minimum size.
	mostPieces = blob.MaxParts * 4 / 5
	// defaultUploadLife is how long an upload is kept after its last byte.
	defaultUploadLife = 24 * time.Hour
	// settleTimeout bounds storing what arrived before a connection broke.
	settleTimeout = 30 * time.Second
)

// BeginUpload registers a file that will arrive in pieces. Whatever can be rejected
// without its bytes is rejected now. With write, the caller becomes the upload's writer
// unless an earlier request began it, which writer reports: a small file takes one
// transaction less.
func (s *Service) BeginUpload(ctx context.Context, dataset *sheaf.Dataset, u Upload, fingerprint, header string, hold, write bool) (made *taskstore.PartialUpload, writer bool, err error) {
	if err := s.check(u); err != nil {
		return nil, false, err
	}
	id, epoch := u.Origin.ID(dataset.TenantID, "upload", 0), int64(0)
	if write {
		epoch = 1
	}
	made, err = s.Catalog.CreateUpload(ctx, taskstore.PartialUpload{
		ID: id, TenantID: dataset.TenantID, DatasetID: dataset.ID, DocumentID: cmp.Or(u.ID, u.Origin.ID(dataset.TenantID, "document", 0)), Size: u.Size, Fingerprint: fingerprint, Epoch: epoch,
		Spec: taskstore.UploadSpec{Name: CleanName(u.Name), MediaType: u.MediaType, Config: u.Config, Metadata: u.Metadata, Attributes: u.Attributes, Lane: u.Lane, Hold: hold, Job: u.Origin.Job, Header: header},
	}, s.uploadLife())
	if errors.Is(err, sheaf.ErrConflict) { // a repeated request with a key
		made, err = s.Catalog.Upload(ctx, dataset.TenantID, id)
		return made, false, err
	}
	return made, write, err
}

func (s *Service) uploadLife() time.Duration { return cmp.Or(s.UploadLife, defaultUploadLife) }

// AppendUpload stores the bytes of body after the first offset ones, as WriteUpload
// does.
func (s *Service) AppendUpload(ctx context.Context, tenantID, id string, offset int64, body io.Reader, verify func() error) (*taskstore.PartialUpload, error) {
	u, err := s.Catalog.ClaimUpload(ctx, tenantID, id, offset, s.uploadLife())
	if err != nil {
		return nil, err
	}
	return s.WriteUpload(ctx, u, body, verify)
}

// WriteUpload stores the bytes of body after those that u has. The caller is u's
// writer. It returns the upload's progress even with an error: what arrived before a
// connection broke is stored. With verify, nothing is stored unless it succeeds after
// the last byte; it sees the bytes through the hash it was made with.
func (s *Service) WriteUpload(ctx context.Context, u *taskstore.PartialUpload, body io.Reader, verify func() error) (*taskstore.PartialUpload, error) {
	w := &pieceWriter{s: s, u: u, atEnd: verify != nil, stored: *u}
	if err := w.begin(ctx); err != nil {
		return &w.stored, err
	}
	readErr := w.copy(ctx, body)
	// Store what has arrived even if the sender has disconnected.
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if verify != nil {
		err := readErr
		if err == nil {
			err = verify()
		}
		if err != nil {
			w.forget(settle)
			return &w.stored, err
		}
	}
	err := w.end(settle)
	return &w.stored, errors.Join(readErr, err)
}

// presignedLife is how long the address of a direct upload is valid: enough for 5 GB
// over a slow line.
const presignedLife = 6 * time.Hour

// directKey is the blob key to which the sender uploads the bytes directly.
func directKey(u *taskstore.PartialUpload) string {
	return taskstore.UploadPrefix(u.TenantID, u.ID) + "direct"
}

// errNoDirect says that the bytes must be sent through the API.
var errNoDirect = sheaf.Fail(sheaf.CategoryPolicy, "no_direct_upload", "files are kept on the server's own disk here; send the bytes to the upload itself")

// PresignUpload returns a blob store address to which the sender may PUT the whole
// file, and its expiry.
func (s *Service) PresignUpload(ctx context.Context, tenantID, id string) (address string, until time.Time, err error) {
	store, ok := s.Blobs.(blob.Presigner)
	if !ok {
		return "", until, errNoDirect
	}
	u, err := s.Catalog.Upload(ctx, tenantID, id)
	if err != nil {
		return "", until, err
	}
	if u.Offset != 0 || u.Size == 0 || u.JobID != "" {
		return "", until, fmt.Errorf("%w: of upload %s %d of %d bytes are stored; only one that has not begun can be sent directly", sheaf.ErrConflict, id, u.Offset, u.Size)
	}
	life := min(presignedLife, time.Until(u.ExpiresAt))
	address, err = store.PresignPut(ctx, directKey(u), u.Size, life)
	return address, time.Now().Add(life), err
}

// CompleteUpload takes over a direct upload. The object is copied first: the address
// remains valid, and the hashed bytes must not change.
func (s *Service) CompleteUpload(ctx context.Context, tenantID, id string) (*taskstore.PartialUpload, error) {
	if _, ok := s.Blobs.(blob.Presigner); !ok {
		return nil, errNoDirect
	}
	u, err := s.Catalog.Upload(ctx, tenantID, id)
	if err != nil || u.Complete() {
		return u, err // a repeated call
	}
	info, err := s.Blobs.Stat(ctx, directKey(u))
	if errors.Is(err, sheaf.ErrNotFound) || err == nil && info.Size != u.Size {
		return nil, fmt.Errorf("%w: %d of %d bytes are in the blob store; PUT the file to the address first", sheaf.ErrConflict, info.Size, u.Size)
	}
	if err != nil {
		return nil, err
	}
	if u, err = s.Catalog.ClaimUpload(ctx, tenantID, id, 0, s.uploadLife()); err != nil {
		return nil, err
	}
	key := u.PieceKey(u.NextPiece)
	if err := s.Blobs.Compose(ctx, key, []string{directKey(u)}); err != nil {
		return nil, fmt.Errorf("taking over the bytes of upload %s: %w", id, err)
	}
	r, err := s.Blobs.Open(ctx, key, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err == nil && n != u.Size {
		err = fmt.Errorf("%w: the file in the blob store was replaced by one of %d bytes; PUT it again", sheaf.ErrConflict, n)
	}
	if err != nil {
		return nil, err
	}
	u.Pieces, u.NextPiece, u.Offset = []taskstore.UploadPiece{{N: u.NextPiece, Size: n}}, u.NextPiece+1, n
	u.Hash, _ = sum.(encoding.BinaryMarshaler).MarshalBinary() // a hash never fails
	return u, s.Catalog.AdvanceUpload(ctx, u, true)
}

// pieceWriter cuts the incoming bytes into pieces of a size that every store can
// compose: a small last piece is read back and rewritten with the bytes that follow.
type pieceWriter struct {
	s      *Service
	u      *taskstore.PartialUpload
	stored taskstore.PartialUpload // as the catalog has it
	hash   hash.Hash
	buf    []byte // the next piece
	hashed int    // prefix of buf already hashed
	old    []string
	made   []string
	atEnd  bool // tell the catalog only at the end
}

// pieceSize is pieceBytes, or larger so that mostPieces suffice.
func pieceSize(size int64) int { return int(max(pieceBytes, (size+mostPieces-1)/mostPieces)) }

func (w *pieceWriter) begin(ctx context.Context) error {
	w.hash = sha256.New()
	if w.u.Hash != nil {
		if err := w.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(w.u.Hash); err != nil {
			return fmt.Errorf("the state of upload %s cannot be read; begin it anew: %w", w.u.ID, err)
		}
	}
	n := len(w.u.Pieces)
	if n == 0 || w.u.Pieces[n-1].Size >= blob.MinPartBytes {
		return nil
	}
	tail := w.u.Pieces[n-1]
	key := w.u.PieceKey(tail.N)
	r, err := w.s.Blobs.Open(ctx, key, 0, -1)
	if err != nil {
		return fmt.Errorf("taking up the last piece of upload %s: %w", w.u.ID, err)
	}
	defer r.Close()
	if w.buf, err = io.ReadAll(io.LimitReader(r, blob.MinPartBytes)); err != nil {
		return fmt.Errorf("taking up the last piece of upload %s: %w", w.u.ID, err)
	}
	w.hashed = len(w.buf)
	w.u.Pieces = w.u.Pieces[: n-1 : n-1]
	w.old = append(w.old, key)
	return nil
}

// copy reads body to its end, storing every full piece. An error is body's, or says
// that the bytes could not be stored.
func (w *pieceWriter) copy(ctx context.Context, body io.Reader) error {
	size := pieceSize(w.u.Size)
	for empty := 0; ; {
		left := w.u.Size - w.u.Offset - int64(len(w.buf)-w.hashed)
		if len(w.buf) == cap(w.buf) {
			grown := make([]byte, len(w.buf), min(size, max(64<<10, 4*cap(w.buf)))+1)
			copy(grown, w.buf)
			w.buf = grown
		}
		n, err := body.Read(w.buf[len(w.buf):cap(w.buf)])
		if int64(n) > left {
			return fmt.Errorf("%w: more bytes come than were announced; the upload has %d", sheaf.ErrInvalid, w.u.Size)
		}
		w.buf = w.buf[:len(w.buf)+n]
		if len(w.buf) >= size {
			if err := w.flush(ctx, false); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if n > 0 {
			empty = 0
		} else if empty++; empty == 100 {
			return io.ErrNoProgress
		}
	}
}

// flush stores buf as a piece, and tells the catalog.
func (w *pieceWriter) flush(ctx context.Context, last bool) error {
	if len(w.buf) > w.hashed {
		key := w.u.PieceKey(w.u.NextPiece)
		if _, err := w.s.Blobs.Put(ctx, key, bytes.NewReader(w.buf), int64(len(w.buf))); err != nil {
			return err // the hash has not seen the piece: end retries it
		}
		_, _ = w.hash.Write(w.buf[w.hashed:]) // a hash never fails
		w.made = append(w.made, key)
		w.u.Pieces = append(w.u.Pieces, taskstore.UploadPiece{N: w.u.NextPiece, Size: int64(len(w.buf))})
		w.u.NextPiece++
		w.u.Offset += int64(len(w.buf) - w.hashed)
		w.u.Hash, _ = w.hash.(encoding.BinaryMarshaler).MarshalBinary() // a hash never fails
	} else if len(w.old) > 0 && len(w.made) == 0 {
		*w.u = w.stored // nothing arrived: the piece read back stays as it is
		w.old = nil
	}
	w.buf, w.hashed = w.buf[:0], 0
	if w.atEnd && !last {
		return nil
	}
	if err := w.s.Catalog.AdvanceUpload(ctx, w.u, last); err != nil {
		if errors.Is(err, sheaf.ErrStale) {
			w.forget(ctx)
		}
		return err
	}
	w.stored = *w.u
	w.drop(ctx, w.old)
	w.old, w.made = nil, nil
	return nil
}

func (w *pieceWriter) end(ctx context.Context) error { return w.flush(ctx, true) }

// forget removes pieces unknown to the catalog, and tells it that this writer is
// done.
func (w *pieceWriter) forget(ctx context.Context) {
	w.drop(ctx, w.made)
	again := w.stored
	again.NextPiece = w.u.NextPiece
	if err := w.s.Catalog.AdvanceUpload(ctx, &again, true); err != nil {
		w.s.Log.DebugContext(ctx, "an upload's writer could not say that it is done; the next one skips a number", "upload", w.u.ID, "error", err)
	}
	w.made, w.buf, w.hashed = nil, nil, 0
}

func (w *pieceWriter) drop(ctx context.Context, keys []string) {
	if len(keys) == 0 {
		return
	}
	if err := w.s.Blobs.Delete(ctx, keys...); err != nil {
		w.s.Log.DebugContext(ctx, "pieces stay until their upload goes", "upload", w.u.ID, "error", err)
	}
}

// StagedUpload is an upload that is ready to become a document, or why it is not.
type StagedUpload struct {
	UploadID string
	Name     string
	Staged   *Staged
	Failure  *sheaf.Failure
}

// stageUpload joins the pieces of a complete upload into the original.
func (s *Service) stageUpload(ctx context.Context, dataset *sheaf.Dataset, u *taskstore.PartialUpload) (*Staged, error) {
	spec := Upload{ID: u.DocumentID, Name: u.Spec.Name, MediaType: u.Spec.MediaType, Size: u.Size, Config: u.Spec.Config, Metadata: u.Spec.Metadata, Attributes: u.Spec.Attributes, Lane: u.Spec.Lane}
	st := &Staged{Document: newDocument(dataset, spec)}
	// Each attempt has its own key: one that is abandoned removes only its own.
	st.Document.BlobKey = sheaf.OriginalPrefix(u.TenantID, u.DocumentID) + sheaf.NewID()
	if u.Size == 0 {
		return nil, emptyFile(st.Document.Name)
	}
	sum := sha256.New()
	if err := sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(u.Hash); err != nil {
		return nil, fmt.Errorf("the state of upload %s cannot be read; begin it anew: %w", u.ID, err)
	}
	keys := make([]string, len(u.Pieces))
	for i, p := range u.Pieces {
		keys[i] = u.PieceKey(p.N)
	}
	if err := s.Blobs.Compose(ctx, st.Document.BlobKey, keys); err != nil {
		return nil, fmt.Errorf("joining the pieces of upload %s: %w", u.ID, err)
	}
	if err := s.describe(ctx, st, spec, blob.Info{Key: st.Document.BlobKey, Size: u.Size, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil); err != nil {
		s.Discard(ctx, st)
		return nil, err
	}
	return st, nil
}

// StagedAtOnce is how many files of one request are stored concurrently: each waits
// for the disk.
const StagedAtOnce = 8

// StageUploads joins complete uploads into originals, in order. A rejected file does
// not stop the others.
func (s *Service) StageUploads(ctx context.Context, dataset *sheaf.Dataset, uploads []taskstore.PartialUpload) ([]StagedUpload, error) {
	for _, u := range uploads {
		if u.DatasetID != dataset.ID {
			return nil, fmt.Errorf("%w: upload %s is of another dataset", sheaf.ErrNotFound, u.ID)
		}
	}
	out := make([]StagedUpload, len(uploads))
	group, ctx2 := errgroup.WithContext(ctx)
	group.SetLimit(StagedAtOnce)
	for i := range uploads {
		u := &uploads[i]
		out[i] = StagedUpload{UploadID: u.ID, Name: u.Spec.Name}
		group.Go(func() error {
			if ctx2.Err() != nil {
				return nil // another has failed
			}
			st, err := s.stageUpload(ctx2, dataset, u)
			if f, ok := errors.AsType[*sheaf.Failure](err); ok && !f.Retryable {
				out[i].Failure = f
				return nil
			}
			out[i].Staged = st
			return err
		})
	}
	if err := group.Wait(); err != nil {
		s.discardUploads(ctx, out)
		return nil, err
	}
	return out, nil
}

func (s *Service) discardUploads(ctx context.Context, staged []StagedUpload) {
	for _, st := range staged {
		if st.Staged != nil {
			s.Discard(ctx, st.Staged)
		}
	}
}

// SubmitUploads makes documents of complete uploads, under one job. Repeating the
// call, even at another process, gives the same answer: the uploads record their
// job.
func (s *Service) SubmitUploads(ctx context.Context, dataset *sheaf.Dataset, ids []string, from Origin) (*Submission, []StagedUpload, error) {
	if len(ids) == 0 {
		return nil, nil, fmt.Errorf("%w: name the uploads to submit", sheaf.ErrInvalid)
	}
	if from.Job != "" {
		// A repeated request's documents are already in it, which is checked below.
		if err := s.Catalog.JobTakes(ctx, dataset.TenantID, dataset.ID, from.Job, 0); err != nil && !errors.Is(err, sheaf.ErrConflict) {
			return nil, nil, err
		}
	}
	uploads, err := s.Catalog.BindUploads(ctx, dataset.TenantID, ids, cmp.Or(from.Job, from.ID(dataset.TenantID, "job", 0)))
	if err != nil {
		return nil, nil, err
	}
	jobID := cmp.Or(from.Job, uploads[0].JobID)
	for _, u := range uploads {
		if u.JobID != jobID {
			return nil, nil, fmt.Errorf("%w: upload %s was submitted to job %s and upload %s to job %s; submit those that are new in a request of their own", sheaf.ErrConflict, uploads[0].ID, uploads[0].JobID, u.ID, u.JobID)
		}
	}
	done, refused, err := s.submitBound(ctx, dataset, jobID, uploads, from)
	if (err != nil || done == nil) && !errors.Is(err, sheaf.ErrUnavailable) { // after an ambiguous commit the job may exist
		if uerr := s.Catalog.UnbindUploads(context.WithoutCancel(ctx), dataset.TenantID, jobID); uerr != nil {
			s.Log.WarnContext(ctx, "uploads remain bound to a job that was not created; submit them again", "job", jobID, "error", uerr)
		}
	}
	return done, refused, err
}

func (s *Service) submitBound(ctx context.Context, dataset *sheaf.Dataset, jobID string, uploads []taskstore.PartialUpload, from Origin) (*Submission, []StagedUpload, error) {
	if job, err := s.Catalog.JobGiven(ctx, dataset.TenantID, jobID); err == nil {
		if from.Job == "" {
			return s.submitted(ctx, job, uploads)
		}
		if there, err := s.joined(ctx, job, uploads); err != nil || there {
			if err != nil {
				return nil, nil, err
			}
			return s.submitted(ctx, job, uploads)
		}
		if err := s.Catalog.JobTakes(ctx, dataset.TenantID, dataset.ID, jobID, len(uploads)); err != nil {
			return nil, nil, err
		}
	} else if !errors.Is(err, sheaf.ErrNotFound) {
		return nil, nil, err
	}
	staged, err := s.StageUploads(ctx, dataset, uploads)
	if err != nil {
		// A concurrent identical call may have been first and removed the pieces.
		if job, joberr := s.Catalog.JobGiven(ctx, dataset.TenantID, jobID); joberr == nil {
			if there, err := s.joined(ctx, job, uploads); err == nil && there {
				return s.submitted(ctx, job, uploads)
			}
		}
		return nil, nil, err
	}
	var good []*Staged
	for _, st := range staged {
		if st.Staged != nil {
			good = append(good, st.Staged)
		}
	}
	if len(good) == 0 {
		return nil, staged, nil
	}
	done, err := s.submit(ctx, dataset, jobID, good, from)
	if err != nil {
		return nil, nil, err
	}
	var drops errgroup.Group
	drops.SetLimit(StagedAtOnce)
	for i := range uploads { // the rest is deleted with the upload
		drops.Go(func() error {
			if _, err := s.Blobs.DeletePrefix(ctx, taskstore.UploadPrefix(uploads[i].TenantID, uploads[i].ID)); err != nil {
				s.Log.DebugContext(ctx, "pieces stay until their upload goes", "upload", uploads[i].ID, "error", err)
			}
			return nil
		})
	}
	_ = drops.Wait() // none fails
	return done, staged, nil
}

// joined reports whether an earlier try made documents of the uploads: all of them
// are made in one transaction.
func (s *Service) joined(ctx context.Context, job *sheaf.Job, uploads []taskstore.PartialUpload) (bool, error) {
	docs, err := s.documentsOf(ctx, job.TenantID, uploads)
	for _, d := range docs {
		if d.JobID == job.ID {
			return true, nil
		}
	}
	return false, err
}

func (s *Service) documentsOf(ctx context.Context, tenantID string, uploads []taskstore.PartialUpload) (map[string]sheaf.Document, error) {
	ids := make([]string, len(uploads))
	for i, u := range uploads {
		ids[i] = u.DocumentID
	}
	return s.documents(ctx, tenantID, ids)
}

// submitted answers a repeated submit from what the first one made.
func (s *Service) submitted(ctx context.Context, job *sheaf.Job, uploads []taskstore.PartialUpload) (*Submission, []StagedUpload, error) {
	docs, err := s.documentsOf(ctx, job.TenantID, uploads)
	if err != nil {
		return nil, nil, err
	}
	out := &Submission{}
	if out.Job, err = s.Job(ctx, job.TenantID, job.ID); err != nil {
		return nil, nil, err
	}
	var all []StagedUpload
	for _, u := range uploads {
		one := StagedUpload{UploadID: u.ID, Name: u.Spec.Name}
		if d, ok := docs[u.DocumentID]; ok {
			out.Documents = append(out.Documents, d)
			one.Staged = &Staged{Document: d}
		} else {
			one.Failure = sheaf.Fail(sheaf.CategoryBadInput, "not_taken", "%s was refused when it was submitted first, or has been deleted since; upload it again to see why", u.Spec.Name)
		}
		all = append(all, one)
	}
	return out, all, nil
}

func emptyFile(name string) *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "%s has no bytes; check that the upload was complete", name)
}
