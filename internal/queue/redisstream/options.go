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

// RedisOptions describe how to reach one Redis: a single server, the master named by
// Sentinels, or a Cluster.
type RedisOptions struct {
	Addrs      []string // host:port of the server, of Sentinels if MasterName is set, or of some Cluster nodes if Cluster is
	MasterName string   // name of the master to ask the Sentinels at Addrs for
	Cluster    bool     // Addrs are nodes of a Redis Cluster
	DB         int      // database number; 0 in a Cluster, which has no other

	Username         string // "" means the default user
	Password         string
	SentinelUsername string // for the Sentinels themselves
	SentinelPassword string
	TLS              *tls.Config // nil means no TLS

	DialTimeout time.Duration // 0 means 2 s
	Timeout     time.Duration // per request and answer; 0 means 3 s; at least 2 s, because notifications are awaited in reads of 1 s
	PoolSize    int           // maximum connections per node; 0 means 10 per CPU
}

// String describes the target, without secrets.
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

// GoString is String, so that %#v does not print the password.
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

// clientLog routes the client library's own messages, which repeat the errors of
// calls, to the debug log.
type clientLog struct{}

func (clientLog) Printf(ctx context.Context, format string, args ...any) {
	if slog.Default().Enabled(ctx, slog.LevelDebug) {
		slog.DebugContext(ctx, fmt.Sprintf(format, args...), "from", "go-redis")
	}
}

var setClientLog = sync.OnceFunc(func() { redis.SetLogger(clientLog{}) })

// client makes a client that never retries automatically: a group read whose answer
// was lost did happen, and a retry would leave its entries behind.
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
			Mode: maintnotifications.ModeDisabled, // a feature of hosted Redis; other servers answer with an error
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
