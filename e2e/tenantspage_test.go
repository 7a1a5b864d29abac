package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"sheaf"
	"sheaf/internal/config"
)

// A key with the scope admin changes tenants and their keys on the page; any
// other is told what it lacks.
func TestTenantsAndKeysAreChangedOnThePage(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Server.Auth = true })
	store := s.store
	acme := s.tenant("acme", "write", sheaf.Quota{Documents: 100_000, Bytes: 50_000_000_000, QueuedTasks: 100_000})
	acme.newDataset("notes", false)
	acme.add("notes", text("note.txt", "Held against the quota."))
	reader, admin := s.withKey("acme", "read"), s.withKey("acme", "admin")
	b := openBrowser(t, s)
	script := axe(t)
	use := func(secret string) {
		b.run(evaluate(fmt.Sprintf(`sessionStorage.setItem("sheaf-key", %q)`, secret)))
	}
	// expected waits until the browser has logged a refusal, and forgets it.
	expected := func(status string) {
		t.Helper()
		for ctx, cancel := context.WithTimeout(t.Context(), time.Minute); ; {
			b.mu.Lock()
			logged := len(b.faults) > 0
			if logged && strings.Contains(b.faults[0], "status of "+status) {
				b.faults = b.faults[1:]
			}
			b.mu.Unlock()
			if logged {
				cancel()
				return
			}
			select {
			case <-ctx.Done():
				cancel()
				t.Fatalf("no answer %s was logged", status)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	check := func(what string) {
		t.Helper()
		for _, dark := range []bool{false, true} {
			b.look(1280, 800, dark)
			b.checkAccess(script, fmt.Sprintf("%s dark=%v", what, dark))
		}
		b.look(360, 740, false)
		if wide := eval[int](b, `Math.max(document.documentElement.scrollWidth, ...[...document.querySelectorAll("dialog, .scroll-x")].map(e => e.scrollWidth > e.clientWidth ? 999 : 0))`); wide > 360 {
			t.Errorf("%s is %d pixels wide in a window of 360", what, wide)
		}
		b.look(1280, 800, false)
	}
	shoot := func(name string) {
		if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
			b.shoot(filepath.Join(dir, name+".png"))
			b.look(360, 740, true)
			b.shoot(filepath.Join(dir, name+"-360.png"))
			b.look(1280, 800, false)
		}
	}

	b.run(chromedp.Navigate(b.base + "/docs")) // an address that asks for no key, to leave one in the tab
	use(reader.key)
	b.open("/tenants")
	b.sees(".trouble", `lacks the scope "admin"`)
	expected("403")
	b.open("/operations")
	b.wait("the queue of the reader's tenant", `document.querySelector('[aria-label="Queue"] tbody tr')`)
	b.wait("no way to tenants", `!document.querySelector('main a[href="/tenants"]')`)

	use(admin.key)
	b.open("/tenants")
	b.wait("what acme holds", `document.querySelector('[aria-label="Edit tenant acme"]')?.closest("tr").textContent.includes("1 of 100,000")`)
	check("the tenants")
	shoot("tenants")

	// The server checks a value, and its sentence stands at the field.
	b.press("Edit…")
	b.sees("dialog h2", "Edit tenant acme")
	weight := func(to string) {
		b.run(chromedp.SetValue("dialog [name=weight]", to))
		b.press("Save")
	}
	weight("0")
	b.wait("the sentence at the weight", `(() => { const w = document.activeElement, said = document.getElementById(w.getAttribute("aria-describedby")); return w.name === "weight" && w.getAttribute("aria-invalid") && w.closest("label").contains(said) && said.textContent.includes("weight is 0; give at least 1"); })()`)
	expected("400")
	check("the refused weight")
	shoot("weight")
	weight("3")
	b.wait("the new weight", `!document.querySelector("dialog") && document.querySelector('[aria-label="Edit tenant acme"]').closest("tr").querySelector("[data-label=Weight]").textContent === "3"`)
	if now, err := store.Tenant(t.Context(), "acme"); err != nil || now.Weight != 3 || now.Cap != 4 || now.Quota.Documents != 100_000 {
		t.Errorf("the store has %+v: %v", now, err)
	}

	// A key is made with the keyboard. Its secret works, is copied, and is gone with the view.
	b.run(evaluate(`document.querySelector('[aria-label="Keys of tenant acme"]').focus()`))
	b.keys(kb.Enter)
	b.sees("#view h1", "Tenant acme")
	b.wait("its keys", `document.querySelectorAll('[aria-label="Keys"] tbody tr').length === 3`)
	b.run(evaluate(`document.querySelector('button[aria-label="New key"]').focus()`))
	b.keys(kb.Enter)
	b.sees("dialog h2", "New key for tenant acme")
	check("the form of a key")
	b.run(chromedp.SetValue("dialog [name=expires_at]", "2020-01-01T00:00"))
	b.run(chromedp.SetValue("dialog [name=scopes]", "read"))
	b.run(chromedp.SendKeys("dialog [name=name]", "dashboard"+kb.Enter))
	b.sees("dialog .trouble", "which is past")
	expected("400")
	b.run(chromedp.SetValue("dialog [name=expires_at]", "2099-01-01T00:00"))
	b.press("Create")
	const field = `document.querySelector('[aria-label="Secret of key dashboard"]')`
	b.wait("the secret, chosen", field+` && document.activeElement === `+field)
	b.wait("the new key", `document.querySelector('[aria-label="Edit key dashboard"]')`)
	check("the secret")
	shoot("secret")
	secret := eval[string](b, field+`.value`)
	made := newClient(s.base, secret)
	if err := made.call(t.Context(), "GET", "/v1/datasets", nil, nil); err != nil {
		t.Error("the new key: ", err)
	}
	b.run(cdpbrowser.GrantPermissions([]cdpbrowser.PermissionType{cdpbrowser.PermissionTypeClipboardReadWrite, cdpbrowser.PermissionTypeClipboardSanitizedWrite}))
	b.press("Copy")
	b.sees("[role=status]", "Secret copied")
	if got := eval[string](b, `navigator.clipboard.readText()`); got != secret {
		t.Errorf("the clipboard has %q", got)
	}
	b.press("Done")
	if eval[bool](b, fmt.Sprintf(`document.documentElement.outerHTML.includes(%q) || !!document.querySelector("[aria-label^='Secret']")`, secret)) {
		t.Error("the secret is still on the page")
	}

	// Its scope is changed, and what was not touched stays.
	b.run(evaluate(`document.querySelector('[aria-label="Edit key dashboard"]').click()`))
	b.sees("dialog h2", "Edit key dashboard")
	b.run(chromedp.SetValue("dialog [name=scopes]", "write"))
	b.press("Save")
	b.wait("the focus where it was", `!document.querySelector("dialog") && document.activeElement.getAttribute("aria-label") === "Edit key dashboard" && document.activeElement.closest("tr").querySelector("[data-label=Scopes]").textContent === "write"`)
	key := func() sheaf.Key {
		t.Helper()
		var l struct{ Items []sheaf.Key }
		if err := admin.call(t.Context(), "GET", "/v1/admin/tenants/acme/keys?limit=100", nil, &l); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(l.Items, func(k sheaf.Key) bool { return k.Name == "dashboard" })
		if i < 0 {
			t.Fatalf("no key dashboard in %+v", l.Items)
		}
		return l.Items[i]
	}
	if k := key(); !slices.Equal(k.Scopes, []string{"write"}) || k.ExpiresAt.Year() < 2098 {
		t.Errorf("the store has %+v", k)
	}

	// What would be revoked is said by the server first: its own key never.
	revoke := func(name, says string) {
		t.Helper()
		b.run(evaluate(fmt.Sprintf(`document.querySelector('[aria-label="Revoke key %s"]').click()`, name)))
		b.sees("dialog h2", "Revoke key "+name)
		b.sees("dialog .preview", says)
	}
	revoke("admin", "cannot be revoked in a request that is made with it")
	expected("409")
	b.press("Cancel")
	revoke("dashboard", "Revokes dashboard ("+key().ID+") of tenant acme, with the scope write.")
	check("the question before a revocation")
	shoot("revoke")
	b.press("Cancel")
	b.wait("the dialog to be gone", `!document.querySelector("dialog")`)
	if k := key(); !k.RevokedAt.IsZero() {
		t.Error("looking has revoked the key")
	}
	revoke("dashboard", "Revokes dashboard")
	b.press("Revoke")
	b.wait("the revoked key", `!document.querySelector("dialog") && !document.querySelector('[aria-label="Revoke key dashboard"]') && [...document.querySelectorAll('[aria-label="Keys"] tbody tr')].some(r => r.textContent.includes("dashboard") && r.textContent.includes("Revoked"))`)
	if k := key(); k.RevokedAt.IsZero() {
		t.Error("the key is not revoked")
	}
	if err := made.call(t.Context(), "GET", "/v1/datasets", nil, nil); err == nil {
		t.Error("the revoked key still works")
	}
	check("the keys")
	shoot("keys")
	b.noErrors()
}
