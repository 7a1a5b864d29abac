package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sheaf/internal/api"
	"sheaf/internal/flow"
)

// A flow is made and changed as text, with what is wrong beside its line; its
// versions are compared and drawn.
func TestFlowsOnThePage(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	b.open("/datasets/default/runs")
	b.press("Flows")
	b.sees("[aria-label=Flows] td, [aria-label=Flows] th", "standard")
	b.checkEverywhere(script, "flows")
	b.press("New flow")
	b.sees(".flow-valid", "Valid")
	change := func(from, to string) {
		t.Helper()
		b.run(evaluate(`(() => { const e = document.querySelector(".flow-text"); e.value = e.value.replace(` + from + `, ` + to + `); e.dispatchEvent(new Event("input")); })()`))
	}
	change(`'["cut"]'`, `'["cat"]'`)
	b.sees(".flow-problems li", "Line 5 out, from: There is no node \"cat\"")
	b.sees(".flow-problems li", "Line 4 cut: Nothing reads its output")
	b.wait("no saving", `[...document.querySelectorAll("button")].find(e => e.textContent === "Create flow").disabled`)
	b.checkEverywhere(script, "a flow that is wrong")
	b.press("Line 5")
	b.wait("the line", `document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd).includes('id = "out"')`)
	change(`'["cat"]'`, `'["cut"]'`)
	b.sees(".flow-valid", "Valid")
	b.press("Create flow")
	b.sees("h1", "mine@1")
	b.wait("the graph", `document.querySelectorAll(".dag-node").length === 3 && document.querySelectorAll(".dag-edge").length === 2`)
	// A node of the drawing leads to its line; the text that was checked is not checked again.
	const checks = `performance.getEntriesByType("resource").filter(e => e.name.includes("flows:validate")).length`
	b.sees(".flow-valid", "Valid")
	before := eval[int](b, checks)
	for _, id := range []string{"cut", "out"} {
		b.run(evaluate(fmt.Sprintf(`[...document.querySelectorAll(".dag-node")].find(e => e.textContent.includes(%q)).click()`, id)))
		b.wait("the line of "+id, fmt.Sprintf(`document.activeElement.value?.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd).includes('id = "%s"')`, id))
	}
	if n := eval[int](b, checks); n != before || n == 0 {
		t.Errorf("the text was checked %d times, and %d times after two nodes were chosen", before, n)
	}
	change(`/kind = "chunk"/`, `'kind = "chunk"\nwhen = "true"'`)
	b.sees(".flow-problems li", "The kind chunk is a part of every run")
	change(`/when = "true"/`, `'config = { chunk_token_num = 64 }'`)
	b.sees(".flow-valid", "Valid")
	b.press("Save as new version")
	b.sees("h1", "mine@2")
	b.sees("[aria-label=Changes] ins", "chunk_token_num")
	b.checkEverywhere(script, "a flow")
	var v api.FlowAnswer
	s.get("/v1/flows/mine", &v)
	if v.Version != 2 || len(v.Flow.Nodes) != 3 {
		t.Errorf("%+v", v)
	}
	b.noErrors()
}

