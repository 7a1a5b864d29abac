package taskstore

import (
	"time"
)

// ReceiptFormat identifies the layout of a receipt, for later verifiers.
const ReceiptFormat = "sheaf-receipt/1"

// ReceiptState is the progress of a deletion.
type ReceiptState string

const (
	ReceiptPending   ReceiptState = "pending"   // hidden, and being removed
	ReceiptCompleted ReceiptState = "completed" // the last row, object, chunk and vector is gone
)

// ReceiptKind is what was deleted.
type ReceiptKind string

const (
	ReceiptDocuments ReceiptKind = "documents" // documents, including files of archives among them
	ReceiptDataset   ReceiptKind = "dataset"   // a dataset and all its documents
	ReceiptMembers   ReceiptKind = "members"   // files that an archive's new version no longer contains
)

// Receipt is the proof of a deletion. It contains ids and counts but no content. It
// outlives the dataset.
type Receipt struct {
	Format    string       `json:"format"` // ReceiptFormat
	ID        string       `json:"id"`
	TenantID  string       `json:"tenant_id"`
	DatasetID string       `json:"dataset_id"`
	Kind      ReceiptKind  `json:"kind"`
	State     ReceiptState `json:"state"`
	Documents int          `json:"documents"`
	// DocumentIDs are the first MaxReceiptIDs of the deleted documents, in order.
	DocumentIDs []string `json:"document_ids"`
	// DocumentsSHA256 is the hex SHA-256 of all their ids in order, each followed by a
	// newline; "" while the receipt is pending.
	DocumentsSHA256 string     `json:"documents_sha256,omitempty"`
	Removed         Removed    `json:"removed"`
	Kept            []KeptCopy `json:"kept"` // at most MaxReceiptIDs
	RequestedAt     time.Time  `json:"requested_at"`
	CompletedAt     time.Time  `json:"completed_at,omitzero"`
	Signature       *Signature `json:"signature,omitempty"` // nil if the installation has no key
}

// MaxReceiptIDs bounds the lists in a receipt; the full list of documents is stored
// beside it.
const MaxReceiptIDs = 1000

// Removed counts what a deletion has removed so far.
type Removed struct {
	Rows        RemovedRows `json:"rows"`
	Objects     int         `json:"objects"` // in the blob store: originals, results, plans, pieces of uploads
	ObjectBytes int64       `json:"object_bytes"`
	Chunks      int         `json:"chunks"`  // in the index, of all generations
	Vectors     int         `json:"vectors"` // of these chunks
}

// RemovedRows counts, by kind, the database rows that were removed, or stripped of
// names and content.
type RemovedRows struct {
	Documents   int `json:"documents"`
	Generations int `json:"generations"`
	Tasks       int `json:"tasks"`
	Events      int `json:"events"`
	Messages    int `json:"messages"` // to webhooks
	Uploads     int `json:"uploads"`
	Edits       int `json:"edits,omitempty"` // versions of edits of chunks
	Webhooks    int `json:"webhooks"`        // of a dataset
	Answers     int `json:"answers"`         // stored for repeated idempotency keys
}

// KeptCopy is content of a deleted document that is kept because it belongs to a
// document that was not deleted.
type KeptCopy struct {
	DocumentID string     `json:"document_id"` // the deleted one
	HeldBy     string     `json:"held_by"`     // the document that keeps it
	Reason     KeptReason `json:"reason"`
	Ranges     int        `json:"ranges,omitempty"` // for KeptRanges: how many
}

// KeptReason says why content stays.
type KeptReason string

const (
	KeptBytes   KeptReason = "same_bytes"  // the same file was uploaded as another document, which has its own copy
	KeptRanges  KeptReason = "same_ranges" // the other document has ranges with the same content, in its own copies
	KeptArchive KeptReason = "in_archive"  // the file is in an archive that was not deleted
)

// Signature proves that this installation made a receipt and that it was not
// altered.
type Signature struct {
	Algorithm string `json:"algorithm"` // HMAC-SHA256
	KeyID     string `json:"key_id"`    // of the installation's key
	Value     string `json:"value"`     // hex, over the receipt without its signature
}

// ReceiptDocument is one deleted document of a receipt.
type ReceiptDocument struct {
	DocumentID string     `json:"document_id"`
	Removed    Removed    `json:"removed"`
	Kept       []KeptCopy `json:"kept"`
}
