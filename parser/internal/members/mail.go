package members

import (
	"bytes"
	"strings"
)

// LooksLikeMail requires two of the header fields that mail systems always write
// before the first empty line, and only fields there.
func LooksLikeMail(head []byte) bool {
	fields := 0
	for line := range bytes.Lines(head[:min(len(head), 16<<10)]) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' || bytes.HasPrefix(line, []byte("From ")) {
			continue
		}
		name, _, ok := bytes.Cut(line, []byte(":"))
		if !ok || bytes.ContainsAny(name, " \t") {
			return false
		}
		switch strings.ToLower(string(name)) {
		case "received", "return-path", "mime-version", "message-id", "delivered-to", "from", "to", "subject", "date":
			fields++
		}
	}
	return fields >= 2
}
