package parser

import "context"

// Readings keep what took long to read, such as the text in a scanned page, so that
// the next version of the document need not read it again. They are used by one
// goroutine at a time.
type Readings interface {
	// Recall returns what was kept under key, which is not empty, or nil. The key names what was read and
	// everything that determined the result.
	Recall(key string) []byte
	// Keep keeps a reading with the result of the range being parsed, unless there
	// are too many.
	Keep(key string, reading []byte)
}

type readingsKey struct{}

// WithReadings has Document.Plan and Document.Parse use r.
func WithReadings(ctx context.Context, r Readings) context.Context {
	return context.WithValue(ctx, readingsKey{}, r)
}

// Recall returns what the Readings of ctx hold under key; nil if there are none.
func Recall(ctx context.Context, key string) []byte {
	if r, ok := ctx.Value(readingsKey{}).(Readings); ok {
		if reading := r.Recall(key); len(reading) > 0 {
			return reading
		}
	}
	return nil
}

// Keep adds to the Readings of ctx, if there are any.
func Keep(ctx context.Context, key string, reading []byte) {
	if r, ok := ctx.Value(readingsKey{}).(Readings); ok && len(reading) > 0 {
		r.Keep(key, reading)
	}
}
