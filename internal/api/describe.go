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
	{"Delay", "reason", "in words, such as that the embedding server asks to slow down", "", false},
	{"Delay", "next_at", "when it is tried again", "", false},
	{"StatsAnswer", "buckets", "oldest first, the last one not over yet", "", true},
	{"StatsAnswer", "stages", "", "", true},
	{"StatsAnswer", "cost_per_second", "pages or their equivalent done in a second while anything ran; 0 when nothing did", "", false},
	{"StatsAnswer", "sampled", "more happened than was looked at: the newest was", "", false},
	{"StatsAnswer", "bucket_minutes", "that each bucket counts", "", false},
	{"StatsBucket", "tasks", "done", "", false},
	{"StatsBucket", "failed", "attempts that failed, were lost or were the last", "", false},
	{"StatsBucket", "cost", "of the tasks that were done", "", false},
	{"StatsBucket", "stage_ms", "time of the tasks that were done, by stage, in milliseconds", "", false},
	{"Webhook WebhookMade", "events", "what is told; empty: everything", "", true},
	{"Webhook WebhookMade", "secret", "key of the signature, whsec_ and base64; shown once, when the webhook is made", "", false},
	{"Webhook WebhookMade", "failures", "attempts in a row that failed", "", false},
	{"Delivery", "event_id", "the webhook-id header: the same in every attempt and replay", "", false},
	{"Delivery", "state", "", "pending,delivered,dead", false},
	{"Delivery", "status", "HTTP status of the last answer", "", false},
	{"Receipt", "kind", "", "documents,dataset,members", false},
	{"Receipt", "state", "", "pending,completed", false},
	{"Receipt", "document_ids", "", "", true},
	{"Receipt", "kept", "", "", true},
	{"KeptCopy", "reason", "", "same_bytes,same_ranges,in_archive", false},
	{"ReceiptDocument", "kept", "", "", true},
	{"Cleaned", "events", "events that are removed", "", false},
	{"Cleaned", "jobs", "jobs that no document has anything left of, and that are older by `keeper.keep_history` than what goes", "", false},
	{"Comparison", "from", "the older version", "", false},
	{"Comparison", "to", "the newer version", "", false},
	{"DatasetChange", "name", "unique; usable in place of the id", "", false},
	{"Dataset Document DocumentAnswer", "attributes", "what programs store with it; Sheaf does not read them", "", false},
	{"Delivery", "data", "the message as it is sent", "", false},
	{"Dependency", "ok", "it answers", "", false},
	{"DirectUpload", "method", "of HTTP, that sends the bytes", "", false},
	{"Edit EditHistory EditVersion AppliedEdit", "version", "of the edit, from 1: each change makes one", "", false},
	{"EditVersion", "deleted", "the chunk is neither listed nor found", "", false},
	{"EmbedAnswer", "data", "one vector for each text", "", false},
	{"Estimate", "to", "name of the new model", "", false},
	{"Fairness", "index", "1 when all got the same, over their weights; 1/n when one of n got everything", "", false},
	{"Flow", "mode", "auto, whole or nodes: whether nodes have tasks of their own", "", false},
	{"Flow", "node", "the nodes", "", false},
	{"Flow", "scope", "document, so far", "", false},
	{"FlowAnswer FlowListed", "nodes", "how many nodes it has", "", false},
	{"FlowAnswer FlowListed", "version", "from 1; a version never changes", "", false},
	{"FlowDecision", "kinds", "of the nodes, in their order", "", false},
	{"FlowDecision", "last", "nodes that run over the whole document, after its ranges", "", false},
	{"FlowDecision", "mode", "whole: one task a range runs all nodes; nodes: nodes have tasks of their own", "", false},
	{"FlowDecision", "nodes", "in the order in which they run", "", false},
	{"FlowDecision", "ref", "name and version of the flow", "", false},
	{"FlowDecision", "skipped", "why a node does not run, by its id", "", false},
	{"FlowDecision", "tasks", "nodes that have tasks of their own", "", false},
	{"FlowDiff", "to", "the newer version", "", false},
	{"FlowsDeleted", "deleted", "the versions, as name@version", "", false},
	{"Job", "kind", "such as ingest, reparse or retry", "", false},
	{"Job", "name", "what was asked for, or its first files", "", false},
	{"Job", "state", "that of its documents together", "", false},
	{"JobStage StageStats StageTime", "name", "of the stage", "", false},
	{"JobStatistics", "deleted", "documents that were deleted", "", false},
	{"JobStatistics", "modified", "documents with other bytes than before", "", false},
	{"JobStatistics", "new", "documents that were not there", "", false},
	{"JobStatistics", "unchanged", "documents with the bytes of before", "", false},
	{"Key CreatedKey ChangedKey", "name", "what the key is used for", "", false},
	{"LedgerCounts", "skipped", "units that were left out", "", false},
	{"LedgerRun", "status", "", "ok,ocr,blank,skipped,failed", false},
	{"MigrateInBody", "action", "start fills a new index; switch lets searches use it, rollback takes that back and confirm drops the old one; dedicate gives a tenant its own index and share takes it back", "", false},
	{"Node", "from", "ids of the nodes whose output it takes", "", false},
	{"Node", "id", "unique within the flow", "", false},
	{"Node", "kind", "what it does, such as parse or chunk", "", false},
	{"NodeOutput", "failed", "the node failed, and its default stands for the output", "", false},
	{"NodeOutput", "incomplete", "made of inputs of which some are missing", "", false},
	{"NodeOutput", "skipped", "why the node did not run", "", false},
	{"Problem", "retryable", "the same request may pass when it is sent again", "", false},
	{"Protection", "name", "such as seccomp or landlock", "", false},
	{"Rejected", "name", "of the file", "", false},
	{"RemovedRows", "events", "what happened to the documents", "", false},
	{"RemovedRows", "tasks", "tasks of the documents", "", false},
	{"RunNode", "id", "of the node", "", false},
	{"SearchPart", "value", "of the feature", "", false},
	{"SearchRequest", "mode", "by words, by meaning, or both", "", false},
	{"SearchRequest", "datasets", "names or ids; empty: all", "", false},
	{"SearchRequest", "explain", "say why each hit stands where it stands", "", false},
	{"SearchRequest", "group_by", "document: the best hits of each document stand together", "", false},
	{"SearchRequest", "group_size", "most hits of each group, with group_by", "", false},
	{"SearchRequest", "limit", "most hits", "", false},
	{"SearchRequest", "threshold", "hits below this score are left out", "", false},
	{"SearchRequest", "vector_weight", "of meaning beside words, 0–1", "", false},
	{"SearchFilter", "metadata", "keys with the values that must be there", "", false},
	{"SearchFilter", "languages", "ISO 639-1 codes, any of them", "", false},
	{"SearchFilter", "media_types", "such as application/pdf, any of them", "", false},
	{"SearchFilter", "tags", "any of them", "", false},
	{"SearchFilter", "pages", "only chunks on these", "", false},
	{"SearchFilter", "keywords", "any of them", "", false},
	{"SearchFilter SelectionFilter", "document_ids", "any of them", "", false},
	{"SearchRerankInfo", "outcome", "used, or why it was not", "", false},
	{"SearchResponse", "hits", "best first", "", false},
	{"SearchResponse", "index", "what was searched", "", false},
	{"SearchResponse", "rerank", "what the reranker did; absent where there is none", "", false},
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
	{"Task TaskHistory AnyTenantsTask", "warnings", "what did not stop it", "", false},
	{"Verified", "state", "of the receipt: pending or completed", "", false},
	{"Webhook WebhookMade WebhookChange", "enabled", "false: nothing is sent", "", false},
	{"WebhookChange", "events", "what is told; empty: everything", "", false},
	{"WorkerStatus", "running", "ids of the tasks that run", "", false},
	{"WorkerStatus DiagnosedExecutor", "version", "which build it is", "", false},
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
