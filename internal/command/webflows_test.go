package command

import (
	"testing"

	"sheaf/internal/api"
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
	b.wait("no saving", `[...document.querySelectorAll("button")].find(e => e.textContent === "Create the flow").disabled`)
	b.checkEverywhere(script, "a flow that is wrong")
	b.press("Line 5")
	b.wait("the line", `document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd).includes('id = "out"')`)
	change(`'["cat"]'`, `'["cut"]'`)
	b.sees(".flow-valid", "Valid")
	b.press("Create the flow")
	b.sees("h1", "mine@1")
	b.wait("the graph", `document.querySelectorAll(".dag-node").length === 3 && document.querySelectorAll(".dag-edge").length === 2`)
	change(`/kind = "chunk"/`, `'kind = "chunk"\nwhen = "true"'`)
	b.sees(".flow-problems li", "The kind chunk is a part of every run")
	change(`/when = "true"/`, `'config = { chunk_token_num = 64 }'`)
	b.sees(".flow-valid", "Valid")
	b.press("Save as the next version")
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
	b.press("Write it into the text")
	b.sees("dialog .trouble", "There is a node cut")
	b.run(evaluate(`document.querySelector("dialog [name=id]").value = "short"`))
	b.press("Write it into the text")
	b.sees(".flow-problems li", "short: Nothing reads its output")
	b.run(evaluate(`(() => { const e = document.querySelector(".flow-text"); e.value = e.value.replace('kind = "index", from = ["cut"]', 'kind = "index", from = ["short"]'); e.dispatchEvent(new Event("input")); })()`))
	b.sees(".flow-valid", "Valid")
	b.press("Create the flow")
	b.sees("h1", "mine@1")
	add("last", "short")
	b.press("Write it into the text")
	b.sees(".flow-problems li", "last: Nothing reads its output")
	var v api.FlowAnswer
	s.get("/v1/flows/mine", &v)
	if n := v.Flow.Nodes; len(n) != 4 || n[3].ID != "short" || n[3].From[0] != "cut" || n[3].Config["keep"] != `chunk.text != "no"` {
		t.Errorf("%+v", n)
	}
	b.noErrors()
}
