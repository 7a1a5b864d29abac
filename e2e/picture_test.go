package e2e

import (
	"testing"
)

// A picture stands beside what was read of it, with the boxes where the words are.
func TestPageShowsPicturesBesideTheirText(t *testing.T) {
	need(t, "tesseract")
	s := start(t, nil)
	doc := s.add(defaultDataset, text("sign.png", writtenPNG(t, 1300, 450, "The keeper counts every sheaf", "before the cart leaves the barn")))[0]
	page := openBrowser(t, s)
	page.open("/datasets/default/documents/" + doc.ID)
	page.sees(".chunk", "keeper")
	page.wait("the picture with its boxes", `document.querySelector(".page img")?.naturalWidth && document.querySelector(".boxes").getAttribute("viewBox") && document.querySelector(".boxes rect")`)
	// Each line fills a good part of the width.
	if bad := eval[int](page, `(() => { const p = document.querySelector(".page").getBoundingClientRect(); return [...document.querySelectorAll(".boxes rect")].filter(r => { const x = r.getBoundingClientRect(); return x.left < p.left - 1 || x.right > p.right + 1 || x.top < p.top - 1 || x.bottom > p.bottom + 1 || x.width < p.width / 3; }).length; })()`); bad > 0 {
		t.Errorf("%d boxes do not lie on the lines of the picture", bad)
	}
	page.open("/search?q=keeper+counts")
	page.wait("the picture's thumbnail with its box", `document.querySelector(".thumb img")?.naturalWidth && document.querySelector(".thumb rect")`)
	page.noErrors()
}
