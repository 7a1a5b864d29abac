package eml

import (
	"bytes"

	"github.com/jhillyerd/enmime/v2"
)

// Mail programs sign a message beside its text, or around it: then all of it, with its
// attachments, lies in one part (RFC 8551, 3.5.2), which is no secret.

// Content types of CMS, in BER (RFC 5652, section 3).
var (
	oidData      = []byte{0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x07, 0x01}
	oidSigned    = []byte{0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x07, 0x02}
	oidEnveloped = []byte{0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x07, 0x03}
)

func isSMIME(p *enmime.Part) bool {
	return p.ContentType == "application/pkcs7-mime" || p.ContentType == "application/x-pkcs7-mime"
}

// Tags of BER (X.690).
const (
	tagOctets   = 0x04
	tagOID      = 0x06
	tagSequence = 0x30
	tagExplicit = 0xA0 // [0]
	constructed = 0x20
	maxPieces   = 100_000 // of a text that is sent in pieces
	maxBERDepth = 16
)

// enclosed returns the message in a signed one. sealed means that it is encrypted.
func enclosed(b []byte) (message []byte, sealed bool) {
	// ContentInfo: a type, and the content.
	info, _, ok := element(b, tagSequence)
	if !ok {
		return nil, false
	}
	kind, info, ok := element(info, tagOID)
	switch {
	case !ok:
		return nil, false
	case bytes.Equal(kind, oidEnveloped):
		return nil, true
	case !bytes.Equal(kind, oidSigned):
		return nil, false
	}
	content, _, ok := element(info, tagExplicit)
	if !ok {
		return nil, false
	}
	if content, _, ok = element(content, tagSequence); !ok {
		return nil, false
	}
	// SignedData: a version, algorithms, and what is signed, as a type and a content.
	for range 2 {
		if _, _, content, ok = next(content, 0); !ok {
			return nil, false
		}
	}
	if content, _, ok = element(content, tagSequence); !ok {
		return nil, false
	}
	if kind, content, ok = element(content, tagOID); !ok || !bytes.Equal(kind, oidData) {
		return nil, false
	}
	if content, _, ok = element(content, tagExplicit); !ok {
		return nil, false // the text is beside its signature
	}
	pieces := 0
	return octets(nil, content, 0, &pieces), false
}

// octets appends a text, which may consist of pieces.
func octets(to, b []byte, depth int, pieces *int) []byte {
	for len(b) > 0 && depth < maxBERDepth {
		tag, content, rest, ok := next(b, 0)
		if *pieces++; !ok || tag&^constructed != tagOctets || *pieces > maxPieces {
			return to
		}
		if tag&constructed != 0 {
			to = octets(to, content, depth+1, pieces)
		} else {
			to = append(to, content...)
		}
		b = rest
	}
	return to
}

func element(b []byte, want byte) (content, rest []byte, ok bool) {
	tag, content, rest, ok := next(b, 0)
	return content, rest, ok && tag == want
}

// next reads the element at the front of b. One without a length ends with two zeros.
func next(b []byte, depth int) (tag byte, content, rest []byte, ok bool) {
	if len(b) < 2 || b[0]&0x1F == 0x1F || depth > maxBERDepth {
		return 0, nil, nil, false
	}
	tag, size, at := b[0], int(b[1]), 2
	switch {
	case size == 0x80:
		for rest = b[2:]; ; {
			if len(rest) >= 2 && rest[0] == 0 && rest[1] == 0 {
				return tag, b[2 : len(b)-len(rest)], rest[2:], true
			}
			if _, _, rest, ok = next(rest, depth+1); !ok {
				return 0, nil, nil, false
			}
		}
	case size > 0x80:
		digits := size & 0x7F
		if digits > 4 || len(b) < 2+digits {
			return 0, nil, nil, false
		}
		size = 0
		for _, c := range b[2 : 2+digits] {
			size = size<<8 | int(c)
		}
		at += digits
	}
	if size > len(b)-at {
		return 0, nil, nil, false
	}
	return tag, b[at : at+size], b[at+size:], true
}
