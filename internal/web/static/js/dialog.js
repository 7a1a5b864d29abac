// @ts-check
import { button, el, trouble } from "./dom.js";

/**
 * A question in a dialog. Its action may fail: then the dialog stays and says why.
 * @param {{title: string, body: (Node|string)[], action: string, danger?: boolean, run: (form: FormData) => Promise<any>}} ask
 * @returns {Promise<boolean>} whether it was done
 */
export function dialog({ title, body, action, danger, run }) {
  return new Promise((answer) => {
    const d = el("dialog", { "aria-labelledby": "dialog-title" });
    const problem = el("div");
    const go = el("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    let done = false;
    const form = el("form", {
      method: "dialog",
      onsubmit: async (/** @type {SubmitEvent} */ e) => {
        e.preventDefault();
        go.disabled = true;
        problem.replaceChildren();
        try {
          await run(new FormData(form));
          done = true;
          d.close();
        } catch (err) {
          problem.replaceChildren(trouble(err));
          go.disabled = false;
        }
      },
    }, el("h2", { id: "dialog-title" }, title), ...body, problem, el("div", { class: "actions" }, button("Keep as it is", () => d.close()), go));
    d.append(form);
    d.addEventListener("close", () => {
      d.remove();
      answer(done);
    });
    document.body.append(d);
    d.showModal();
  });
}
