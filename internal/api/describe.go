package api

import (
	"cmp"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"sheaf/internal/apidoc"
)

// property describes a key in the OpenAPI document beyond its type.
type property struct {
	schemas, key string // schemas separated by spaces
	text         string
	values       string // all allowed values, comma-separated
	list         bool   // never null
}

// properties covers types that the API returns as stored; the API's own types use
// struct tags.
var properties = []property{
	{"Facets", "state", "documents by state", "", false},
	{"Failure", "phase", "phase in which it failed, such as upload, plan or parse", "", false},
	{"AnyTenantsDeadSelection DeadSelection", "kind", "kind of task", "", false},
	{"Delay", "reason", "such as that the embedding server asks to slow down", "", false},
	{"Delay", "next_at", "when it is tried again", "", false},
	{"StatsAnswer", "buckets", "oldest first; the last is still open", "", true},
	{"StatsAnswer", "stages", "", "", true},
	{"StatsAnswer", "cost_per_second", "pages or their equivalent per second while anything ran; 0 when nothing did", "", false},
	{"StatsAnswer", "sampled", "speed and stage times are of the newest tasks", "", false},
	{"StatsAnswer", "bucket_minutes", "length of a bucket", "", false},
	{"StatsBucket", "tasks", "done", "", false},
	{"StatsBucket", "failed", "attempts that failed, were lost or were the last", "", false},
	{"StatsBucket", "cost", "of the completed tasks", "", false},
	{"StatsBucket", "stage_ms", "time of the completed tasks by stage, in milliseconds", "", false},
	{"Webhook WebhookMade", "events", "events to send; empty: all", "", true},
	{"Webhook WebhookMade", "secret", "signing key: whsec_ and base64; shown once, when the webhook is created", "", false},
	{"Webhook WebhookMade", "failures", "consecutive failed attempts", "", false},
	{"Delivery", "event_id", "the webhook-id header: the same in every attempt and replay", "", false},
	{"Delivery", "state", "", "pending,delivered,dead", false},
	{"Delivery", "status", "HTTP status of the last answer", "", false},
	{"Receipt", "kind", "", "documents,dataset,members", false},
	{"Receipt", "state", "", "pending,completed", false},
	{"Receipt", "document_ids", "", "", true},
	{"Receipt", "kept", "", "", true},
	{"KeptCopy", "reason", "", "same_bytes,same_ranges,in_archive", false},
	{"ReceiptDocument", "kept", "", "", true},
	{"Cleaned", "events", "removed events", "", false},
	{"Cleaned", "jobs", "jobs that no document depends on any more, older than the retention by `keeper.keep_history`", "", false},
	{"Comparison", "from", "the older version", "", false},
	{"Comparison", "to", "the newer version", "", false},
	{"DatasetChange", "name", "unique; usable in place of the id", "", false},
	{"Dataset Document DocumentAnswer", "attributes", "what programs store with it; Sheaf does not read them", "", false},
	{"Delivery", "data", "the message as sent", "", false},
	{"Dependency", "ok", "it answers", "", false},
	{"DirectUpload", "method", "HTTP method of the upload", "", false},
	{"Edit EditHistory EditVersion AppliedEdit", "version", "of the edit, from 1; each change adds one", "", false},
	{"EditVersion", "deleted", "the chunk is neither listed nor found", "", false},
	{"EmbedAnswer", "data", "one vector for each text", "", false},
	{"Estimate", "to", "name of the new model", "", false},
	{"Fairness", "index", "1 when all shares match the weights; 1/n when one of n tenants got everything", "", false},
	{"Flow", "mode", "auto, whole or nodes: whether nodes have their own tasks", "", false},
	{"Flow", "node", "the nodes", "", false},
	{"Flow", "scope", "always document", "", false},
	{"FlowAnswer FlowListed", "nodes", "how many nodes it has", "", false},
	{"FlowAnswer FlowListed", "version", "from 1; a version never changes", "", false},
	{"FlowDecision", "kinds", "of the nodes, in order", "", false},
	{"FlowDecision", "last", "nodes that run over the whole document, after its ranges", "", false},
	{"FlowDecision", "mode", "whole: one task per range runs all nodes; nodes: nodes have their own tasks", "", false},
	{"FlowDecision", "nodes", "in execution order", "", false},
	{"FlowDecision", "ref", "name and version of the flow", "", false},
	{"FlowDecision", "skipped", "why a node does not run, by its id", "", false},
	{"FlowDecision", "tasks", "nodes that have their own tasks", "", false},
	{"FlowDiff", "to", "the newer version", "", false},
	{"FlowsDeleted", "deleted", "the versions, as name@version", "", false},
	{"Job", "kind", "such as ingest, reparse or retry", "", false},
	{"Job", "name", "its given name, or its first files", "", false},
	{"Job", "state", "combined from its documents", "", false},
	{"JobStage StageStats StageTime", "name", "of the stage", "", false},
	{"JobStatistics", "deleted", "documents that were deleted", "", false},
	{"JobStatistics", "modified", "documents whose bytes changed", "", false},
	{"JobStatistics", "new", "documents that are new", "", false},
	{"JobStatistics", "unchanged", "documents with the same bytes", "", false},
	{"Key CreatedKey ChangedKey", "name", "what the key is used for", "", false},
	{"LedgerCounts", "skipped", "skipped units", "", false},
	{"LedgerRun", "status", "", "ok,ocr,blank,skipped,failed", false},
	{"MigrateInBody", "action", "start fills a new index; switch moves searches to it, rollback reverts that and confirm drops the old one; dedicate gives a tenant its own index and share reverts that", "", false},
	{"Node", "from", "ids of the nodes whose output it takes", "", false},
	{"Node", "id", "unique within the flow", "", false},
	{"Node", "kind", "what it does, such as parse or chunk", "", false},
	{"NodeOutput", "failed", "the node failed and the output is its default", "", false},
	{"NodeOutput", "incomplete", "made with some inputs missing", "", false},
	{"NodeOutput", "skipped", "why the node did not run", "", false},
	{"Problem", "retryable", "the same request may succeed when repeated", "", false},
	{"Protection", "name", "such as seccomp or landlock", "", false},
	{"Rejected", "name", "of the file", "", false},
	{"RemovedRows", "events", "what happened to the documents", "", false},
	{"RemovedRows", "tasks", "tasks of the documents", "", false},
	{"RunNode", "id", "of the node", "", false},
	{"SearchPart", "value", "of the feature", "", false},
	{"SearchRequest", "mode", "by words, by meaning, or both", "", false},
	{"SearchRequest", "datasets", "names or ids; empty: all", "", false},
	{"SearchRequest", "explain", "explain the rank of each hit", "", false},
	{"SearchRequest", "group_by", "keep only the best hits per document, page or text; text groups identical passages", "", false},
	{"SearchRequest", "group_size", "hits to keep per group, with group_by", "", false},
	{"SearchRequest", "limit", "most hits", "", false},
	{"SearchRequest", "threshold", "hits below this score are omitted", "", false},
	{"SearchRequest", "vector_weight", "meaning versus words, 0–1", "", false},
	{"SearchFilter", "metadata", "keys with their required values", "", false},
	{"SearchFilter", "languages", "ISO 639-1 codes, any of them", "", false},
	{"SearchFilter", "media_types", "such as application/pdf, any of them", "", false},
	{"SearchFilter", "tags", "any of them", "", false},
	{"SearchFilter", "pages", "only chunks on these", "", false},
	{"SearchFilter", "keywords", "any of them", "", false},
	{"SearchFilter SelectionFilter", "document_ids", "any of them", "", false},
	{"SearchRerankInfo", "outcome", "used, or why not", "", false},
	{"SearchResponse", "hits", "best first", "", false},
	{"SearchResponse", "index", "what was searched", "", false},
	{"SearchResponse", "rerank", "what the reranker did; absent without one", "", false},
	{"SearchScores", "text", "by words", "", false},
	{"SearchScores", "vector", "by meaning", "", false},
	{"SearchScores", "tags", "by tags", "", false},
	{"SelectionFilter", "state", "any of them", "", false},
	{"SelectionFilter", "media_type", "any of them", "", false},
	{"Signature", "value", "in base64", "", false},
	{"Signature", "algorithm", "such as ed25519", "", false},
	{"SettingChange", "name", "of the setting", "", false},
	{"Tag", "name", "the tag", "", false},
	{"Tag", "weight", "how well it fits", "", false},
	{"Task TaskHistory AnyTenantsTask", "warnings", "non-fatal problems", "", false},
	{"Verified", "state", "of the receipt: pending or completed", "", false},
	{"Webhook WebhookMade WebhookChange", "enabled", "false: nothing is sent", "", false},
	{"WebhookChange", "events", "events to send; empty: all", "", false},
	{"WorkerStatus", "running", "ids of the running tasks", "", false},
	{"WorkerStatus DiagnosedExecutor", "version", "its build", "", false},
}

