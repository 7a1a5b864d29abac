package api

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
	"sheaf/internal/buildinfo"
	"sheaf/taskstore"
)

// Bounds of one record: about 100 MB at worst.
const (
	diagnosedDocuments = 200
	diagnosedTasks     = 20_000
	diagnosedEvents    = 50_000
	diagnosedPage      = 3000 // events per read
)

// Diagnostics is the flight record of a job or a document: everything known about
// its run, and nothing of its content. Names, texts, metadata and the parser's own
// output may quote a document and are omitted.
type Diagnostics struct {
	What         string                `json:"what" doc:"what the record holds and omits"`
	MadeAt       time.Time             `json:"made_at"`
	Server       buildinfo.Info        `json:"server"`
	Job          *sheaf.Job            `json:"job,omitempty" doc:"when the record is of a job"`
	Dependencies map[string]Dependency `json:"dependencies"`
	Executors    []DiagnosedExecutor   `json:"executors" nullable:"false"`
	Documents    []DiagnosedDocument   `json:"documents" nullable:"false" doc:"at most 200, oldest first"`
	Tasks        []Task                `json:"tasks" nullable:"false" doc:"of the newest generation, at most 20,000"`
	Events       []DiagnosedEvent      `json:"events" nullable:"false" doc:"at most 50,000, oldest first"`
	Truncated    bool                  `json:"truncated" doc:"there is more than the record holds"`
}

// DiagnosedExecutor is a live executor.
type DiagnosedExecutor struct {
	ID        string    `json:"id"`
	Version   string    `json:"version"`
	Slots     int       `json:"slots"`
	RSSBytes  int64     `json:"rss_bytes"`
	StartedAt time.Time `json:"started_at"`
}

// DiagnosedDocument is a document without its content.
type DiagnosedDocument struct {
	ID             string              `json:"id"`
	MediaType      string              `json:"media_type"`
	Size           int64               `json:"size" doc:"bytes"`
	State          sheaf.DocumentState `json:"state"`
	Progress       float64             `json:"progress"`
	Unit           sheaf.Unit          `json:"unit,omitempty"`
	Units          int                 `json:"units"`
	Generation     int                 `json:"generation"`
	LiveGeneration int                 `json:"live_generation"`
	Chunks         int                 `json:"chunks"`
	Tokens         int                 `json:"tokens"`
	Ledger         sheaf.LedgerCounts  `json:"ledger"`
	Parser         string              `json:"parser,omitempty"`
	ParseConfig    sheaf.ParseConfig   `json:"parser_config"`
	Failure        *sheaf.Failure      `json:"failure,omitempty" doc:"without its words"`
	Warnings       []DiagnosedWarning  `json:"warnings" nullable:"false"`
	JobID          string              `json:"job_id,omitempty"`
	Lane           sheaf.Lane          `json:"lane"`
	CreatedAt      time.Time           `json:"created_at"`
	StartedAt      time.Time           `json:"started_at,omitzero"`
	FinishedAt     time.Time           `json:"finished_at,omitzero"`
}

// DiagnosedWarning is a warning without its message.
type DiagnosedWarning struct {
	Code string `json:"code"`
	Page int    `json:"page,omitempty"`
}

// DiagnosedEvent is an event without its message.
type DiagnosedEvent struct {
	Seq        int64          `json:"seq"`
	At         time.Time      `json:"at"`
	Kind       string         `json:"kind"`
	Level      string         `json:"level,omitempty"`
	JobID      string         `json:"job_id,omitempty"`
	DocumentID string         `json:"document_id,omitempty"`
	Generation int            `json:"generation,omitempty"`
	TaskID     string         `json:"task_id,omitempty"`
	Epoch      int64          `json:"epoch,omitempty"`
	Worker     string         `json:"worker,omitempty"`
	Detail     map[string]any `json:"detail,omitempty" doc:"stage, done and total of progress; state and progress of a document"`
}

func (s *Server) diagnosticsRoutes() {
	describe := func(path, summary string) huma.Operation {
		op := get(path, summary)
		op.Description = "The flight record: versions, dependencies, executors, documents, tasks and events, to attach to a report. It has no names, texts or metadata of documents and no parser output."
		return op
	}
	handle(s, describe("/v1/jobs/{job}/diagnostics", "Read all that is known of a job's run"), func(ctx context.Context, in *JobPath) (*output[*Diagnostics], error) {
		job, err := s.cfg.Ingest.Job(ctx, tenantOf(ctx), in.Job)
		if err != nil {
			return nil, err
		}
		docs, next, err := s.cfg.Catalog.JobDocuments(ctx, tenantOf(ctx), in.Job, taskstore.Page{Limit: diagnosedDocuments, Ascending: true})
		if err != nil {
			return nil, err
		}
		job.Name = "" // contains file names
		d := &Diagnostics{Job: job, Truncated: next != ""}
		return s.diagnose(ctx, d, docs, taskstore.EventFilter{JobID: job.ID})
	})
	handle(s, describe("/v1/datasets/{ds}/documents/{doc}/diagnostics", "Read all that is known of a document's run"), func(ctx context.Context, in *DocumentPath) (*output[*Diagnostics], error) {
		doc, err := s.document(ctx, *in)
		if err != nil {
			return nil, err
		}
		return s.diagnose(ctx, &Diagnostics{}, []sheaf.Document{*doc}, taskstore.EventFilter{DocumentID: doc.ID})
	})
}

