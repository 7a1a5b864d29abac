package api

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
	"sheaf/ingest"
	"sheaf/taskstore"
)

// DeadQuery selects dead tasks.
type DeadQuery struct {
	ListInput
	Kind     string `query:"kind" enum:"plan,parse,index,finalize,raptor,graphrag,mindmap,dataflow,gc" doc:"of task"`
	Code     string `query:"code" doc:"of the failure, such as parse_timeout"`
	Category string `query:"category" enum:"policy,capacity,bad_input,encrypted,source_unavailable,target_unavailable,timeout,parser_crash,canceled,internal" doc:"class of the failure"`
	Document string `query:"document"`
	Job      string `query:"job"`
}

func (q *DeadQuery) filter() taskstore.DeadLetterFilter {
	return taskstore.DeadLetterFilter{Kind: sheaf.TaskKind(q.Kind), Code: q.Code, Category: sheaf.Category(q.Category), DocumentID: q.Document, JobID: q.Job}
}

// AnyTenantsTask is a task with its owner, for operators.
type AnyTenantsTask struct {
	TenantID string `json:"tenant_id"`
	Task
}

// AnyTenantsDeadSelection is DeadSelection over all tenants, or one.
type AnyTenantsDeadSelection struct {
	DeadSelection
	Tenant Given `json:"tenant_id,omitempty" minLength:"1" maxLength:"64" doc:"only this tenant's"`
}

// CleanUpRequest says how old data must be to be removed.
type CleanUpRequest struct {
	Retention int64 `json:"retention_seconds,omitempty" minimum:"3600" maximum:"315360000" default:"604800" doc:"minimum age to remove"`
	DryRun    bool  `json:"dry_run,omitempty" doc:"count and change nothing"`
}

// deadLetterRoutes registers each route twice: for the key's tenant, and under
// /v1/admin for all tenants.
func (s *Server) deadLetterRoutes() {
	retry := func(ctx context.Context, tenantID string, f taskstore.DeadLetterFilter) (*output[Count], error) {
		ctx, cancel := ingest.Lasting(ctx)
		defer cancel()
		n, err := s.cfg.Catalog.RetryDead(ctx, tenantID, f)
		if err == nil && n > 0 && !f.DryRun {
			s.cfg.Ingest.Wake(ctx)
		}
		return &output[Count]{Count{n, f.DryRun}}, err
	}
	purge := func(ctx context.Context, tenantID string, f taskstore.DeadLetterFilter) (*output[Count], error) {
		n, err := s.cfg.Catalog.PurgeDead(ctx, tenantID, f)
		return &output[Count]{Count{n, f.DryRun}}, err
	}
	type action = func(ctx context.Context, tenantID string, f taskstore.DeadLetterFilter) (*output[Count], error)

	handle(s, get("/v1/dead-letters", "List tasks that will not be retried"), func(ctx context.Context, in *DeadQuery) (*output[List[Task]], error) {
		ts, next, err := s.cfg.Catalog.DeadLetters(ctx, tenantOf(ctx), in.filter(), in.page())
		return listOf(tasksOf(ts), next), err
	})
	own := func(op huma.Operation, do action) {
		handle(s, op, func(ctx context.Context, in *struct {
			DryRunParam
			Body DeadSelection
		}) (*output[Count], error) {
			f, err := in.Body.tasks("")
			if err != nil {
				return nil, err
			}
			f.DryRun = in.DryRun || in.Body.DryRun
			return do(ctx, tenantOf(ctx), f)
		})
	}
	own(post("/v1/dead-letters:retry", "Give dead tasks a new budget"), retry)
	own(post("/v1/dead-letters:purge", "Remove dead tasks"), purge)

	all := func(f taskstore.DeadLetterFilter) taskstore.DeadLetterFilter { f.AllTenants = true; return f }
	type anyQuery struct {
		DeadQuery
		Tenant string `query:"tenant" doc:"only this tenant's"`
	}
	handle(s, needs(get("/v1/admin/dead-letters", "List dead tasks of all tenants"), scopeAdmin), func(ctx context.Context, in *anyQuery) (*output[List[AnyTenantsTask]], error) {
		ts, next, err := s.cfg.Catalog.DeadLetters(ctx, in.Tenant, all(in.filter()), in.page())
		out := make([]AnyTenantsTask, len(ts))
		for i := range ts {
			out[i] = AnyTenantsTask{ts[i].TenantID, taskOf(&ts[i])}
		}
		return listOf(out, next), err
	})
	type one struct {
		Tenant string `path:"tenant" maxLength:"64"`
		Task   string `path:"task" maxLength:"64"`
	}
	handle(s, needs(get("/v1/admin/tenants/{tenant}/tasks/{task}", "Read any tenant's task with its history"), scopeAdmin), func(ctx context.Context, in *one) (*output[TaskHistory], error) {
		return s.taskHistory(ctx, in.Tenant, in.Task)
	})
	anyones := func(op huma.Operation, do action) {
		handle(s, needs(op, scopeAdmin), func(ctx context.Context, in *struct {
			DryRunParam
			Body AnyTenantsDeadSelection
		}) (*output[Count], error) {
			f, err := in.Body.tasks(string(in.Body.Tenant))
			if err != nil {
				return nil, err
			}
			f.DryRun = in.DryRun || in.Body.DryRun
			return do(ctx, string(in.Body.Tenant), all(f))
		})
	}
	anyones(post("/v1/admin/dead-letters:retry", "Give dead tasks of any tenant a new budget"), retry)
	anyones(post("/v1/admin/dead-letters:purge", "Remove dead tasks of any tenant"), purge)

	handle(s, needs(post("/v1/admin/cleanup", "Remove old events and tasks of old generations"), scopeAdmin), func(ctx context.Context, in *struct {
		DryRunParam
		Body CleanUpRequest
	}) (*output[Cleaned], error) {
		ctx, cancel := context.WithTimeout(ctx, cleanupPatience)
		defer cancel()
		dry := in.DryRun || in.Body.DryRun
		sum, more, err := taskstore.CleanUp(ctx, s.cfg.Catalog, time.Duration(in.Body.Retention)*time.Second, cleanupRounds, dry)
		return &output[Cleaned]{Cleaned{CleanupReport: sum, More: more, DryRun: dry}}, err
	})
}

