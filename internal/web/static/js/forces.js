// @ts-check
/** Where the points of a graph stand: those that belong together near each other, the same each time. */

/** @typedef {{x: number, y: number}} Point */

/** Pairs that are looked at in all rounds together: 200 points have 100 rounds. */
const effort = 4e6, mostRounds = 300;

/**
 * @param {string[]} ids in the order of their importance
 * @param {[string, string, number][]} edges with their weight
 * @param {Map<string, Point>} known where some of them stand already
 * @param {string} [center] stays in the middle
 * @returns {Map<string, Point>} about a unit apart
 */
export function settle(ids, edges, known, center) {
  const n = ids.length, at = new Map(ids.map((id, i) => [id, i]));
  const x = new Float64Array(n), y = new Float64Array(n), dx = new Float64Array(n), dy = new Float64Array(n);
  ids.forEach((id, i) => {
    const k = known.get(id), near = k ? undefined : edges.find(([a, b]) => (a === id && known.has(b)) || (b === id && known.has(a)));
    const from = near ? /** @type {Point} */ (known.get(near[0] === id ? near[1] : near[0])) : { x: 0, y: 0 };
    const turn = i * 2.399963, far = near ? 0.8 : 0.9 * Math.sqrt(i); // a spiral that leaves no gaps
    x[i] = k ? k.x : from.x + Math.cos(turn) * far;
    y[i] = k ? k.y : from.y + Math.sin(turn) * far;
  });
  const most = Math.max(1e-9, ...edges.map((e) => e[2]));
  const pulls = edges.flatMap(([a, b, w]) => (at.has(a) && at.has(b) && a !== b ? [[at.get(a) || 0, at.get(b) || 0, 0.4 + 0.6 * (w / most)]] : []));
  const degree = new Float64Array(n);
  for (const [a, b] of pulls) {
    degree[a]++;
    degree[b]++;
  }
  const pinned = center === undefined ? -1 : at.get(center) ?? -1;
  const rounds = Math.min(mostRounds, Math.ceil(effort / Math.max(1, n * n)));
  for (let round = 0; round < rounds; round++) {
    dx.fill(0);
    dy.fill(0);
    for (let i = 0; i < n; i++) {
      for (let j = i + 1; j < n; j++) {
        let ex = x[i] - x[j], ey = y[i] - y[j], d2 = ex * ex + ey * ey;
        if (d2 < 1e-6) [ex, ey, d2] = [1e-3 * (1 + (i % 7)), 1e-3 * (1 + (j % 5)), 1e-5];
        const f = 1 / d2;
        dx[i] += ex * f;
        dy[i] += ey * f;
        dx[j] -= ex * f;
        dy[j] -= ey * f;
      }
      dx[i] -= x[i] * 0.25; // nothing drifts away
      dy[i] -= y[i] * 0.4; // windows are wider than high
    }
    for (const [a, b, w] of pulls) {
      const ex = x[a] - x[b], ey = y[a] - y[b], f = (w * 0.6) / Math.max(1, Math.sqrt(degree[a] * degree[b])); // many relations do not make a knot
      dx[a] -= ex * f;
      dy[a] -= ey * f;
      dx[b] += ex * f;
      dy[b] += ey * f;
    }
    const step = 0.35 * (1 - round / rounds) + 0.01;
    for (let i = 0; i < n; i++) {
      if (i === pinned) continue;
      const d = Math.sqrt(dx[i] * dx[i] + dy[i] * dy[i]) || 1, move = Math.min(d * 0.2, step);
      x[i] += (dx[i] / d) * move;
      y[i] += (dy[i] / d) * move;
    }
  }
  return new Map(ids.map((id, i) => [id, { x: x[i], y: y[i] }]));
}
