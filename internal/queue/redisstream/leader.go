package redisstream

import (
	"context"
	"time"

	"sheaf/internal/queue"
)

// Leader campaigns for the named lease in the queue's Redis. Its times may be
// changed before it runs.
func (q *Queue) Leader(name string) *queue.Campaign {
	return &queue.Campaign{Lock: lock{q.main, name}, Name: name, Log: q.cfg.Log}
}

// lock is a queue.Lock over a key with a time to live.
type lock struct {
	*shard
	name string
}

func (l lock) Acquire(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	won, err := leaderAcquireScript.Run(ctx, l.client, []string{l.keys.leader(l.name), l.keys.term(l.name)}, token, ttl.Milliseconds()).Int()
	return won == 1, wrap(ctx, "acquire lease", err)
}

func (l lock) Renew(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	held, err := leaderRenewScript.Run(ctx, l.client, []string{l.keys.leader(l.name)}, token, ttl.Milliseconds()).Int()
	return held == 1, wrap(ctx, "renew lease", err)
}

func (l lock) Release(ctx context.Context, token string) error {
	return wrap(ctx, "resign lease", leaderResignScript.Run(ctx, l.client, []string{l.keys.leader(l.name)}, token).Err())
}
