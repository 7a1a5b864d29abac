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

// services holds the breakers for services that flow nodes call: one per tenant,
// flow, node and host, shared by all tasks of the process. An unavailable service of
// one tenant blocks no one else, and one node's use of a host says nothing about
// another node's.
type services struct {
	mu       sync.Mutex
	breakers map[string]*serviceBreaker
}

type serviceBreaker struct {
	*worker.Breaker
	used time.Time
}

const (
	maxServices   = 1000            // maximum breakers held; beyond it the least recently used is dropped
	serviceRest   = 5 * time.Minute // longest rest of a service before the next try
	nodeTime      = 5 * time.Minute // per attempt at a node without a timeout that calls a service; nodeAskedTime if it calls a model
	nodeAskedTime = 10 * time.Minute
)

// of returns the breaker of a node's service.
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

// poster returns the function a node calls a service with. A call that was made and
// failed costs its task an attempt, so that a service that never recovers ends in a
// failure; one that the breaker rejects costs nothing.
func (e *Executor) poster(t *sheaf.Task, ref string, n *flow.Node) func(ctx context.Context, address, id string, body []byte, maxAnswer int64) ([]byte, error) {
	return func(ctx context.Context, address, id string, body []byte, maxAnswer int64) (answer []byte, err error) {
		host, err := e.cfg.Services.Check(address)
		if err != nil {
			return nil, sheaf.Fail(sheaf.CategoryPolicy, "service_not_allowed", "The node %s: %v.", n.ID, err)
		}
		worker.Yield(ctx) // users' services take as long as they like
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

// asker returns the function a document's node asks the language model with. Answers
// are cached as runs over datasets do: by question, for the whole tenant, until the
// documents are deleted. nil without a model. used returns what was paid for.
func (e *Executor) asker(t *sheaf.Task, version int) (ask func(ctx context.Context, instruction, text string, maxTokens int) (string, error), used func() taskstore.RunProgress) {
	if e.cfg.Chat == nil || e.cfg.RunStore == nil {
		return nil, func() taskstore.RunProgress { return taskstore.RunProgress{} }
	}
	r := &DatasetRun{DatasetRun: taskstore.DatasetRun{ID: t.ID, TenantID: t.TenantID, Kind: sheaf.KindDataflow}, e: e, claim: t.Held(), until: time.Now().Add(24 * time.Hour), node: true}
	return func(ctx context.Context, instruction, text string, maxTokens int) (string, error) {
		worker.Yield(ctx)
		answer, err := r.Ask(ctx, Question{Documents: []string{t.DocumentID}, Instruction: instruction, Text: text, MaxTokens: maxTokens, Version: version})
		if errors.Is(err, ErrDocumentGone) {
			return "", sheaf.Fail(sheaf.CategoryCanceled, "canceled", "The document was deleted while a model was asked about it.")
		}
		return answer, err
	}, r.Progress
}
