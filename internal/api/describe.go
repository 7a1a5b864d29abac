package api

import (
	"cmp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// property is what the description of the API says of a key beyond its type.
type property struct {
	schemas, key string // schemas separated by spaces
	text         string
	values       string // all that it can be, separated by commas
	list         bool   // never null
}

// properties are those of types that the API shows as they are stored; the
// types of the API itself have tags.
var properties = []property{
	{"Delay", "reason", "in words, such as that the embedding server asks to slow down", "", false},
	{"Delay", "next_at", "when it is tried again", "", false},
	{"StatsAnswer", "buckets", "one a minute, oldest first, the last one not over yet", "", true},
	{"StatsAnswer", "stages", "", "", true},
	{"StatsAnswer", "cost_per_second", "pages or their equivalent done in a second while anything ran; 0 when nothing did", "", false},
	{"StatsAnswer", "sampled", "more happened than was looked at: the newest was", "", false},
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
}

// describeProperties writes them into the schemas. A key that does not exist is
// an error of the table: it panics.
func describeProperties(schemas map[string]*huma.Schema) {
	for _, p := range properties {
		for name := range strings.FieldsSeq(p.schemas) {
			s := schemas[name].Properties[p.key]
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
