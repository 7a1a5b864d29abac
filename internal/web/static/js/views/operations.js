// @ts-check
/** For the operator: what waits, who works, what is dead, what is down. */
import { aborted, get, key, send } from "../api.js";
import { bars, gauge } from "../chart.js";
import { deadLetters } from "../deadletters.js";
import { dialog } from "../dialog.js";
import { button, draw, el, grid, icon, trouble } from "../dom.js";
import { between, bytes, duration, number, plural, time } from "../format.js";
import { note, title } from "../nav.js";
import { repeat } from "../repeat.js";
import { editTenant } from "../tenants.js";
import { stages, taskName, words } from "../waterfall.js";

const lanes = /** @type {Record<number, string>} */ ({ 1: "Interactive", 2: "Normal", 3: "Backfill" });
const every = 2000;
/** How far the charts look back, and how a bar is named. @type {Record<string, {label: string, empty: string, at: Intl.DateTimeFormatOptions}>} */
const spans = {
  hour: { label: "Hour", empty: "nothing in the last hour", at: { hour: "2-digit", minute: "2-digit" } },
  day: { label: "Day", empty: "nothing in the last day", at: { weekday: "short", hour: "2-digit", minute: "2-digit" } },
  month: { label: "Month", empty: "nothing in the last 30 days", at: { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" } },
};

/** @param {import("../types.js").Context} c */
export async function view({ root, query, signal }) {
  title("Operations");
  const deps = el("section", { "aria-label": "Dependencies" }), index = el("section", { "aria-label": "Search index" }), queues = el("section"), execs = el("section"), charts = el("div", { class: "look-back" }), work = el("section", { "aria-label": "Throughput and tasks" });
  const problem = el("div");
  /** The queues and dead letters of every tenant: for a key with the scope admin. */
  let everybody = false;
  /** Why it can not be, until the box is used again. @type {unknown} */
  let refused = null;
  const everyTenant = el("label", { hidden: true }, el("input", {
    type: "checkbox", name: "everybody", "aria-label": "All tenants",
    onchange: async (/** @type {Event} */ e) => {
      const box = /** @type {HTMLInputElement} */ (e.target);
      everybody = box.checked;
      refused = null;
      await showQueues().then(showDead).catch((err) => {
        everybody = box.checked = false; // the key may not
        refused = err;
        draw(problem, trouble(err));
        return showQueues().then(showDead);
      });
    },
  }), " All tenants");
  const dead = deadLetters({ signal, everybody: () => everybody, failed: (err) => aborted(err) || draw(problem, trouble(err)) });
  /** Tasks that are dead, by the queues: where it is the same the letters are, too. */
  let deadCount = "";
  const showDead = () => dead.update(`${everybody} ${deadCount}`);
  let span = query.get("span") || "hour";
  /** @type {unknown} */
  let mistyped = null;
  const choices = Object.entries(spans).map(([k, s]) => button(s.label, () => {
    note({ span: k === "hour" ? "" : k });
    choose(k);
    void showCharts().catch((err) => aborted(err) || draw(problem, trouble(err)));
  }, { "data-span": k, "aria-pressed": "false" }));
  /** @param {string} k */
  function choose(k) {
    span = k in spans ? k : "hour";
    mistyped = k in spans ? null : new Error(`Unknown period ${k.slice(0, 40)}; showing the last hour. Use hour, day or month.`);
    for (const c of choices) c.setAttribute("aria-pressed", String(c.dataset.span === span));
  }
  choose(span);
  work.append(el("div", { class: "segments", role: "group", "aria-label": "Period of the charts" }, choices), charts);
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Operations"), everyTenant), problem, deps, index, work, queues, execs, dead.root);

  async function showDependencies() {
    /** @type {import("../types.js").Readiness} */
    const r = await fetch("/readyz", { signal }).then((x) => x.json());
    draw(deps, el("ul", { class: "deps" }, Object.entries(r.dependencies).sort().map(([n, d]) => el("li", { class: d.ok ? "ok" : "bad" }, icon(d.ok ? "check" : "cross"), el("strong", {}, n), el("span", { class: "muted num" }, d.ok ? (d.latency_ms < 1 ? "<1 ms" : `${Math.round(d.latency_ms)} ms`) : "down"), d.error ? el("span", { class: "note" }, d.error) : null))));
  }

  /** What the index holds, and the change of its model. */
  async function showIndex() {
    /** @type {import("../types.js").IndexStatus} */
    const s = await get("/v1/index", signal);
    const m = s.migration;
    if (!m && !s.stale && !s.embedder && s.model === s.configured) return draw(index, null);
    const act = (/** @type {string} */ action, /** @type {string} */ label, /** @type {string} */ what) => button(`${label}…`, async () => {
      try {
        const path = "/v1/index/migration";
        const plan = (await send(`${path}?dry_run=true`, { action })).estimate;
        const takes = plan ? `${plural(plan.ranges, "range")}, ${number(plan.tokens)} tokens to embed${plan.price ? ` (${plan.price.toFixed(2)} ${plan.currency || ""})` : ""}, about ${duration((plan.seconds || 0) * 1000)}. ` : "";
        await dialog({ title: label, action: label, danger: action === "confirm" || action === "cancel", body: [el("p", {}, takes + what)], run: () => send(path, { action }).then(showIndex) });
      } catch (err) { draw(problem, trouble(err)); }
    });
    const buttons = {
      filling: () => [act("pause", "Pause", "What has been written is kept; the migration resumes where it stopped."), act("cancel", "Cancel the migration", "The new index is deleted.")],
      paused: () => [act("resume", "Resume", "The migration resumes where it stopped."), act("cancel", "Cancel the migration", "The new index is deleted.")],
      ready: () => [act("switch", "Switch", "Searches switch to the new index once it is complete. You can roll back."), act("cancel", "Cancel the migration", "The new index is deleted.")],
      refused: () => [act("resume", "Check again", "Writes what is missing and checks the gate again."), act("cancel", "Cancel the migration", "The new index is deleted.")],
      switched: () => [act("rollback", "Roll back", "Searches switch back to the previous index."), act("confirm", "Confirm", "The previous index is deleted. This cannot be undone.")],
    };
    draw(index, el("h2", {}, "Search index"),
      s.stale ? el("p", { class: "warn" }, s.reason || "") : null, s.embedder ? el("p", { class: "warn" }, s.embedder) : null,
      el("p", {}, `Searched: ${s.model}. `, s.configured !== s.model ? `Configured: ${s.configured}.` : ""),
      m ? [el("p", {}, `${m.tenant ? `Move of tenant ${m.tenant}` : m.rebuild ? "Rebuild" : `Migration to ${m.to}`}: ${m.wanted || m.phase}, ${number(m.ranges)} of ${plural(m.total_ranges, "range")}, ${number(m.tokens)} tokens embedded${m.price ? ` (${m.price.toFixed(2)} ${m.currency || ""})` : ""}${m.seconds_left ? `, ${duration(m.seconds_left * 1000)} left` : ""}.`),
        el("progress", { max: String(Math.max(1, m.total_ranges)), value: String(m.ranges), "aria-label": "Ranges written" }),
        m.gate ? el("p", { class: m.gate.passed ? "muted" : "warn" }, m.gate.passed ? `The gate has passed: ${Math.round(100 * (m.gate.recall || 0))} % of ${number(m.gate.samples)} questions answered, ${Math.round(100 * (m.gate.recall_live || 0))} % before.` : m.gate.reason || "") : null,
        m.error ? el("p", { class: "warn" }, m.error) : null,
        m.rebuild ? null : el("div", { class: "tools" }, buttons[m.phase]?.())]
        : s.configured !== s.model ? el("div", { class: "tools" }, act("start", "Start the migration", "Searches use the current index in the meantime.")) : null);
  }

  /** Whether tenants may be seen and changed: without keys everybody may. */
  const operates = () => everybody || !key();
  const mostQueues = 200;
  async function showQueues() {
    /** @type {{items: import("../types.js").TenantQueue[], next_cursor: string|null}} */
    const page = await get(operates() ? `/v1/admin/queues?limit=${mostQueues}` : "/v1/queues", signal);
    const qs = page.items;
    deadCount = qs.map((q) => q.dead).join();
    const lane = (/** @type {import("../types.js").LaneDepth} */ l) => (l.pending ? [el("strong", {}, number(l.pending)), el("span", { class: "under" }, `cost ${number(l.cost)}, oldest ${duration(l.oldest_pending_age_seconds * 1000)}`)] : el("span", { class: "muted" }, "0"));
    const ids = [1, 2, 3].filter((id) => qs.some((q) => q.lanes.some((l) => l.lane === id)));
    draw(queues, el("h2", {}, "Queue"), el("p", { class: "muted" }, `Pending and running tasks, by tenant and lane.${page.next_cursor ? ` The first ${number(qs.length)} tenants by id.` : ""}`), operates() ? el("p", {}, el("a", { href: "/tenants" }, "Tenants and keys")) : null,
      grid("Queue", [["Tenant"], ...ids.map((id) => /** @type {[string, string]} */ ([lanes[id], "num wide"])), ["Running", "num"], ["Cap", "num"], ["Weight", "num"], ["For later", "num"], ["To retry", "num"], ["Parked", "num"], ["Dead", "num"], ...(operates() ? [/** @type {[string, string]} */ (["", "row-actions"])] : [])],
        qs.map((q) => [[el("bdi", {}, q.tenant_id), q.paused ? el("span", { class: "badge off" }, "Paused") : null],
          ...ids.map((id) => q.lanes.filter((l) => l.lane === id).flatMap(lane)), ...[q.running, q.cap, q.weight, q.scheduled, q.retry_wait, q.parked, q.dead].map((n) => number(n)),
          ...(operates() ? [button("Edit…", () => void editTenant(q.tenant_id, signal, showQueues).catch((err) => draw(problem, trouble(err))), { "aria-label": `Edit tenant ${q.tenant_id}` })] : [])])));
  }

  async function showExecutors() {
    /** @type {import("../types.js").Executor[]} */
    const es = (await get("/v1/executors", signal)).items;
    const running = await Promise.all(es.flatMap((e) => e.running || []).slice(0, 24).map((id) => get(`/v1/tasks/${id}`, signal).catch(() => null)));
    const byId = new Map(running.filter(Boolean).map((t) => [t.id, t]));
    const task = (/** @type {string} */ id) => {
      const t = byId.get(id);
      return t ? `${taskName(t)}${t.range ? ` ${t.unit || ""} ${t.range.join("–")}` : ""}` : id.slice(0, 8);
    };
    draw(execs, el("h2", {}, "Executors"), es.length ? grid("Executors", [["Executor", "mono"], ["Runs now", "wide"], ["Slots", "num"], ["Memory", "num"], ["Version"], ["Up", "num"], ["Seen"]], es.map((e) => [`${e.host}:${e.pid}`,
      e.running?.length ? [e.running.slice(0, 8).map(task).join(", "), e.running.length > 8 ? ` and ${number(e.running.length - 8)} more` : ""] : el("span", { class: "muted" }, e.running ? "nothing" : "hidden"), `${e.running?.length ?? "–"} of ${e.slots}`,
      bytes(e.rss_bytes), e.version, duration(between(e.started_at, undefined)), time(e.seen_at, true)])) : el("p", { class: "warn" }, "No executor is running, so nothing will be parsed. Start one with `sheaf executor`."));
  }

  async function showCharts() {
    const shown = span, { empty, at } = spans[shown];
    /** @type {import("../types.js").Stats[]} */
    const [s, hour] = await Promise.all((shown === "hour" ? [""] : [`?span=${shown}`, ""]).map((q) => get(`/v1/stats${q}`, signal)));
    if (shown !== span) return; // another was chosen meanwhile
    const named = new Intl.DateTimeFormat(undefined, at);
    const names = (/** @type {import("../types.js").Bucket[]} */ buckets) => buckets.map((b) => named.format(new Date(b.at)));
    const labels = names(s.buckets), lately = hour || s;
    const done = s.buckets.reduce((n, b) => n + b.tasks, 0), failed = s.buckets.reduce((n, b) => n + b.failed, 0), cost = s.buckets.reduce((n, b) => n + b.cost, 0);
    const mean = (/** @type {import("../types.js").Bucket} */ b, /** @type {string} */ k) => (b.tasks ? (b.stage_ms[k] || 0) / b.tasks : 0);
    draw(charts, el("div", { class: "charts" },
      bars({ title: "Throughput", caption: done + failed ? `${plural(cost, "page")}, ${s.cost_per_second.toFixed(1)}/s while busy` : empty, labels, unit: number, series: [{ name: "pages", cls: "run", values: s.buckets.map((b) => b.cost) }] }),
      bars({ title: "Tasks", caption: `${number(done)} done, ${plural(failed, "attempt")} failed`, labels, unit: number, series: [{ name: "done", cls: "ok", values: s.buckets.map((b) => b.tasks) }, { name: "failed", cls: "bad", values: s.buckets.map((b) => b.failed) }] }),
      bars({ title: hour ? "Stage times, last hour" : "Stage times", caption: lately.stages.length ? `median${lately.sampled ? " of the newest tasks" : ""}: ${lately.stages.filter((x, i) => !i || x.p50_ms >= 1).slice(0, 3).map((x) => `${words[x.name] || x.name} ${duration(x.p50_ms)}`).join(", ")}` : "no stage has run", labels: names(lately.buckets), unit: duration, series: stages.map((k) => ({ name: words[k], cls: `stage ${k}`, values: lately.buckets.map((b) => mean(b, k)) })) }),
      lately.fairness ? gauge({ title: "Fairness", caption: `over the last minutes, among ${number(lately.fairness.tenants)} waiting tenants. 1 means every tenant gets its weighted share`, value: lately.fairness.index }) : null));
  }

  await repeat(signal, async () => {
    everyTenant.hidden = !key();
    const done = await Promise.allSettled([showDependencies(), showIndex(), showQueues().then(showDead), showExecutors(), showCharts()]);
    if (signal.aborted) return every;
    const bad = done.find((r) => r.status === "rejected" && !aborted(r.reason));
    const why = bad?.status === "rejected" ? bad.reason : refused || mistyped;
    draw(problem, why ? trouble(why) : null);
    return every;
  })();
  return { update: (/** @type {URLSearchParams} */ q) => {
    choose(q.get("span") || "hour");
    void showCharts().catch((err) => aborted(err) || draw(problem, trouble(err)));
  } };
}
