package redisstream

import (
	"context"
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

var (
	publishScript       = script("publish")
	activateScript      = script("activate")
	pickScript          = script("pick")
	settleScript        = script("settle")
	chargeScript        = script("charge")
	takeScript          = script("take")
	ackScript           = script("ack")
	doneScript          = script("done")
	dueScript           = script("due")
	searchedScript      = script("searched")
	dropConsumerScript  = script("dropConsumer")
	setShareScript      = script("setShare")
	leaderAcquireScript = script("leaderAcquire")
	leaderRenewScript   = script("leaderRenew")
	leaderResignScript  = script("leaderResign")
)

func script(name string) *redis.Script {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // the file is part of the binary
	}
	return redis.NewScript(string(text))
}

// call is one run of a script in a batch.
type call struct {
	keys []string
	args []any
}

// runAll runs a script for each call, in one round trip per Redis node, and returns
// the answers in order. A node that does not know the script yet gets it in a second
// round trip.
func runAll(ctx context.Context, c redis.UniversalClient, s *redis.Script, calls []call) []*redis.Cmd {
	if len(calls) == 1 {
		return []*redis.Cmd{s.Run(ctx, c, calls[0].keys, calls[0].args...)}
	}
	answers := make([]*redis.Cmd, len(calls))
	_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error { // each answer has its own error
		for i, call := range calls {
			answers[i] = s.EvalSha(ctx, p, call.keys, call.args...)
		}
		return nil
	})
	for i, call := range calls {
		if redis.HasErrorPrefix(answers[i].Err(), "NOSCRIPT") {
			answers[i] = s.Eval(ctx, c, call.keys, call.args...)
		}
	}
	return answers
}