// A request cleans up for at most cleanupPatience, and removes at most
// cleanupRounds thousand rows of each kind.
const (
	cleanupPatience = 20 * time.Second
	cleanupRounds   = 100
)

// Cleaned reports what a cleanup removed.
type Cleaned struct {
	taskstore.CleanupReport
	More   bool `json:"more,omitempty" doc:"there is more to remove: repeat the request"`
	DryRun bool `json:"dry_run,omitempty" doc:"nothing was changed, only counted"`
}

// Try is one attempt at a task, from its claim to its end.
type Try struct {
	Epoch     int64          `json:"epoch"`
	Worker    string         `json:"worker"`
	StartedAt time.Time      `json:"started_at"`
	EndedAt   time.Time      `json:"ended_at,omitzero"`
	Outcome   string         `json:"outcome,omitempty" doc:"done, failed, dead, lost, released, snoozed, canceled or superseded; empty while it runs"`
	Text      string         `json:"text,omitempty"`
	Failure   *sheaf.Failure `json:"failure,omitempty" doc:"detail holds the last lines of the parser or the stack"`
	// Output is from pages that failed individually while the rest were read.
	Output []sheaf.UnitOutput `json:"output,omitempty" doc:"the last lines of the parser on each page that it failed on, if others were read"`
}

// triesOf groups a task's history, oldest first, into attempts. An event that ends
// an attempt from outside is recorded under the next epoch.
func triesOf(events []sheaf.Event) []Try {
	out := []Try{}
	for _, e := range events {
		if e.Kind == sheaf.EventClaimed {
			out = append(out, Try{Epoch: e.Epoch, Worker: e.Worker, StartedAt: e.At})
			continue
		}
		if len(out) == 0 {
			continue
		}
		last := &out[len(out)-1]
		over := !last.EndedAt.IsZero()
		switch e.Kind {
		case sheaf.EventOutput:
			var o sheaf.UnitOutput
			if json.Unmarshal(e.Detail, &o) == nil && !over {
				last.Output = append(last.Output, o)
			}
			continue
		case sheaf.EventProgress, sheaf.EventMessage, sheaf.EventRetried, sheaf.EventDocument:
			continue
		}
		if over && !(e.Kind == sheaf.EventDead && e.At.Equal(last.EndedAt)) {
			continue // canceled or purged while it waited: not part of an attempt
		}
		last.EndedAt, last.Outcome, last.Text = e.At, e.Kind, e.Text
		if len(e.Detail) > 0 && (e.Kind == sheaf.EventFailed || e.Kind == sheaf.EventDead) {
			var f sheaf.Failure
			if json.Unmarshal(e.Detail, &f) == nil && f.Code != "" {
				last.Failure = &f
			}
		}
	}
	return out
}

// contentPath returns the URL path of the bytes the task read, or "" if it read
// none.
func contentPath(t *sheaf.Task) string {
	if t.DatasetID == "" || t.DocumentID == "" {
		return ""
	}
	return "/v1/datasets/" + url.PathEscape(t.DatasetID) + "/documents/" + url.PathEscape(t.DocumentID) + "/content"
}
