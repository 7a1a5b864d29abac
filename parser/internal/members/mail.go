package members

import (
	"bytes"
	"strings"

	"github.com/jhillyerd/enmime/v2"

	"sheaf"
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

// maxBoundaries stops nested multiparts, which the MIME reader follows recursively.
const maxBoundaries = 1_000

// ReadMail reads a MIME message: mail, or a web archive. What is malformed inside is
// left out.
func ReadMail(raw []byte) (*enmime.Envelope, error) {
	if bytes.Count(bytes.ToLower(raw), []byte("boundary=")) > maxBoundaries {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "too_deep", "The message has more than %d nested parts; forward the part you need as a message of its own and upload that.", maxBoundaries)
	}
	p := enmime.NewParser(enmime.DisableTextConversion(true), enmime.SkipMalformedParts(true), enmime.MultipartWOBoundaryAsSinglePart(true),
		enmime.MaxStoredPartErrors(10), enmime.SetReadPartErrorPolicy(func(*enmime.Part, error) bool { return true }))
	return p.ReadEnvelope(bytes.NewReader(raw))
}
