package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/flow"
	"sheaf/internal/webhook"
	"sheaf/internal/worker"
	"sheaf/taskstore"
)

// services are the breakers before what nodes of flows call: one for each tenant,
// flow, node and host, shared by all tasks of the process. A service of one
// tenant that is away holds up nobody else, and what a node asks of a host says
// nothing of another node there.
type services struct {
	mu       sync.Mutex
	breakers map[string]*serviceBreaker
}

type serviceBreaker struct {
	*worker.Breaker
	used time.Time
}

const (
	maxServices   = 1000            // breakers that are held; beyond it the one that was used longest ago is forgotten
	serviceRest   = 5 * time.Minute // longest rest of a service: a try each so often
	nodeTime      = 5 * time.Minute // of an attempt of a node that calls a service or a model and has no timeout
	nodeAskedTime = 10 * time.Minute
)

// of finds the breaker of a node's service.
func (s *services) of(e *Executor, t *sheaf.Task, ref, node, host string) *worker.Breaker {
	key := fmt.Sprintf("%s\x00%s\x00%s\x00%s", t.TenantID, ref, node, host)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.breakers[key]
	if b == nil {
		if len(s.breakers) >= maxServices {
			oldest := ""
			for k, o := range s.breakers {
				if oldest == "" || o.used.Before(s.breakers[oldest].used) {
					oldest = k
				}
			}
			delete(s.breakers, oldest)
		}
		b = &serviceBreaker{Breaker: worker.NewBreaker(fmt.Sprintf("service %s of the node %s", host, node), e.cfg.Log, nil)}
		b.LongestRest = serviceRest
		s.breakers[key] = b
	}
	b.used = time.Now()
	return b.Breaker
}

// poster is how a node calls a service. A call that was made and failed costs its
// task an attempt, so that a service that never comes back ends in a failure; one
// that the breaker turns back costs nothing.
func (e *Executor) poster(t *sheaf.Task, ref string, n *flow.Node) func(ctx context.Context, address, id string, body []byte, maxAnswer int64) ([]byte, error) {
	return func(ctx context.Context, address, id string, body []byte, maxAnswer int64) (answer []byte, err error) {
		host, err := e.cfg.Services.Check(address)
		if err != nil {
			return nil, sheaf.Fail(sheaf.CategoryPolicy, "service_not_allowed", "The node %s: %v.", n.ID, err)
		}
		made := false
		var failed error
		turned := e.services.of(e, t, ref, n.ID, host).Do(ctx, func() error {
			made = true
			answer, failed = e.cfg.Services.Post(ctx, webhook.Call{URL: address, ID: id, Body: body, MaxAnswer: maxAnswer})
			return failed
		})
		if !made {
			return nil, turned
		}
		return answer, failed
	}
}

// asker asks the language model for a node of a document, and keeps what it says
// as runs over datasets do: by what was asked, for all of the tenant, until the
// documents are deleted. nil without a model. used counts what was paid for.
func (e *Executor) asker(t *sheaf.Task, version int) (ask func(ctx context.Context, instruction, text string, maxTokens int) (string, error), used func() taskstore.RunProgress) {
	if e.cfg.Chat == nil || e.cfg.RunStore == nil {
		return nil, func() taskstore.RunProgress { return taskstore.RunProgress{} }
	}
	r := &DatasetRun{DatasetRun: taskstore.DatasetRun{ID: t.ID, TenantID: t.TenantID, Kind: sheaf.KindDataflow}, e: e, claim: t.Held(), until: time.Now().Add(24 * time.Hour), node: true}
	return func(ctx context.Context, instruction, text string, maxTokens int) (string, error) {
		answer, err := r.Ask(ctx, Question{Documents: []string{t.DocumentID}, Instruction: instruction, Text: text, MaxTokens: maxTokens, Version: version})
		if errors.Is(err, ErrDocumentGone) {
			return "", sheaf.Fail(sheaf.CategoryCanceled, "canceled", "the document was deleted while a model was asked about it")
		}
		return answer, err
	}, r.Progress
}
