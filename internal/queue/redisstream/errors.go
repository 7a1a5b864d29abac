package redisstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"sheaf"
)

// advice maps Redis's answers to the kind of error and what an operator should do.
// The first match counts.
var advice = []struct {
	says string
	kind error
	what string
}{
	{"OOM ", sheaf.ErrReadOnly, "Redis is out of memory (maxmemory); raise it, or find what else fills this Redis: the queue itself is bounded"},
	{"MISCONF", sheaf.ErrReadOnly, "Redis refuses writes because it cannot save to its disk; free space there or fix its data folder"},
	{"READONLY", sheaf.ErrReadOnly, "this Redis is a replica; point to the master, or to its Sentinels with the master's name"},
	{"NOREPLICAS", sheaf.ErrReadOnly, "Redis refuses writes because too few replicas are connected; bring them back or lower min-replicas-to-write"},
	{"LOADING", sheaf.ErrUnavailable, "Redis is loading its data; it will answer when it has"},
	{"CLUSTERDOWN", sheaf.ErrUnavailable, "the Redis Cluster misses slots; bring the missing nodes back"},
	{"MASTERDOWN", sheaf.ErrUnavailable, "the Redis master is down; wait for the fail-over or bring it back"},
	{"NOAUTH", sheaf.ErrUnavailable, "Redis asks for a password; set it in the configuration"},
	{"WRONGPASS", sheaf.ErrUnavailable, "Redis refuses user name or password; correct them in the configuration"},
	{"NOPERM", sheaf.ErrUnavailable, "the Redis user may not run a command that the queue needs; widen its ACL to the keys with the queue's prefix"},
	{"CROSSSLOT", sheaf.ErrUnavailable, "a proxy or Cluster in front of Redis does not respect hash tags"},
	{"unknown command", sheaf.ErrUnavailable, "this Redis is too old or hides commands; version 6.2 or newer is needed"},
	{"cluster support disabled", sheaf.ErrUnavailable, "this Redis is no Cluster; unset cluster in the configuration"},
	{"MOVED", sheaf.ErrUnavailable, "this Redis belongs to a Cluster; set cluster in the configuration"},
	{"all sentinels", sheaf.ErrUnavailable, "no Sentinel knows a master of this name; check the Sentinels' addresses and the master name"},
	{"connection refused", sheaf.ErrUnavailable, "no Redis listens there; start it or correct the address"},
	{"no such host", sheaf.ErrUnavailable, "the host name of Redis does not resolve; correct the address"},
	{"timeout", sheaf.ErrUnavailable, "Redis did not answer in time; look at its load and at the network"},
	{"deadline exceeded", sheaf.ErrUnavailable, "Redis did not answer in time; look at its load and at the network, and whether it speaks TLS on that port, if TLS is set"},
	{"certificate", sheaf.ErrUnavailable, "the TLS certificate of Redis is not trusted; set the certificate authority in the configuration"},
	{"EOF", sheaf.ErrUnavailable, "Redis closed the connection; if that goes on it may expect TLS: set it in the configuration"},
}

// wrap converts a client error to a sheaf kind, with the failed call and what to do.
// An error of the caller's context is returned unchanged.
func wrap(ctx context.Context, call string, err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text := err.Error()
	for _, a := range advice {
		if strings.Contains(text, a.says) {
			return fmt.Errorf("redis %s: %w: %s (%w)", call, a.kind, a.what, err)
		}
	}
	return fmt.Errorf("redis %s: %w: the connection failed or Redis gave an unexpected answer; the next attempt may work (%w)", call, sheaf.ErrUnavailable, err)
}