// describeProperties writes properties into the schemas. It panics on a key that
// does not exist, since the table is then wrong.
func describeProperties(schemas map[string]*huma.Schema) {
	for _, p := range properties {
		for name := range strings.FieldsSeq(p.schemas) {
			if schemas[name] == nil {
				continue // of routes that this server does not register
			}
			s := schemas[name].Properties[p.key]
			if s == nil {
				panic(name + " has no property " + p.key)
			}
			s.Description = cmp.Or(p.text, s.Description)
			s.Nullable = s.Nullable && !p.list
			if p.values != "" {
				for v := range strings.SplitSeq(p.values, ",") {
					s.Enum = append(s.Enum, v)
				}
			}
		}
	}
}

// describeAll fills in what types and routes leave undescribed: properties that
// mean the same everywhere, parameters, and request examples.
func describeAll(o *huma.OpenAPI) {
	for name, schema := range o.Components.Schemas.Map() {
		schema.Description = cmp.Or(schema.Description, schemaTexts[name])
		for key, s := range schema.Properties {
			s.Description = cmp.Or(s.Description, keyTexts[key])
		}
	}
	for _, op := range apidoc.Operations(o) {
		for _, p := range op.Parameters {
			p.Description = cmp.Or(p.Description, parameterTexts[p.Name])
			p.Example = parameterExamples[op.OperationID][p.Name]
			if p.In == "path" {
				p.Example = pathExamples[p.Name]
			}
		}
		if op.RequestBody != nil && op.RequestBody.Content["application/json"] != nil {
			op.RequestBody.Content["application/json"].Example = bodyExamples[op.OperationID]
		}
	}
}
