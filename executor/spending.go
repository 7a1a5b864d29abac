package executor

import (
	"context"
	"fmt"
	"time"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/enrich"
	"sheaf/taskstore"
)

// Budget caps documents' spending on the language model, in tokens of questions and
// answers; 0 for no cap. Runs over datasets have their own.
type Budget struct {
	Run int64 // per version of a document
	Day int64 // per tenant and UTC day
}

// SpendStore records spending.
type SpendStore interface {
	Spend(ctx context.Context, tenantID string, on []taskstore.Spending, tokens int64) (full string, err error)
}

// parkedFor is how long a task waits when its tenant or document is at its cap. No
// attempt is counted: it continues once the cap is raised or the day is over.
const parkedFor = 20 * time.Second

type taskKey struct{}

// ofTask has what is asked under the context count as the task's: against its caps,
// and in its tenant's turn.
func ofTask(ctx context.Context, t *sheaf.Task) context.Context {
	return context.WithValue(ctx, taskKey{}, t)
}

// taskOf returns the context's task, nil for none.
func taskOf(ctx context.Context) *sheaf.Task {
	t, _ := ctx.Value(taskKey{}).(*sheaf.Task)
	return t
}

// spendingChat asks a language model within the budget. Tokens are reserved before a
// question is asked, so that concurrent callers do not exceed a cap together; a
// process that dies in between has spent what it reserved.
type spendingChat struct {
	enrich.Asker
	store  SpendStore
	budget Budget
}

// Ask implements enrich.Asker.
func (c spendingChat) Ask(ctx context.Context, instruction, text string, maxTokens int) (string, error) {
	t := taskOf(ctx)
	if t == nil || t.DocumentID == "" || c.budget == (Budget{}) { // runs over datasets have their own
		return c.Asker.Ask(ctx, instruction, text, maxTokens)
	}
	run := taskstore.VersionSpending(t.DocumentID, t.Generation, c.budget.Run)
	on := []taskstore.Spending{run, {Name: "day/" + time.Now().UTC().Format(time.DateOnly), Cap: c.budget.Day}}
	prompt := int64(chunker.CountTokens(instruction) + chunker.CountTokens(text))
	full, err := c.store.Spend(ctx, t.TenantID, on, prompt+int64(maxTokens))
	if err != nil {
		return "", fmt.Errorf("reserving tokens: %w", err)
	}
	if full != "" {
		code, what := taskstore.DayBudgetSpent, fmt.Sprintf("its %d tokens of a day, and goes on tomorrow or when flow.max_tokens_day or flow.max_price_day is raised", c.budget.Day)
		if full == run.Name {
			code, what = taskstore.BudgetSpent, fmt.Sprintf("the cap of tokens of a run (flow.max_tokens and flow.max_price allow %d), and goes on when that of the document is raised (sheaf doc resume DOCUMENT --max-tokens NUMBER), or those are", c.budget.Run)
		}
		return "", fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryPolicy, code, "The next question to the language model exceeds the budget: this waits at %s. What was answered is kept.", what), &sheaf.RateLimited{After: parkedFor})
	}
	answer, err := c.Asker.Ask(ctx, instruction, text, maxTokens)
	cost := int64(0)
	if err == nil {
		cost = prompt + int64(chunker.CountTokens(answer))
	}
	// Even if the task is canceled now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, failed := c.store.Spend(ctx, t.TenantID, on, cost-prompt-int64(maxTokens)); failed != nil && err == nil {
		return answer, nil // more is counted than was spent, but the answer is paid for
	}
	return answer, err
}
