package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// Keys lead everywhere, are listed, can be turned off, and are not taken from
// who types.
func TestKeysOfTheKeyboard(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	const long = "quarterly report of the northern branch with all annexes and corrections, version 7 final.txt"
	s.add("default", text("one.txt", "One."), text("two.txt", "Two."), text(long, "Three."))
	b.open("/datasets/default")
	b.sees(".docs", "one.txt")
	// The end of a long name is in sight, and all of it at hand.
	b.wait("the end of a long name", `(() => { const a = [...document.querySelectorAll(".c-name a")].find(a => a.textContent.endsWith("version 7 final.txt")), end = a.lastElementChild.getBoundingClientRect(), cell = a.closest("td").getBoundingClientRect(); return a.title === a.textContent && end.width > 40 && end.right <= cell.right && a.firstElementChild.scrollWidth > a.firstElementChild.clientWidth; })()`)
	if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
		b.shoot(filepath.Join(dir, "names.png"))
	}
	focused := func(at string) string {
		return `document.activeElement.closest("tr")?.getAttribute("aria-rowindex") === "` + at + `" && document.activeElement.localName === "a"`
	}
	b.keys("j")
	b.wait("the first row", focused("2"))
	b.keys("j")
	b.wait("the second row", focused("3"))
	b.keys("k")
	b.wait("the first row again", focused("2"))
	b.keys("x")
	b.sees(".batch", "1 document selected")
	b.keys(kb.Escape)
	b.wait("nothing selected", `document.querySelector(".batch").hidden`)
	b.keys("gj")
	b.sees("h1", "Jobs")
	b.keys("gs")
	b.sees("h1", "Datasets")
	b.keys("go")
	b.sees("h1", "Operations")
	b.keys("gd")
	b.sees("h1", "default")
	b.keys("?")
	b.sees("dialog[open]", "Go to Operations")
	b.checkAccess(script, "the list of keys")
	if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
		b.shoot(filepath.Join(dir, "keys.png"))
	}
	b.press("Turn keys off")
	closeList := func() {
		t.Helper()
		b.press("Close")
		b.wait("the list to go", `!document.querySelector("dialog")`)
	}
	closeList()
	b.keys("gj")
	b.keys("?")
	if at := eval[string](b, `location.pathname + document.querySelectorAll("dialog").length`); at != "/datasets/default0" {
		t.Errorf("keys that are off lead to %s", at)
	}
	b.press("Keyboard")
	b.press("Turn keys on")
	closeList()
	b.keys("/")
	b.wait("the search", `document.activeElement.id === "q"`)
	b.run(evaluate(`document.querySelector("#q").value = ""`)) // the driver types the key, too
	b.keys("gjx?")
	if typed := eval[string](b, `document.querySelector("#q").value + location.pathname`); typed != "gjx?/datasets/default" {
		t.Errorf("what is typed becomes %s", typed)
	}
	b.noErrors()
}
