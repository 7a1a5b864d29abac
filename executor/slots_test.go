package executor

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/enrich"
)

// slowModel is a language model that takes 5 s per question.
type slowModel struct {
	enrich.Asker
	asked map[string]int // questions by text
	mu    sync.Mutex
}

func (m *slowModel) Ask(ctx context.Context, _, text string, _ int) (string, error) {
	m.mu.Lock()
	m.asked[text]++
	m.mu.Unlock()
	select {
	case <-time.After(5 * time.Second):
		return "answer", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// The questions of a tenant with one document wait for one question of a tenant with
// many tasks, and not for all. What is no task's waits for nobody's turn.
func TestQuestionsToTheModelAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &slowModel{asked: map[string]int{}}
		c := Config{Chat: m, ChatSlots: 2}
		guard(&c, slog.New(slog.DiscardHandler), nil)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				for ctx.Err() == nil {
					_, _ = c.Chat.Ask(ofTask(ctx, &sheaf.Task{TenantID: "many"}), "", "many", 1)
				}
			})
		}
		time.Sleep(time.Minute)
		begun := time.Now()
		const questions = 10
		for range questions {
			if _, err := c.Chat.Ask(ofTask(ctx, &sheaf.Task{TenantID: "one"}), "", "one", 1); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took > questions*2*5*time.Second {
			t.Errorf("%d questions took %s", questions, took)
		}
		begun = time.Now()
		if _, err := c.Chat.Ask(ctx, "", "ping", 1); err != nil || time.Since(begun) > 5*time.Second {
			t.Errorf("a ping took %s: %v", time.Since(begun), err)
		}
		stop()
		all.Wait()
		if m.asked["many"] < 20 {
			t.Errorf("the others were asked for %d times", m.asked["many"])
		}
	})
}
