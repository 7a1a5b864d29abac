package pdf

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"math/big"
	"slices"
	"strings"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
)

// maxSignature is the size of a signature that is looked into; one with all of its
// certificates has a few KB, in a place for 8 to 64.
const maxSignature = 1 << 20

// signed describes a signature by what it says itself (ISO 32000-1, table 252): who
// signed, when, where and why. Whether it is valid is not examined.
func (f *forms) signed(o types.Object) string {
	d := dictOf(f.objects, o)
	if d == nil {
		return "" // a place to sign
	}
	who := f.text(d["Name"])
	if o, err := f.objects.Dereference(d["Contents"]); who == "" && err == nil {
		if s, ok := bytesOf(o); ok && len(s) <= maxSignature {
			who = signer(s)
		}
	}
	parts := []string{"signed by " + who, pdfDate(f.text(d["M"])), f.text(d["Location"]), f.text(d["Reason"]), f.text(d["ContactInfo"])}
	if who == "" {
		parts[0] = "signed"
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// bytesOf is a string of bytes, as opposed to text.
func bytesOf(o types.Object) ([]byte, bool) {
	switch o := o.(type) {
	case types.HexLiteral:
		b, err := o.Bytes()
		return b, err == nil
	case types.StringLiteral:
		b, err := types.Unescape(o.Value())
		return b, err == nil
	}
	return nil, false
}

// signer is the name in the certificate that a signature (RFC 5652, section 5) was
// made with; "" if it cannot be read.
func signer(signature []byte) string {
	var info struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue `asn1:"explicit,tag:0"`
	}
	if _, err := asn1.Unmarshal(signature, &info); err != nil { // zeros follow it
		return ""
	}
	var data struct {
		Version      int
		Digests      asn1.RawValue
		Content      asn1.RawValue
		Certificates asn1.RawValue `asn1:"optional,tag:0"`
		Revoked      asn1.RawValue `asn1:"optional,tag:1"`
		Signers      asn1.RawValue
	}
	if _, err := asn1.Unmarshal(info.Content.Bytes, &data); err != nil {
		return ""
	}
	var by struct {
		Version int
		ID      struct {
			Issuer asn1.RawValue
			Serial *big.Int
		}
		Digest asn1.RawValue
	}
	if _, err := asn1.Unmarshal(data.Signers.Bytes, &by); err != nil { // the first of them
		return ""
	}
	all, err := x509.ParseCertificates(data.Certificates.Bytes)
	if err != nil {
		return ""
	}
	for _, c := range all {
		if bytes.Equal(c.RawIssuer, by.ID.Issuer.FullBytes) && by.ID.Serial != nil && c.SerialNumber.Cmp(by.ID.Serial) == 0 {
			return c.Subject.CommonName
		}
	}
	return ""
}
