// @ts-check
/**
 * The API's answers as the page uses them; docs/openapi.json is the whole of it.
 *
 * @typedef {"unstarted"|"queued"|"running"|"finalizing"|"succeeded"|"partially_succeeded"|"failed"|"canceling"|"canceled"} State
 * @typedef {"parked"|"scheduled"|"pending"|"running"|"retry_wait"|"done"|"dead"|"canceled"|"superseded"} TaskState
 * @typedef {{ok: number, ocr: number, blank: number, skipped: number, failed: number}} LedgerCounts
 * @typedef {{code: string, category: string, message: string, retryable: boolean, phase?: string, page?: number, range?: [number, number], attempt?: number, detail?: string}} Failure
 * @typedef {{code: string, message: string, page?: number}} Warning
 * @typedef {{chunk_method?: string, chunk_token_num?: number, delimiter?: string, overlapped_percent?: number, task_page_size?: number, pages?: [number, number][], table_rows?: number, encoding?: string, media_type?: string}} ParseConfig
 * @typedef {{id: string, name: string, parser_config: ParseConfig, paused: boolean, documents: number, chunks: number, created_at: string}} Dataset
 * @typedef {{id: string, dataset_id: string, name: string, media_type: string, size: number, sha256: string, state: State, progress: number, units: number, unit?: string,
 *   generation: number, live_generation: number, chunks: number, tokens: number, ledger: LedgerCounts, failure?: Failure, warnings: Warning[], parser?: string,
 *   parser_config: ParseConfig, made_with?: ParseConfig, metadata: Record<string, string>, attributes?: Record<string, any>, duplicate_of?: string, parent_id?: string, path?: string, job_id?: string, not_before?: string, created_at: string, updated_at: string, started_at?: string, finished_at?: string}} Doc
 * @typedef {{value: string, name?: string, documents: number}} Facet
 * @typedef {{code: string, documents: number, failed: number, sample: Failure, document_id: string, document: string}} Issue
 * @typedef {{code: string, documents: number, sample: Warning, document_id: string, document: string}} Notice
 * @typedef {{documents: number, ended_last_minute: number, state: Facet[], media_type: Facet[], failure_code: Issue[], warning: Notice[], job: Facet[], language: Facet[], tag: Facet[]}} Facets
 * @typedef {{generation: number, job_id: string, state: State, parser_config: ParseConfig, parser?: string, units: number, unit?: string, chunks: number, tokens: number,
 *   ledger: LedgerCounts, failure?: Failure, created_at: string, finished_at?: string, published_at?: string}} Generation
 * @typedef {{name: string, start_ms: number, ms: number}} StageTime
 * @typedef {{from: number, to: number, status: "ok"|"ocr"|"blank"|"skipped"|"failed", code?: string, message?: string}} LedgerRun
 * @typedef {{unit: string, units: number, counts: LedgerCounts, runs: LedgerRun[]}} Pages
 * @typedef {{id: string, document_id: string, job_id: string, generation: number, kind: string, node?: string, unit?: string, range?: [number, number], cost: number, lane: number, state: TaskState,
 *   attempts: number, failures: number, lost: number, worker?: string, run_at: string, created_at: string, started_at?: string, finished_at?: string, duration_ms?: number,
 *   range_id?: string, chunks: number, tokens: number, reused?: boolean, ledger?: LedgerRun[], stages?: StageTime[], failure?: Failure, warnings?: Warning[], content?: string}} Task
 * @typedef {{epoch: number, worker: string, started_at: string, ended_at?: string, outcome?: string, text?: string, failure?: Failure, output?: {from: number, to: number, code: string, lines: string}[]}} Try
 * @typedef {Task & {tries: Try[]}} TaskHistory
 * @typedef {{seq: number, dataset_id?: string, job_id?: string, document_id?: string, generation?: number, task_id?: string, epoch?: number, kind: string, worker?: string,
 *   level?: string, text?: string, detail?: any, at: string}} SheafEvent
 * @typedef {{page: number, x0: number, y0: number, x1: number, y1: number}} Box
 * @typedef {{id: string, document_id: string, range_id: string, ordinal: number, kind: string, text: string, tokens: number, pages: number[], boxes: Box[], heading_path: string[],
 *   role?: string, parent?: string, context?: string, keywords?: string[], questions?: string[], language?: string, tags?: {name: string, weight: number}[], metadata?: Record<string, string>, edit?: AppliedEdit}} Chunk
 * @typedef {{id: string, version: number, added?: boolean, rewritten?: boolean, enabled: boolean}} AppliedEdit
 * @typedef {{deleted?: boolean, text?: string, keywords?: string[], questions?: string[], author?: string}} EditContent
 * @typedef {AppliedEdit & EditContent & {state: "applied"|"undone"|"unplaced", chunk_id?: string, excerpt?: string, headings?: string[], pages?: number[], updated_at: string}} Edit
 * @typedef {Edit & {versions: (EditContent & {version: number, enabled: boolean, at: string})[]}} EditHistory
 * @typedef {{chunk?: Chunk, edit?: Edit}} EditedChunk
 * @typedef {{change: "same"|"changed"|"added"|"removed", from?: Chunk, to?: Chunk}} ChunkChange
 * @typedef {{from: number, to: number, settings: {name: string, from: any, to: any}[], counts: {same: number, changed: number, added: number, removed: number}, items: ChunkChange[], next_cursor: string|null}} Comparison
 * @typedef {{name: string, total: number, done: number, failed: number, reused: number, unit: string, started_at?: string, finished_at?: string}} JobStage
 * @typedef {{id: string, dataset_id: string, kind: string, name: string, requester?: string, open_until?: string, state: State, paused: boolean, progress: number, documents: {total: number, by_state: Record<string, number>}, stages: JobStage[],
 *   usage: Record<string, number>, reused: {ranges: number, pages: number, chunks: number, tokens: number},
 *   queue?: {ahead_own: number, ahead_others: number, eta_seconds: {p50: number|null, p90: number|null}, delayed?: {reason: string, next_at: string}}, not_before?: string, created_at: string, started_at?: string, finished_at?: string}} Job
 * @typedef {{document_id?: string, name: string, media_type: string, unit?: string, units: number, ranges: {range: [number, number], cost: number, reused: boolean}[],
 *   reused: {ranges: number, pages: number, chunks: number, tokens: number}, failure?: Failure}} Plan
 * @typedef {{count: number|null, estimated: boolean, basis?: string}} Expected
 * @typedef {{documents: number, skipped: number, planned: number, unplanned: number, estimated: boolean, units: number, unit?: string, ranges: number, reused: {ranges: number, pages: number, chunks: number, tokens: number},
 *   chunks: Expected, tokens: Expected, seconds: {p50: number|null, p90: number|null}, price?: {currency: string, amount: number, estimated: boolean},
 *   removed?: {generations: number, chunks: number, bytes: number}, stopped?: {queued: number, running: number}}} Forecast
 * @typedef {{score: number, scores: {text: number, vector: number}, highlight?: string, document: {id: string, name: string, dataset_id: string, media_type: string}, chunk: Chunk}} Hit
 * @typedef {{hits: Hit[], took_ms: number, index: {model: string, stale: boolean}, warnings?: Warning[]}} SearchAnswer
 * @typedef {{lane: number, pending: number, cost: number, oldest_pending_age_seconds: number}} LaneDepth
 * @typedef {{tenant_id: string, weight: number, cap: number, paused: boolean, running: number, retry_wait: number, scheduled: number, parked: number, dead: number, lanes: LaneDepth[], oldest_pending_age_seconds: number}} TenantQueue
 * @typedef {{documents: number, bytes: number, queued_tasks: number}} Quota
 * @typedef {{id: string, name: string, weight: number, cap: number, paused: boolean, quota: Quota, created_at: string, holds: Quota}} Tenant
 * @typedef {{id: string, tenant_id: string, name: string, scopes: string[], created_at: string, expires_at?: string, revoked_at?: string}} Key
 * @typedef {{id: string, host: string, pid: number, version: string, slots: number, running: string[]|null, rss_bytes: number, started_at: string, seen_at: string}} Executor
 * @typedef {{at: string, tasks: number, failed: number, cost: number, stage_ms: Record<string, number>}} Bucket
 * @typedef {{buckets: Bucket[], bucket_minutes: number, stages: {name: string, tasks: number, p50_ms: number, p95_ms: number}[], cost_per_second: number, sampled: boolean, fairness?: {index: number, tenants: number}, index?: IndexStatus}} Stats
 * @typedef {{passed: boolean, missing: number, samples: number, recall?: number, recall_live?: number, reason?: string}} Gate
 * @typedef {{phase: "filling"|"paused"|"ready"|"refused"|"switched", wanted?: string, rebuild: boolean, from: string, to: string, tenant?: string, ranges: number, total_ranges: number, seconds_left?: number, tokens: number, price?: number, currency?: string, error?: string, gate?: Gate}} Migration
 * @typedef {{model: string, configured: string, stale: boolean, reason?: string, embedder?: string, migration?: Migration}} IndexStatus
 * @typedef {{id: string, kind: string, from?: string[], when?: string, config?: Record<string, any>, pool?: string, retry?: {attempts?: number, base?: string, max?: string}, timeout?: string, on_failure?: string}} FlowNode
 * @typedef {{asked?: {calls: number, cached: number, tokens: number}, price?: number, currency?: string}} RunCost
 * @typedef {"parked"|"pending"|"running"|"retry_wait"|"done"|"skipped"|"failed"|"canceled"|"reused"} NodeState
 * @typedef {RunCost & {id: string, state: NodeState, reason?: string, pool?: string, ranges: number, done: number, reused: number, attempts: number, chunks: number, bytes: number, ms: number, failure?: Failure,
 *   shared?: boolean, definition?: FlowNode, files?: {range: [number, number], media: string, chunks: number, bytes: number, path: string}[]}} RunNode
 * @typedef {RunNode & {tasks: {id: string, range?: [number, number], state: NodeState, reason?: string, attempts: number, reused?: boolean, ms: number, chunks: number, bytes: number, name?: string, digest?: string, failure?: Failure}[]}} RunNodeAnswer
 * @typedef {{spent: number, price?: number, currency?: string, max_tokens?: number, unbounded?: boolean, waits: boolean}} VersionBudget
 * @typedef {RunCost & {generation: number, flow: string, mode: string, reason: string, state: State, nodes: RunNode[], unserved_pools?: string[], budget?: VersionBudget, created_at: string, finished_at?: string}} FlowRun
 * @typedef {RunCost & {document_id: string, document: string, generation: number, flow: string, mode?: string, reason?: string, state: State, chunks: number, created_at: string, finished_at?: string}} FlowRunListed
 * @typedef {{id: string, kind: string, state: string, cause?: string, documents: number, behind: number, phase?: string, done: number, total: number, progress: number, tokens: number, price?: number, currency?: string, calls: number, cached: number,
 *   max_tokens?: number, max_price?: number, auto_update?: string, options?: any, result?: any, task_id: string, created_at: string, started_at?: string, finished_at?: string}} DatasetRun
 * @typedef {{status: string, dependencies: Record<string, {ok: boolean, latency_ms: number, error?: string}>}} Readiness
 */

/**
 * What a view is given: where to draw, what the address says, and a signal that
 * ends when the reader goes elsewhere.
 * @typedef {{root: HTMLElement, params: Record<string, string>, query: URLSearchParams, signal: AbortSignal}} Context
 */

/**
 * A view that can follow a change of its query without being drawn anew.
 * @typedef {{update?: (query: URLSearchParams) => void} | void} View
 */

export {};
