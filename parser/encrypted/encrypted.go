// Package encrypted is the format of password-protected Office files
// ([MS-OFFCRYPTO]): it decrypts them with parser_config.password and passes the
// content to its own format. While encrypted, documents, decks and workbooks are
// indistinguishable. It runs in the parser's child process.
package encrypted

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/richardlehane/mscfb"
	"github.com/xuri/excelize/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/tempfile"
)

const (
	version = 1 // changes whenever the same file would yield other blocks; see Version
	// maxFileBytes limits a file: it is held three times during decryption.
	maxFileBytes = 96 << 20
	// maxSpins limits the hash iterations that slow down password guessing. Office
	// writes 100,000, which take 0.3 s; the standard allows 10,000,000.
	maxSpins = 1_000_000
	// maxInfoBytes limits the description of the encryption; Office writes 2 KB.
	maxInfoBytes = 1 << 20
)

// inside lists the types that may be encrypted.
var inside = []string{parser.MediaDOCX, parser.MediaXLSX, parser.MediaPPTX}

// New returns the format. formats finds the reader of the content; it is called
// while a file is read.
func New(formats func() *parser.Registry) parser.Format { return &format{formats} }

type format struct{ formats func() *parser.Registry }

func (*format) ID() string { return "encrypted" }
func (*format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaOOXMLEncrypted, Magic: []parser.Magic{{Stream: "EncryptedPackage"}},
		Families: []sheaf.FileFamily{sheaf.FamilyDocument, sheaf.FamilySpreadsheet, sheaf.FamilyPresentation},
	}}
}

// Version grows with that of each format that may be inside.
func (f *format) Version() int {
	v := version
	for _, mt := range inside {
		if in, ok := f.formats().ByMediaType(mt); ok {
			v += in.Version()
		}
	}
	return v
}

// Options are those of the formats inside. The password is not among them: it does
// not affect what is read.
func (f *format) Options() []string {
	var all []string
	for _, mt := range inside {
		if in, ok := f.formats().ByMediaType(mt); ok {
			all = append(all, in.Options()...)
		}
	}
	return all
}

// Open implements parser.Format.
func (f *format) Open(ctx context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	st, err := file.Stat()
	switch {
	case err != nil:
		return nil, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	case st.Size() == 0:
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The file has no bytes; upload it again from the original.")
	case st.Size() > maxFileBytes:
		return nil, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The file is protected by a password and has %d MB, where the limit is %d MB; save a copy without the password and upload that.", st.Size()>>20, maxFileBytes>>20)
	}
	if o.Config.Password.V == "" {
		return nil, sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The file is protected by a password; send it as parser_config.password, or save a copy without the password and upload that.")
	}
	raw, err := io.ReadAll(io.NewSectionReader(file, 0, st.Size()))
	if err != nil {
		return nil, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	}
	if err := check(raw); err != nil {
		return nil, err
	}
	plain, err := decrypt(raw, o.Config.Password.V)
	if err != nil {
		return nil, err
	}
	return f.open(ctx, plain, o)
}

// open writes the decrypted file next to the original and opens it there.
func (f *format) open(ctx context.Context, plain []byte, o parser.Options) (parser.Document, error) {
	return tempfile.Open(o.TempDir, "decrypted-*", plain, func(in *os.File) (parser.Document, error) {
		o.MediaType = f.formats().Sniff(in, int64(len(plain)), o.Name)
		format, ok := f.formats().ByMediaType(o.MediaType)
		if !ok || format.ID() == f.ID() {
			return nil, sheaf.Fail(sheaf.CategoryBadInput, "unsupported_format", "Behind the password the file is %s, which cannot be read; save it as DOCX, XLSX or PPTX and upload that.", o.MediaType)
		}
		return format.Open(ctx, in, o)
	})
}

func invalid(format string, args ...any) *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryBadInput, "invalid_encryption", "The file is protected by a password in a way that cannot be read: %s. Save a copy without the password and upload that.", fmt.Sprintf(format, args...))
}

// check validates what determines the cost of decryption before it is incurred: the
// sizes of the streams and the hash iterations, all of which the file declares.
func check(raw []byte) error {
	doc, err := mscfb.New(bytes.NewReader(raw))
	if err != nil {
		return invalid("its container is damaged")
	}
	found := 0
	for n := 0; ; n++ {
		e, err := doc.Next()
		if err != nil || n > 10_000 {
			break
		}
		if e.Name != "EncryptionInfo" && e.Name != "EncryptedPackage" {
			continue
		}
		if found++; e.Size < 8 || e.Size > int64(len(raw)) || e.Name == "EncryptionInfo" && e.Size > maxInfoBytes {
			return invalid("its stream %s claims %d bytes", e.Name, e.Size)
		}
		if e.Name == "EncryptedPackage" {
			continue
		}
		info := make([]byte, e.Size)
		if _, err := io.ReadFull(e, info); err != nil {
			return invalid("its stream EncryptionInfo is damaged")
		}
		// [MS-OFFCRYPTO] 2.3.4.10: agile encryption is described in XML.
		if binary.LittleEndian.Uint16(info) != 4 || binary.LittleEndian.Uint16(info[2:]) != 4 {
			continue
		}
		var x excelize.Encryption
		if err := xml.Unmarshal(info[8:], &x); err != nil {
			return invalid("its description is damaged")
		}
		for _, k := range x.KeyEncryptors.KeyEncryptor {
			if k.EncryptedKey.SpinCount < 0 || k.EncryptedKey.SpinCount > maxSpins {
				return invalid("a password would be hashed %d times, and the limit is %d", k.EncryptedKey.SpinCount, maxSpins)
			}
		}
	}
	if found != 2 {
		return invalid("its streams are missing")
	}
	return nil
}

// decrypt removes the encryption. Neither the library nor the standard's older form
// checks the password, so the output decides: if it is not a zip, the password was
// wrong.
func decrypt(raw []byte, password string) (plain []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // the library trusts the sizes declared in the file
			plain, err = nil, invalid("its description contradicts itself")
		}
	}()
	plain, err = excelize.Decrypt(raw, &excelize.Options{Password: password})
	switch {
	case errors.Is(err, excelize.ErrUnsupportedEncryptMechanism), errors.Is(err, excelize.ErrUnknownEncryptMechanism):
		return nil, invalid("it uses another way of encryption than Office's own")
	case err != nil, !bytes.HasPrefix(plain, []byte("PK\x03\x04")):
		return nil, sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The password in parser_config.password does not open the file; send the right one, or save a copy without the password and upload that.")
	}
	return plain, nil
}
