package taskstore

import (
	"strconv"
	"time"

	"sheaf"
)

// PartialUpload is a file being uploaded, in as many requests as needed. Its bytes
// are pieces in the blob store; any process may write the next one.
type PartialUpload struct {
	ID          string
	TenantID    string
	DatasetID   string
	DocumentID  string // of the future document
	Size        int64  // announced, in bytes
	Offset      int64  // bytes stored
	Pieces      []UploadPiece
	Hash        []byte // state of the SHA-256 over the stored bytes, as crypto/sha256 marshals it; nil before the first
	Spec        UploadSpec
	Fingerprint string // for the sender to find it again; "" for none
	JobID       string // the job it was submitted to; "" before
	Epoch       int64  // increases with each writer, and fences the previous one
	NextPiece   int    // number of the next piece; never reused
	CreatedAt   time.Time
	ExpiresAt   time.Time
}

// Complete reports whether all announced bytes are stored.
func (u *PartialUpload) Complete() bool { return u.Offset == u.Size }

// PieceKey is the blob key of a piece.
func (u *PartialUpload) PieceKey(n int) string {
	return UploadPrefix(u.TenantID, u.ID) + strconv.Itoa(n)
}

// UploadPiece is a run of an upload's bytes; the pieces are in order.
type UploadPiece struct {
	N    int   `json:"n"`
	Size int64 `json:"size"`
}

// UploadSpec is what the sender said about the file.
type UploadSpec struct {
	Name       string            `json:"name"`
	MediaType  string            `json:"media_type,omitempty"` // "" to sniff it
	Config     sheaf.ParseConfig `json:"parser_config,omitzero"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Attributes sheaf.Attributes  `json:"attributes,omitempty"` // for a new document
	Lane       sheaf.Lane        `json:"lane,omitempty"`
	Hold       bool              `json:"hold,omitempty"` // becomes a document when submitted, not when complete
	Job        string            `json:"job,omitempty"`  // the open job it joins when complete
	Header     string            `json:"header,omitempty"`
}

// UploadPrefix is the folder of an upload's pieces.
func UploadPrefix(tenantID, uploadID string) string {
	return "uploads/" + tenantID + "/" + uploadID + "/"
}
