package taskstore

import (
	"encoding/json"
	"time"
)

// FlowVersion is one version of a flow. It is immutable.
type FlowVersion struct {
	TenantID  string
	Name      string
	Version   int             // from 1; numbers are never reused
	Digest    string          // of Body, 16 hex
	Body      json.RawMessage // the flow in canonical form
	CreatedAt time.Time
}

// MaxFlowVersions bounds the versions of all flows of a tenant together.
const MaxFlowVersions = 2000
