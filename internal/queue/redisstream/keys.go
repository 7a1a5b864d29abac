package redisstream

import (
	"fmt"
	"strings"

	"sheaf"
)

// keys builds all keys of one Redis. Keys used by the same script share a hash tag,
// {tenant} or {sched}, and therefore a Redis Cluster slot.
type keys struct{ prefix string }

func (k keys) stream(tenantID string, lane sheaf.Lane) string {
	return fmt.Sprintf("%sq:{%s}:p%d", k.prefix, tag(tenantID), lane)
}

// waiting holds the hints of a lane that are sorted but not yet taken.
func (k keys) waiting(tenantID string, lane sheaf.Lane) string {
	return fmt.Sprintf("%sw:{%s}:p%d", k.prefix, tag(tenantID), lane)
}
func (k keys) turn(tenantID string) string { return k.prefix + "turn:{" + tag(tenantID) + "}" }
func (k keys) run(tenantID string) string  { return k.prefix + "run:{" + tag(tenantID) + "}" }
func (k keys) wait(tenantID string) string { return k.prefix + "wait:{" + tag(tenantID) + "}" }

// searched lists the tenants that Recover searches. An earlier version, which knows
// only the streams, has a list of its own: it would drop tenants whose hints are
// sorted.
func (k keys) searched() string { return k.prefix + "{sched}:searched" }

func (k keys) active() string            { return k.prefix + "{sched}:active" }
func (k keys) idle() string              { return k.prefix + "{sched}:idle" }
func (k keys) capped() string            { return k.prefix + "{sched}:capped" }
func (k keys) vt() string                { return k.prefix + "{sched}:vt" }
func (k keys) act() string               { return k.prefix + "{sched}:act" }
func (k keys) round() string             { return k.prefix + "{sched}:round" }
func (k keys) seq() string               { return k.prefix + "{sched}:seq" }
func (k keys) share() string             { return k.prefix + "{sched}:share" }
func (k keys) cost() string              { return k.prefix + "{sched}:cost" }
func (k keys) known() string             { return k.prefix + "{sched}:known" }
func (k keys) wakeups() string           { return k.prefix + "{sched}:bell" }
func (k keys) runID() string             { return k.prefix + "{sched}:inc" }
func (k keys) leader(name string) string { return k.prefix + "{sched}:leader:" + name }
func (k keys) term(name string) string   { return k.prefix + "{sched}:term:" + name }
func (k keys) changes() string           { return k.prefix + "{sched}:stir" }
func (k keys) cancel() string            { return k.prefix + "cancel" }

var tagEscaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// tag makes s safe inside a hash tag, which ends at the first brace.
func tag(s string) string { return tagEscaper.Replace(s) }
