package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	fastjson "github.com/segmentio/encoding/json"
	"gorm.io/gorm"

	"sheaf"
)

const (
	// rolledUpKey is the key of the sequence number of the last event in the sums.
	rolledUpKey = "rolled_up"
	// rollUpEvents is how many events one roll-up reads.
	rollUpEvents = 5000
	// keepMinutes is how long the sums are kept.
	keepMinutes = 31 * 24 * time.Hour
)

// attemptEnds are the kinds of event that end an attempt at a task.
var attemptEnds = []string{sheaf.EventDone, sheaf.EventFailed, sheaf.EventDead, sheaf.EventLost}

// attemptEnd is one of these events, with the cost and result of its task.
type attemptEnd struct {
	Seq                    int64
	TenantID, Kind, Result string
	At                     int64
	Cost                   int
}

const attemptColumns = "SELECT e.seq, e.tenant_id, e.kind, e.at, COALESCE(t.cost, 0) AS cost, COALESCE(t.result, '') AS result FROM events e LEFT JOIN tasks t ON t.id=e.task_id"

// measured is what the result of a task says of its effort.
type measured struct {
	Reused bool              `json:"reused"`
	Stages []sheaf.StageTime `json:"stages"`
	CPUMS  int64             `json:"cpu_ms"`
}

// measured returns the effort of a done task, and whether it is known.
func (e attemptEnd) measured() (m measured, known bool) {
	known = e.Kind == sheaf.EventDone && e.Result != "" && fastjson.Unmarshal([]byte(e.Result), &m) == nil
	return m, known
}

// minuteRow sums a tenant's tasks of one minute, counted since 1970.
type minuteRow struct {
	TenantID            string
	Minute              int64
	Tasks, Failed, Cost int
	Beyond              int    // see sheaf.Beyond; in addition to Cost
	StageMs             string // JSON: milliseconds by stage
	stages              map[string]int64
}

func (m *minuteRow) add(e attemptEnd) {
	if e.Kind != sheaf.EventDone {
		m.Failed++
		return
	}
	m.Tasks++
	m.Cost += e.Cost
	made, known := e.measured()
	if !known {
		return
	}
	m.Beyond += sheaf.Beyond(e.Cost, time.Duration(made.CPUMS)*time.Millisecond)
	if made.Reused {
		return
	}
	for _, st := range made.Stages {
		m.stages[st.Name] += st.MS
	}
}

// RollUp adds the next events of the log to the sums of their minutes and returns
// how many it read. Of two concurrent calls one adds nothing.
func (s *events) RollUp(ctx context.Context) (n int, err error) {
	err = insertRows(s.w.WithContext(ctx), "queue_meta", []string{"k", "v"}, [][]any{{rolledUpKey, "0"}}, s.d.noop("k"))
	if err != nil {
		return 0, translate(err)
	}
	from, err := s.rolledUp(ctx)
	if err != nil {
		return 0, err
	}
	until, err := s.settled(ctx, from)
	if err != nil || until == from {
		return 0, err
	}
	ends, err := all[attemptEnd](s.read(ctx), attemptColumns+" WHERE e.seq>? AND e.seq<=? AND e.kind IN ?", from, until, attemptEnds)
	if err != nil {
		return 0, err
	}
	type key struct {
		tenant string
		minute int64
	}
	sums := map[key]*minuteRow{}
	for _, e := range ends {
		k := key{e.TenantID, e.At / 60_000}
		if sums[k] == nil {
			sums[k] = &minuteRow{TenantID: k.tenant, Minute: k.minute, stages: map[string]int64{}}
		}
		sums[k].add(e)
	}
	err = s.tx(ctx, func(tx *gorm.DB) error {
		res := tx.Exec("UPDATE queue_meta SET v=? WHERE k=? AND v=?", strconv.FormatInt(until, 10), rolledUpKey, strconv.FormatInt(from, 10))
		if res.Error != nil || res.RowsAffected == 0 {
			return res.Error // another keeper added these
		}
		for _, m := range sums {
			var before []minuteRow
			if err := scan(tx.Raw("SELECT * FROM stats_minutes WHERE tenant_id=? AND minute=?", m.TenantID, m.Minute), &before); err != nil {
				return err
			}
			for _, b := range before {
				m.Tasks, m.Failed, m.Cost, m.Beyond = m.Tasks+b.Tasks, m.Failed+b.Failed, m.Cost+b.Cost, m.Beyond+b.Beyond
				var ms map[string]int64
				decode(b.StageMs, &ms)
				for name, t := range ms {
					m.stages[name] += t
				}
			}
			err := tx.Exec("DELETE FROM stats_minutes WHERE tenant_id=? AND minute=?", m.TenantID, m.Minute).Error
			if err == nil {
				err = tx.Exec("INSERT INTO stats_minutes (tenant_id, minute, tasks, failed, cost, beyond, stage_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
					m.TenantID, m.Minute, m.Tasks, m.Failed, m.Cost, m.Beyond, encode(m.stages)).Error
			}
			if err != nil {
				return err
			}
		}
		return tx.Exec(s.sql(fmt.Sprintf("DELETE FROM stats_minutes WHERE minute<(@now-%d)/60000", keepMinutes.Milliseconds()))).Error
	})
	return int(until - from), translate(err)
}

// rolledUp returns the last event that is in the sums.
func (s *events) rolledUp(ctx context.Context) (int64, error) {
	text, err := s.Meta(ctx, rolledUpKey)
	if err != nil || text == "" {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// settled returns the last of the next events after from that no event can precede
// anymore; from if there is none.
func (s *events) settled(ctx context.Context, from int64) (int64, error) {
	var seqs []int64
	if err := scan(s.read(ctx).Raw(fmt.Sprintf("SELECT seq FROM (SELECT seq FROM events WHERE seq>? ORDER BY seq LIMIT %d) x ORDER BY seq DESC LIMIT 1", rollUpEvents), from), &seqs); err != nil || len(seqs) == 0 {
		return from, translate(err)
	}
	if s.eventLag == 0 {
		return seqs[0], nil
	}
	young, err := s.oneSeq(ctx, "SELECT e.seq FROM events e WHERE e.seq>? AND e.seq<=? AND "+s.young("e")+" ORDER BY e.seq LIMIT 1", from, seqs[0])
	if err != nil || young == 0 {
		return seqs[0], err
	}
	return max(young-1, from), nil
}

// minutes reads the sums from a minute on, step minutes per row, and the last event
// they include. Only rows of single minutes have stage times.
func (s *events) minutes(ctx context.Context, tenantID string, first, step int64) (rows []minuteRow, until int64, err error) {
	var w where
	w.add("minute>=?", first)
	if tenantID != "" {
		w.add("tenant_id=?", tenantID)
	}
	query := "SELECT * FROM stats_minutes" + w.String()
	if step > 1 {
		of := fmt.Sprintf("minute - minute %% %d", step)
		query = "SELECT " + of + " AS minute, SUM(tasks) AS tasks, SUM(failed) AS failed, SUM(cost) AS cost, '{}' AS stage_ms FROM stats_minutes" + w.String() + " GROUP BY " + of
	}
	for {
		if until, err = s.rolledUp(ctx); err != nil {
			return nil, 0, err
		}
		rows = nil
		if err := scan(s.read(ctx).Raw(query, w.args...), &rows); err != nil {
			return nil, 0, translate(err)
		}
		if again, err := s.rolledUp(ctx); err != nil || again == until { // nothing was added meanwhile
			for i := range rows {
				decode(rows[i].StageMs, &rows[i].stages)
			}
			return rows, until, err
		}
	}
}
