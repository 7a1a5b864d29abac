package index

import (
	fastjson "github.com/segmentio/encoding/json"

	"sheaf"
)

// DecodeChunk reads a chunk that an index has stored as JSON. A search reads a few
// hundred of them.
func DecodeChunk(data []byte, c *sheaf.Chunk) error {
	// Where there is none, the library makes a map for 64 entries: that was a quarter
	// of all that a search allocated.
	c.Columns, c.Metadata = map[string]any{}, map[string]string{}
	err := fastjson.Unmarshal(data, c)
	if len(c.Columns) == 0 {
		c.Columns = nil
	}
	if len(c.Metadata) == 0 {
		c.Metadata = nil
	}
	return err
}
