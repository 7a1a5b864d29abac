package epub

import (
	"errors"
	"fmt"
	"testing"

	"sheaf"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/ocr"
)

func protected(algorithm string) []byte {
	return formattest.Zip(
		"META-INF/encryption.xml", fmt.Sprintf(`<encryption><EncryptedData><EncryptionMethod Algorithm=%q/><CipherData><CipherReference URI="OEBPS/a.xhtml"/></CipherData></EncryptedData></encryption>`, algorithm),
		"META-INF/container.xml", `<container><rootfiles><rootfile full-path="c.opf"/></rootfiles></container>`,
		"c.opf", `<package><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>`,
		"a.xhtml", `<html><body><p>Text.</p></body></html>`,
	)
}

func TestABookUnderDRMIsEncrypted(t *testing.T) {
	_, _, err := formattest.Read(t, New(ocr.Config{}), protected("http://www.w3.org/2001/04/xmlenc#aes256-cbc"), options, nil)
	if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Category != sheaf.CategoryEncrypted || f.Code != "encrypted" {
		t.Fatal(err)
	}
}

func TestScrambledFontsAreNoDRM(t *testing.T) {
	for algorithm := range fontsOnly {
		_, units, err := formattest.Read(t, New(ocr.Config{}), protected(algorithm), options, nil)
		if err != nil || len(units) != 1 || units[0].Blocks[0].Text != "Text." {
			t.Errorf("%s: %v %v", algorithm, units, err)
		}
	}
}
