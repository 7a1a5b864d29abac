package encrypted

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/xuri/excelize/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

// lines is a stand-in for a format of what is inside: it reads a part of the
// zip's bytes back, so that the test sees that they arrived whole.
type lines struct{ content []byte }

func (lines) ID() string   { return "docx" }
func (lines) Version() int { return 7 }
func (lines) Types() []parser.FileType {
	return []parser.FileType{{MediaType: parser.MediaDOCX, Magic: []parser.Magic{{Entry: "word/*"}}}}
}
func (lines) Options() []string { return []string{"table_rows"} }
func (l lines) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	b, err := os.ReadFile(f.Name())
	if err != nil {
		return nil, err
	}
	if len(b) < len(l.content) || string(b[:len(l.content)]) != string(l.content) || o.MediaType != parser.MediaDOCX {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "invalid_docx", "The decrypted file differs from the original.")
	}
	return &one{}, nil
}

type one struct{}

func (*one) Plan(context.Context) (*parser.Plan, error) {
	return &parser.Plan{Unit: sheaf.UnitFile, Units: 1}, nil
}

func (*one) Parse(_ context.Context, _ sheaf.Range, emit func(sheaf.UnitResult) error) error {
	return emit(sheaf.UnitResult{Unit: 1, Status: sheaf.UnitOK, Blocks: []sheaf.Block{{Kind: sheaf.BlockParagraph, Text: "read", Page: 1}}})
}
func (*one) Close() error { return nil }

// content has more than 4,096 bytes: the library writes shorter streams wrong.
var content = formattest.Zip("word/document.xml", "<w:document>"+numbers(20_000)+"</w:document>")

func numbers(n int) string {
	var b strings.Builder
	r := rand.New(rand.NewPCG(1, 2))
	for b.Len() < n {
		fmt.Fprint(&b, r.Uint64(), " ")
	}
	return b.String()
}

func newFormat() parser.Format {
	return New(func() *parser.Registry { return parser.NewRegistry(lines{content}) })
}

