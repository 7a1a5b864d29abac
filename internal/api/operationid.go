package api

import (
	"net/http"
	"strings"
)

// operationIDs overrides what operationID would get wrong.
var operationIDs = map[string]string{
	"POST /v1/admin/cleanup":                                 "clean-up",
	"GET /v1/admin/dead-letters":                             "list-all-dead-letters",
	"POST /v1/admin/dead-letters:purge":                      "purge-all-dead-letters",
	"POST /v1/admin/dead-letters:retry":                      "retry-all-dead-letters",
	"GET /v1/admin/queues":                                   "list-all-queues",
	"GET /v1/admin/tenants/{tenant}/tasks/{task}":            "get-task-of-tenant",
	"DELETE /v1/admin/tenants/{tenant}/keys/{key}":           "revoke-key",
	"GET /v1/datasets/{ds}/documents/{doc}/compare":          "compare-versions",
	"GET /v1/datasets/{ds}/documents/{doc}/diagnostics":      "get-document-diagnostics",
	"GET /v1/datasets/{ds}/documents/{doc}/events":           "list-document-events",
	"GET /v1/datasets/{ds}/documents/{doc}/pages":            "get-pages",
	"GET /v1/datasets/{ds}/documents/{doc}/run":              "get-flow-run",
	"GET /v1/datasets/{ds}/documents/{doc}/run/nodes/{node}": "get-flow-run-node",
	"GET /v1/datasets/{ds}/documents/runs":                   "list-flow-runs",
	"GET /v1/datasets/{ds}/graph/entities":                   "find-entities",
	"POST /v1/datasets/{ds}/jobs":                            "open-job",
	"GET /v1/datasets/{ds}/receipts":                         "list-dataset-receipts",
	"POST /v1/datasets/{ds}/search":                          "search-dataset",
	"GET /v1/datasets/{ds}/webhooks/{webhook}/deliveries":    "list-deliveries",
	"POST /v1/datasets/{ds}/webhooks/{webhook}:replay":       "replay-deliveries",
	"POST /v1/doctor":                                        "run-doctor",
	"POST /v1/embeddings":                                    "create-embeddings",
	"GET /v1/flows/{flow}/diff":                              "compare-flow-versions",
	"GET /v1/flows/{flow}/versions":                          "list-flow-versions",
	"POST /v1/flows:validate":                                "validate-flow",
	"POST /v1/index/migration":                               "change-index-migration",
	"POST /v1/index/rebuild":                                 "rebuild-index",
	"GET /v1/jobs/{job}/diagnostics":                         "get-job-diagnostics",
	"GET /v1/jobs/{job}/documents":                           "list-job-documents",
	"GET /v1/jobs/{job}/errors":                              "list-job-errors",
	"GET /v1/jobs/{job}/events":                              "list-job-events",
	"GET /v1/receipts/{receipt}/documents":                   "list-receipt-documents",
	"POST /v1/receipts:verify":                               "verify-receipt",
	"POST /v1/search":                                        "search",
	"GET /v1/stats":                                          "get-stats",
	"POST /v1/queues:pause":                                  "pause-queue",
	"POST /v1/queues:resume":                                 "resume-queue",
}

// operationID names an operation for generated clients, such as list-documents,
// get-job and cancel-task.
func operationID(method, path string) string {
	if id, ok := operationIDs[method+" "+path]; ok {
		return id
	}
	parts := strings.Split(path, "/")
	last, verb, _ := strings.Cut(parts[len(parts)-1], ":")
	item := strings.HasPrefix(last, "{")
	if item {
		last = parts[len(parts)-2]
	}
	one := strings.TrimSuffix(last, "s")
	switch {
	case verb != "" && item:
		return verb + "-" + one
	case verb != "":
		return verb + "-" + last
	case method == http.MethodGet && !item && one != last:
		return "list-" + last
	case method == http.MethodGet:
		return "get-" + one
	case method == http.MethodPost:
		return "create-" + one
	case method == http.MethodPatch:
		return "update-" + one
	}
	return strings.ToLower(method) + "-" + one
}
