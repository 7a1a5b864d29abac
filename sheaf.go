// Package sheaf is the vocabulary of the pipeline: tenants, datasets, documents,
// generations, tasks, ranges and chunks, their states, and the kinds of error. It
// imports only the standard library.
package sheaf

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// LocalTenant is the tenant of the embedded default, where no one logs in.
const LocalTenant = "local"

var lastID struct {
	sync.Mutex
	ms  uint64
	seq uint16
}

// NewID returns a UUIDv7 (RFC 9562) as 32 lower-case hex characters. Ids made
// by one process sort in the order they were made: the 12 bits after the
// version count up within a millisecond, and borrow the next millisecond when
// they run out.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[8:]) // crypto/rand.Read never fails since Go 1.24
	now := uint64(time.Now().UnixMilli())

	lastID.Lock()
	if now > lastID.ms {
		lastID.ms, lastID.seq = now, 0
	} else if lastID.seq++; lastID.seq > 0xfff {
		lastID.ms, lastID.seq = lastID.ms+1, 0
	}
	ms, seq := lastID.ms, lastID.seq
	lastID.Unlock()

	binary.BigEndian.PutUint64(b[:8], ms<<16|0x7000|uint64(seq))
	b[8] = b[8]&0x3f | 0x80
	return hex.EncodeToString(b[:])
}

// DerivedID is NewID for ids that a repeated request must find again: the same
// arguments give the same id. It sorts as created at the given time; n, 0 to 4095,
// orders ids with equal times.
func DerivedID(at time.Time, n int, seed ...string) string {
	h := sha256.New()
	for _, s := range seed {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s) // hash writes never fail
	}
	b := h.Sum(nil)[:16]
	binary.BigEndian.PutUint64(b[:8], uint64(at.UnixMilli())<<16|0x7000|uint64(n&0xfff))
	b[8] = b[8]&0x3f | 0x80
	return hex.EncodeToString(b)
}

// ValidID reports whether s is 32 lower-case hex characters.
func ValidID(s string) bool {
	if len(s) != 32 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// RangeID names the result that one attempt at a task produces. It is a
// function of the task and the epoch of the attempt, so that two attempts can
// never write under one name and a retry of a write is the same write.
func RangeID(taskID string, epoch int64) string {
	sum := sha256.Sum256([]byte(taskID + "/" + strconv.FormatInt(epoch, 10)))
	return hex.EncodeToString(sum[:16])
}

// EditedRangePrefix begins the ids of ranges that hold one edited chunk.
const EditedRangePrefix = "edit-"

// RunRangePrefix begins the ids of ranges produced by a run over a dataset.
const RunRangePrefix = "run-"

// ChunkID names the n-th chunk (from 0) of a range result.
func ChunkID(rangeID string, n int) string {
	return rangeID + "-" + strconv.Itoa(n)
}
