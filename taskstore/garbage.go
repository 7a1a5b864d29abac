package taskstore

import (
	"sheaf"
)

// Garbage is something the index or the blob store holds in vain. DocumentID
// alone means everything of the document; RangeID one range result.
type Garbage struct {
	ID          int64
	TenantID    string
	DocumentID  string
	RangeID     string
	ArtifactKey string // "" unless the range's artifact goes too
	BlobPrefix  string // "" unless every blob under it goes too
	ReceiptID   string // of the deletion that waits for it; "" for none
	Counted     bool   // what it stands for is in the receipt
}

// GarbageCount is what an entry of the garbage stood for.
type GarbageCount struct {
	ID      int64
	Objects int
	Bytes   int64
	Chunks  int
	Vectors int
}

// CleanupReport counts what retention removed, or would remove.
type CleanupReport struct {
	Events      int `json:"events"`
	Tasks       int `json:"tasks"`
	Workers     int `json:"workers"`
	Idempotency int `json:"idempotency"`
	Deliveries  int `json:"deliveries"` // messages to webhooks
}

// InventoryRange is a stored range result.
type InventoryRange struct {
	TenantID    string
	DocumentID  string
	RangeID     string
	ArtifactKey string
	Range       sheaf.Range
	Chunks      int
	Live        bool // its generation is the document's live one
}

// InventoryDocument is a document's bytes.
type InventoryDocument struct {
	TenantID   string
	DatasetID  string
	DocumentID string
	Name       string
	MediaType  string
	BlobKey    string
	Metadata   map[string]string
}

// CounterDrift is a document whose counters are wrong.
type CounterDrift struct {
	TenantID   string
	DocumentID string
	Has, Want  int // chunks
}
