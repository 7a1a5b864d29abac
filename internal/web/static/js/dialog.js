// @ts-check
import { ApiError } from "./api.js";
import { button, el, trouble } from "./dom.js";

/**
 * A question in a dialog. Its action may fail: then the dialog stays and says why, beside each field at fault.
 * @param {{title: string, body: (Node|string)[], action: string, no?: string, danger?: boolean, run: (form: FormData) => Promise<any>}} ask
 * @returns {Promise<boolean>} whether it was done
 */
export function dialog({ title, body, action, no = "Cancel", danger, run }) {
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
        for (const x of form.querySelectorAll(".fault")) x.remove();
        for (const x of form.querySelectorAll("[aria-invalid]")) ["aria-invalid", "aria-describedby"].forEach((a) => x.removeAttribute(a));
        try {
          await run(new FormData(form));
          done = true;
          d.close();
        } catch (err) {
          go.disabled = false;
          if (atFields(form, err)) return;
          problem.replaceChildren(trouble(err));
          go.focus(); // which it lost while it was disabled
        }
      },
    }, el("h2", { id: "dialog-title" }, title), ...body, problem, el("div", { class: "actions" }, button(no, () => d.close()), go));
    d.append(form);
    d.addEventListener("close", () => {
      d.remove();
      answer(done);
    });
    document.body.append(d);
    d.showModal();
  });
}

/** Puts what the server says of each field beside it, and the focus into the first. @param {HTMLFormElement} form @param {unknown} err @returns {boolean} whether every field at fault is in the form */
function atFields(form, err) {
  const faults = (err instanceof ApiError ? err.fields : []).map((f) => ({ text: f.message, input: form.querySelector(`[name="${CSS.escape(f.location?.split(".").pop() || "")}"]`) }));
  if (!faults.length || faults.some((f) => !f.input)) return false;
  faults.forEach(({ text, input }, i) => {
    const id = `fault-${i}`;
    input?.setAttribute("aria-invalid", "true");
    input?.setAttribute("aria-describedby", id);
    input?.after(el("span", { class: "fault", id, role: "alert" }, text));
  });
  /** @type {HTMLElement} */ (faults[0].input).focus();
  return true;
}