// A node is asked for in a form, and written into the text of either shape.
func TestNodeIsAddedOnThePage(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	add := func(id, from string) {
		t.Helper()
		b.press("Add a node")
		b.wait("the kinds", `document.querySelectorAll("dialog select[name=kind] option").length > 5`)
		b.run(evaluate(`(() => { const k = document.querySelector("dialog select[name=kind]"); k.value = "filter"; k.dispatchEvent(new Event("change")); document.querySelector("dialog [name=id]").value = "` + id + `"; document.querySelector('dialog input[value="` + from + `"]').click(); document.querySelector("dialog [name=set-keep]").value = 'chunk.text != "no"'; })()`))
	}
	b.open("/flows?new=1")
	b.sees(".flow-valid", "Valid")
	add("cut", "cut")
	b.checkEverywhere(script, "a node to add")
	for kind, want := range map[string]string{"chunk": "of-pool of-retry.attempts of-retry.base of-retry.max", "parse": "", "filter": "of-on_failure of-pool of-retry.attempts of-retry.base of-retry.max of-timeout of-when"} {
		if got := eval[string](b, fmt.Sprintf(`(() => { const k = document.querySelector("dialog select[name=kind]"), was = k.value, turn = (v) => { k.value = v; k.dispatchEvent(new Event("change")); }; turn(%q); const there = [...document.querySelectorAll("dialog .more-settings :is(input, select)")].filter(e => !e.disabled && !e.closest("[hidden]")).map(e => e.name).join(" "); turn(was); return there; })()`, kind)); got != want {
			t.Errorf("a node of kind %s can be set to %q, want %q", kind, got, want)
		}
	}
	b.run(evaluate(`document.querySelector("dialog [name=set-keep]").value = 'chunk.text != "no"'`))
	b.press("Insert")
	b.sees("dialog .trouble", "A node named cut already exists")
	b.run(evaluate(`document.querySelector("dialog [name=id]").value = "short"`))
	b.press("Insert")
	b.sees(".flow-problems li", "short: Nothing reads its output")
	b.run(evaluate(`(() => { const e = document.querySelector(".flow-text"); e.value = e.value.replace('kind = "index", from = ["cut"]', 'kind = "index", from = ["short"]'); e.dispatchEvent(new Event("input")); })()`))
	b.sees(".flow-valid", "Valid")
	b.press("Create flow")
	b.sees("h1", "mine@1")
	add("last", "short")
	b.press("Insert")
	b.sees(".flow-problems li", "last: Nothing reads its output")
	b.wait("the line of the problem", `document.querySelector(".flow-problems button").textContent === "Line " + (1 + document.querySelector(".flow-text").value.split("\n").findIndex((l) => l.includes('id = "last"')))`)
	var v api.FlowAnswer
	s.get("/v1/flows/mine", &v)
	if n := v.Flow.Nodes; len(n) != 4 || n[3].ID != "short" || n[3].From[0] != "cut" || n[3].Config["keep"] != `chunk.text != "no"` {
		t.Errorf("%+v", n)
	}
	// A list of nodes with brackets in strings and comments, and a table behind it:
	// the node stands between two others, with all that nodes can be set to.
	b.open("/flows?new=1")
	b.sees(".flow-valid", "Valid")
	b.run(evaluate(`(() => { const e = document.querySelector(".flow-text"); e.value = ` + "`" + `name = "mixed"
node = [ # the "first" ]
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"], config = { delimiter = "]}" } },
  { id = "key", kind = "enrich", from = ["cut"], when = 'document.name != "from = [x]"' },
  { id = "out", kind = "index", from = [
    "key" ] } # ]
]
` + "`" + `; e.dispatchEvent(new Event("input")); })()`))
	b.wait("the text to be valid", `document.querySelector(".flow-valid") && document.querySelector(".flow-edit [role=status]").textContent.includes("Valid")`)
	add("between", "cut")
	b.sees("dialog #kind-does", "passes on the chunks for which an expression is true")
	b.sees("dialog [id='of-when-help']", "if it is false, the node")
	b.run(evaluate(`(() => { const q = (s) => document.querySelector("dialog " + s); q("details").open = true; q('[name=to][value="key"]').click(); q('[name="of-when"]').value = "document.pages < 9"; q('[name="of-pool"]').value = "llm"; q('[name="of-on_failure"]').value = "skip"; q('[name="of-timeout"]').value = "5m"; q('[name="of-retry.attempts"]').value = "3"; q('[name="of-retry.base"]').value = "2s"; })()`))
	b.checkEverywhere(script, "a node with all settings")
	b.press("Insert")
	b.wait("the dialog to close", `!document.querySelector("dialog[open]")`)
	b.wait("the text to be valid", `document.querySelector(".flow-edit [role=status]").textContent.includes("Valid")`)
	b.press("Create flow")
	b.sees("h1", "mixed@1")
	v = api.FlowAnswer{}
	s.get("/v1/flows/mixed", &v)
	for _, n := range v.Flow.Nodes {
		switch n.ID {
		case "between":
			if n.Kind != "filter" || n.When != "document.pages < 9" || n.Pool != "llm" || n.OnFailure != "skip" || time.Duration(n.Timeout) != 5*time.Minute || n.Retry == nil || n.Retry.Attempts != 3 || time.Duration(n.Retry.Base) != 2*time.Second || !slices.Equal(n.From, []string{"cut"}) {
				t.Errorf("%+v %+v", n, n.Retry)
			}
		case "key":
			if !slices.Equal(n.From, []string{"between"}) {
				t.Errorf("key reads %q", n.From)
			}
		case "out":
			if !slices.Equal(n.From, []string{"key"}) {
				t.Errorf("out reads %q", n.From)
			}
		}
	}
	if len(v.Flow.Nodes) != 5 {
		t.Errorf("%d nodes", len(v.Flow.Nodes))
	}
	// The text is now tables, one behind the other.
	add("short", "between")
	b.run(evaluate(`document.querySelector('dialog [name=to][value="key"]').click()`))
	b.press("Insert")
	b.wait("the dialog to close", `!document.querySelector("dialog[open]")`)
	b.wait("the text to be valid", `document.querySelector(".flow-edit [role=status]").textContent.includes("Valid")`)
	b.press("Save as new version")
	b.sees("h1", "mixed@2")
	v = api.FlowAnswer{}
	s.get("/v1/flows/mixed", &v)
	if len(v.Flow.Nodes) != 6 || !slices.ContainsFunc(v.Flow.Nodes, func(n flow.Node) bool { return n.ID == "key" && slices.Equal(n.From, []string{"short"}) }) {
		t.Errorf("%+v", v.Flow.Nodes)
	}
	b.noErrors()
}