// diagnose fills in a record from documents and the events of one subject.
func (s *Server) diagnose(ctx context.Context, d *Diagnostics, docs []sheaf.Document, of taskstore.EventFilter) (*output[*Diagnostics], error) {
	d.What = "Sheaf flight record; holds no document text, names or metadata"
	d.MadeAt, d.Server = time.Now().UTC(), s.cfg.Build
	d.Documents, d.Tasks, d.Events, d.Executors = []DiagnosedDocument{}, []Task{}, []DiagnosedEvent{}, []DiagnosedExecutor{}
	for i := range docs {
		public(&docs[i])
		d.Documents = append(d.Documents, diagnosedDocument(&docs[i]))
		tasks, err := s.cfg.Catalog.Tasks(ctx, tenantOf(ctx), docs[i].ID, 0)
		if err != nil {
			return nil, fmt.Errorf("the tasks of document %s: %w", docs[i].ID, err)
		}
		for j := range tasks {
			if of.JobID != "" && tasks[j].JobID != of.JobID {
				continue
			}
			if len(d.Tasks) == diagnosedTasks {
				d.Truncated = true
				break
			}
			d.Tasks = append(d.Tasks, diagnosedTask(&tasks[j]))
		}
	}
	for after := int64(0); ; {
		events, err := s.cfg.Catalog.Events(ctx, tenantOf(ctx), of, after, diagnosedPage)
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			break
		}
		after = events[len(events)-1].Seq
		for i := range events {
			if events[i].Kind == sheaf.EventOutput {
				continue
			}
			if len(d.Events) == diagnosedEvents {
				d.Truncated = true
				break
			}
			d.Events = append(d.Events, diagnosedEvent(&events[i]))
		}
		if len(d.Events) == diagnosedEvents {
			d.Truncated = true
			break
		}
	}
	workers, err := s.cfg.Catalog.Workers(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range workers {
		d.Executors = append(d.Executors, DiagnosedExecutor{ID: w.ID, Version: w.Version, Slots: w.Slots, RSSBytes: w.RSSBytes, StartedAt: w.StartedAt})
	}
	d.Dependencies = s.dependencies(ctx)
	return &output[*Diagnostics]{d}, nil
}

// dependencies returns the state of each dependency without its error, which may
// name hosts.
func (s *Server) dependencies(ctx context.Context) map[string]Dependency {
	if s.cfg.Health == nil {
		return map[string]Dependency{}
	}
	out := s.cfg.Health.Look(ctx, RoleAll).Dependencies
	for name, d := range out {
		d.Error = ""
		out[name] = d
	}
	return out
}

func diagnosedDocument(d *sheaf.Document) DiagnosedDocument {
	return DiagnosedDocument{
		ID: d.ID, MediaType: d.MediaType, Size: d.Size, State: d.State, Progress: d.Progress, Unit: d.Unit, Units: d.Units, Generation: d.Generation,
		LiveGeneration: d.LiveGeneration, Chunks: d.Chunks, Tokens: d.Tokens, Ledger: d.Ledger, Parser: d.Parser, ParseConfig: d.ParseConfig,
		Failure: wordless(d.Failure), Warnings: diagnosedWarnings(d.Warnings), JobID: d.JobID, Lane: d.Lane,
		CreatedAt: d.CreatedAt, StartedAt: d.StartedAt, FinishedAt: d.FinishedAt,
	}
}

func diagnosedTask(t *sheaf.Task) Task {
	out := taskOf(t)
	out.Failure, out.Warnings, out.Ledger = wordless(t.Failure), nil, nil
	for _, w := range t.Result.Warnings {
		out.Warnings = append(out.Warnings, sheaf.Warning{Code: w.Code, Page: w.Page})
	}
	for _, r := range t.Result.Ledger {
		r.Message = ""
		out.Ledger = append(out.Ledger, r)
	}
	return out
}

func diagnosedEvent(e *sheaf.Event) DiagnosedEvent {
	out := DiagnosedEvent{
		Seq: e.Seq, At: e.At, Kind: e.Kind, Level: e.Level, JobID: e.JobID, DocumentID: e.DocumentID, Generation: e.Generation,
		TaskID: e.TaskID, Epoch: e.Epoch, Worker: e.Worker,
	}
	var detail map[string]any
	if json.Unmarshal(e.Detail, &detail) == nil {
		for _, key := range []string{"stage", "done", "total", "state", "progress"} {
			if v, ok := detail[key]; ok {
				if out.Detail == nil {
					out.Detail = map[string]any{}
				}
				out.Detail[key] = v
			}
		}
	}
	return out
}

func diagnosedWarnings(ws []sheaf.Warning) []DiagnosedWarning {
	out := make([]DiagnosedWarning, len(ws))
	for i, w := range ws {
		out[i] = DiagnosedWarning{Code: w.Code, Page: w.Page}
	}
	return out
}

// wordless returns a failure without its message and detail.
func wordless(f *sheaf.Failure) *sheaf.Failure {
	if f == nil {
		return nil
	}
	return &sheaf.Failure{Code: f.Code, Category: f.Category, Retryable: f.Retryable, Phase: f.Phase, Page: f.Page, Range: f.Range, Attempt: f.Attempt}
}
