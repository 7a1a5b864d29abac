package redisstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"sheaf"
)

// RedisOptions say how to reach one Redis: a single server, the master that
// Sentinels name, or a Cluster.
type RedisOptions struct {
	Addrs      []string // host:port of the server, of Sentinels when MasterName is set, of some Cluster nodes when Cluster is
	MasterName string   // asks the Sentinels at Addrs for the master of this name
	Cluster    bool     // Addrs are nodes of a Redis Cluster
	DB         int      // number of the database; 0 in a Cluster, which has no other

	Username         string // "" means the default user
	Password         string
	SentinelUsername string // of the Sentinels themselves
	SentinelPassword string
	TLS              *tls.Config // nil means no TLS

	DialTimeout time.Duration // 0 means 2 s
	Timeout     time.Duration // for one request and its answer; 0 means 3 s, at least 2 s since notifications are waited for in reads of 1 s
	PoolSize    int           // connections a node at most; 0 means 10 for each CPU
}

// String shows where the options lead, without secrets.
func (o RedisOptions) String() string {
	kind := "redis"
	switch {
	case o.Cluster:
		kind = "redis cluster"
	case o.MasterName != "":
		kind = "redis master " + o.MasterName + " by sentinel"
	}
	return fmt.Sprintf("%s %s db %d", kind, strings.Join(o.Addrs, ","), o.DB)
}

// GoString is String, so that %#v prints no password either.
func (o RedisOptions) GoString() string { return o.String() }

func (o RedisOptions) validate() error {
	switch {
	case len(o.Addrs) == 0:
		return fmt.Errorf("%w: no address of a Redis is given; name at least one host:port", sheaf.ErrInvalid)
	case len(o.Addrs) > 1 && !o.Cluster && o.MasterName == "":
		return fmt.Errorf("%w: several Redis addresses (%s) but neither a master name for Sentinel nor cluster is set; set one of them, or give one address", sheaf.ErrInvalid, strings.Join(o.Addrs, ", "))
	case o.Cluster && o.MasterName != "":
		return fmt.Errorf("%w: both a Sentinel master name and cluster are set for Redis; keep one", sheaf.ErrInvalid)
	case o.Cluster && o.DB != 0:
		return fmt.Errorf("%w: Redis database %d is asked for, but a Cluster has only database 0", sheaf.ErrInvalid, o.DB)
	}
	return nil
}

// clientLog takes what the client library says of its own accord, which repeats
// what the errors of calls say, into the log of the product.
type clientLog struct{}

func (clientLog) Printf(ctx context.Context, format string, args ...any) {
	if slog.Default().Enabled(ctx, slog.LevelDebug) {
		slog.DebugContext(ctx, fmt.Sprintf(format, args...), "from", "go-redis")
	}
}

var setClientLog = sync.OnceFunc(func() { redis.SetLogger(clientLog{}) })

// client makes a client that never repeats a request by itself: a read from a
// group whose answer was lost has happened all the same, and a second one would
// leave the entries of the first behind.
func (o RedisOptions) client() redis.UniversalClient {
	setClientLog()
	dial, timeout := o.DialTimeout, o.Timeout
	if dial <= 0 {
		dial = 2 * time.Second
	}
	if timeout <= 0 {
		timeout = 3 * time.Second
	}
	timeout = max(timeout, 2*time.Second)
	u := &redis.UniversalOptions{
		Addrs:                 o.Addrs,
		DB:                    o.DB,
		Username:              o.Username,
		Password:              o.Password,
		SentinelUsername:      o.SentinelUsername,
		SentinelPassword:      o.SentinelPassword,
		MasterName:            o.MasterName,
		TLSConfig:             o.TLS,
		MaxRetries:            -1,
		DialTimeout:           dial,
		DialerRetries:         1,
		ReadTimeout:           timeout,
		WriteTimeout:          timeout,
		ContextTimeoutEnabled: true,
		PoolSize:              o.PoolSize,
		ClientName:            "sheaf",
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled, // a feature of hosted Redis that others answer with an error
		},
	}
	switch {
	case o.Cluster:
		return redis.NewClusterClient(u.Cluster())
	case o.MasterName != "":
		return redis.NewFailoverClient(u.Failover())
	default:
		return redis.NewClient(u.Simple())
	}
}
