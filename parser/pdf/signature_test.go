package pdf

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"strings"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"sheaf/parser/pdf/enginetest"
)

// certificate makes one that its own key has signed.
func certificate(t *testing.T, name string, serial int64) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// signatureOf is a signature by the last of the certificates, as far as it is read.
func signatureOf(t *testing.T, all ...*x509.Certificate) []byte {
	t.Helper()
	marshal := func(v any, params string) asn1.RawValue {
		b, err := asn1.MarshalWithParams(v, params)
		if err != nil {
			t.Fatal(err)
		}
		return asn1.RawValue{FullBytes: b}
	}
	type issuer struct {
		Issuer asn1.RawValue
		Serial *big.Int
	}
	type info struct {
		Version int
		ID      issuer
		Digest  []int
		Rest    []byte
	}
	var raw []byte
	for _, c := range all {
		raw = append(raw, c.Raw...)
	}
	by := all[len(all)-1]
	set := func(b []byte) asn1.RawValue {
		return asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagSet, IsCompound: true, Bytes: b}
	}
	signers := marshal(info{1, issuer{asn1.RawValue{FullBytes: by.RawIssuer}, by.SerialNumber}, []int{1}, []byte("signature")}, "")
	data := marshal(struct {
		Version               int
		Digests, Content      asn1.RawValue
		Certificates, Signers asn1.RawValue
	}{1, set(nil), marshal([]asn1.ObjectIdentifier{{1, 2, 840, 113549, 1, 7, 1}}, ""),
		asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: raw}, set(signers.FullBytes)}, "")
	b := marshal(struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue
	}{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: data.FullBytes}}, "").FullBytes
	return append(b, make([]byte, 100)...) // the place is larger than the signature
}

// A signature that is drawn on a page says who signed, when, where and why; the name
// is that of its certificate if the file has none.
func TestSignaturesAreRead(t *testing.T) {
	root, ann := certificate(t, "The authority", 7), certificate(t, "Ann Pear", 8)
	text := func(s string) types.StringLiteral { return types.StringLiteral(s) }
	h := held{}
	page := h.add(types.Dict{})
	seen, unseen := types.Array{types.Integer(1), types.Integer(2), types.Integer(3), types.Float(4.5)}, types.Array{types.Integer(0), types.Integer(0), types.Integer(0), types.Integer(0)}
	field := func(name string, rect types.Array, v types.Object) types.IndirectRef {
		d := types.Dict{"T": text(name), "FT": types.Name("Sig"), "Rect": rect, "P": page}
		if v != nil {
			d["V"] = v
		}
		return h.add(d)
	}
	contents := types.NewHexLiteral(signatureOf(t, root, ann))
	fields := types.Array{
		field("buyer", seen, h.add(types.Dict{"Contents": contents, "M": text("D:20260301093000+01'00'"), "Location": text("Oslo"), "Reason": text("Agreed")})),
		field("seller", seen, types.Dict{"Contents": contents, "Name": text("Bob Plum")}),
		field("damaged", seen, types.Dict{"Contents": types.NewHexLiteral([]byte{0x30, 0x82, 1}), "M": text("D:2026")}),
		field("witness", seen, nil),
		field("timestamp", unseen, types.Dict{"Contents": contents}),
	}
	f := forms{objects: h, pageOf: map[int]int{page.ObjectNumber.Value(): 0}, numbers: []int{page.ObjectNumber.Value()}}
	f.read(types.Dict{"AcroForm": types.Dict{"Fields": fields}})
	var got []string
	for _, v := range f.out {
		got = append(got, v.text)
	}
	want := "buyer: signed by Ann Pear, 2026-03-01T09:30:00+01:00, Oslo, Agreed|seller: signed by Bob Plum|damaged: signed, 2026-01-01T00:00:00Z"
	if strings.Join(got, "|") != want {
		t.Errorf("%q, want %s", got, want)
	}
}

// A stamp is its name; one that is a picture has none.
func TestStampsAreRead(t *testing.T) {
	var annots []string
	for _, name := range []string{"SBNotApproved", "#23Completed", "Draft", "#23qJzvIfbYGHiHzxg", "SB"} {
		annots = append(annots, "/Subtype /Stamp /Name /"+name+" /Rect [1 2 20 30]")
	}
	file := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 11, 72, 740, "Text"), Annots: annots}}}
	b := file.Bytes()
	in, err := inspectSound(strings.NewReader(string(b)), int64(len(b)))
	if err != nil || len(in.beside) != 1 || in.beside[1][0].Text != "Not approved\nCompleted\nDraft" {
		t.Errorf("%v %+v", err, in.beside)
	}
}