func protected(t testing.TB) []byte {
	t.Helper()
	b, err := excelize.Encrypt(content, &excelize.Options{Password: "sésame"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func options(password string) parser.Options {
	return parser.Options{Name: "document.docx", MediaType: parser.MediaOOXMLEncrypted, Config: sheaf.ParseConfig{Password: sheaf.Set(password)}}
}

func TestThePasswordOpensTheFile(t *testing.T) {
	_, units, err := formattest.Read(t, newFormat(), protected(t), options("sésame"), nil)
	if err != nil || len(units) != 1 || units[0].Blocks[0].Text != "read" {
		t.Fatal(units, err)
	}
}

func TestWithoutTheRightPasswordTheFileIsEncrypted(t *testing.T) {
	for _, password := range []string{"", "sesame", strings.Repeat("x", 300)} {
		_, _, err := formattest.Read(t, newFormat(), protected(t), options(password), nil)
		f, ok := errors.AsType[*sheaf.Failure](err)
		if !ok || f.Category != sheaf.CategoryEncrypted || f.Code != "encrypted" || !strings.Contains(f.Message, "parser_config.password") {
			t.Errorf("password %q: %v", password, err)
		}
	}
}

func TestTheDecryptedFileIsRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "original")
	if err := os.WriteFile(path, protected(t), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := options("sésame")
	o.TempDir = dir
	d, err := newFormat().Open(t.Context(), file, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Fatalf("%v is left, %v", left, err)
	}
}

func TestOptionsAndVersionFollowWhatIsInside(t *testing.T) {
	f := newFormat()
	if got := f.Options(); !reflect.DeepEqual(got, []string{"table_rows"}) {
		t.Error(got)
	}
	if f.Version() != version+7 {
		t.Error(f.Version())
	}
}

func TestDamagedContainersAreFailures(t *testing.T) {
	whole := protected(t)
	for _, n := range []int{0, 8, 600, len(whole) / 2, len(whole) - 700} {
		if _, _, err := formattest.Read(t, newFormat(), whole[:n], options("sésame"), nil); err == nil {
			t.Errorf("%d of %d bytes were read", n, len(whole))
		}
	}
	// A stream that claims more than the file holds.
	b := append([]byte(nil), whole...)
	dir := (int(binary.LittleEndian.Uint32(b[48:])) + 1) * 512
	for at := dir; at+128 <= dir+512; at += 128 {
		binary.LittleEndian.PutUint32(b[at+120:], 0x7fffffff)
	}
	if _, _, err := formattest.Read(t, newFormat(), b, options("sésame"), nil); err == nil {
		t.Error("a stream of 2 GB in a small file was read")
	}
}

func TestHashingIsBounded(t *testing.T) {
	// Agile encryption as Office writes it, with rounds that would take hours.
	info := append([]byte{4, 0, 4, 0, 0x40, 0, 0, 0}, `<encryption><keyEncryptors><keyEncryptor><p:encryptedKey xmlns:p="http://schemas.microsoft.com/office/2006/keyEncryptor/password" spinCount="2000000000"/></keyEncryptor></keyEncryptors></encryption>`...)
	_, _, err := formattest.Read(t, newFormat(), compound(info), options("x"), nil)
	if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != "invalid_encryption" || !strings.Contains(f.Message, "2000000000") {
		t.Fatal(err)
	}
}

// compound is a compound file ([MS-CFB]) of 512-byte sectors that holds info
// and an empty package, each in ordinary sectors.
func compound(info []byte) []byte {
	const sector = 512
	stream := func(b []byte) []byte { // no stream below 4,096 bytes, which live elsewhere
		b = append([]byte(nil), b...)
		for len(b) < 8*sector {
			b = append(b, ' ')
		}
		return b
	}
	a, p := stream(info), stream(nil)
	na, np := len(a)/sector, len(p)/sector
	le := binary.LittleEndian
	head := make([]byte, sector)
	copy(head, []byte{0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1})
	le.PutUint16(head[24:], 0x3E)
	le.PutUint16(head[26:], 3)
	le.PutUint16(head[28:], 0xFFFE)
	le.PutUint16(head[30:], 9)
	le.PutUint16(head[32:], 6)
	le.PutUint32(head[44:], 1)          // one allocation table
	le.PutUint32(head[48:], 1)          // the directory's sector
	le.PutUint32(head[56:], 4096)       // smaller streams would live in a mini stream
	le.PutUint32(head[60:], 0xFFFFFFFE) // there is none
	le.PutUint32(head[68:], 0xFFFFFFFE)
	for i := range 109 {
		le.PutUint32(head[76+4*i:], 0xFFFFFFFF)
	}
	le.PutUint32(head[76:], 0)
	fat := make([]byte, sector)
	for i := range sector / 4 {
		le.PutUint32(fat[4*i:], 0xFFFFFFFF)
	}
	le.PutUint32(fat[0:], 0xFFFFFFFD)
	le.PutUint32(fat[4:], 0xFFFFFFFE)
	chain := func(from, n int) {
		for i := from; i < from+n-1; i++ {
			le.PutUint32(fat[4*i:], uint32(i+1))
		}
		le.PutUint32(fat[4*(from+n-1):], 0xFFFFFFFE)
	}
	chain(2, na)
	chain(2+na, np)
	dir := make([]byte, sector)
	entry := func(at int, name string, kind byte, left, right, child uint32, start, size int) {
		e := dir[128*at:]
		for i, c := range name {
			le.PutUint16(e[2*i:], uint16(c))
		}
		le.PutUint16(e[64:], uint16(2*len(name)+2))
		e[66], e[67] = kind, 1
		le.PutUint32(e[68:], left)
		le.PutUint32(e[72:], right)
		le.PutUint32(e[76:], child)
		le.PutUint32(e[116:], uint32(start))
		le.PutUint32(e[120:], uint32(size))
	}
	const none = 0xFFFFFFFF
	entry(0, "Root Entry", 5, none, none, 1, 0xFFFFFFFE, 0)
	entry(1, "EncryptionInfo", 2, none, 2, none, 2, len(a))
	entry(2, "EncryptedPackage", 2, none, none, none, 2+na, len(p))
	return append(append(append(append(head, fat...), dir...), a...), p...)
}

func FuzzRead(f *testing.F) {
	f.Add(protected(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, newFormat(), b, options("sésame"), nil) // it checks what it reads
	})
}
