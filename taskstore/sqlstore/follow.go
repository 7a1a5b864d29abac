package sqlstore

import (
	"context"
	"fmt"

	"sheaf"
	"sheaf/taskstore"
)

// notDeleted excludes the events of deleted documents.
const notDeleted = "NOT EXISTS (SELECT 1 FROM documents d WHERE d.id=e.doc_id AND d.deleted_at<>0)"

// young is the condition that other events may still appear before an event x. An
// event further ahead was written before the clock went back.
func (s *events) young(x string) string {
	lag := s.eventLag.Milliseconds()
	return s.sql(fmt.Sprintf("%s.at>@now-%d AND %s.at<@now+%d", x, lag, x, max(lag, clockStep.Milliseconds())))
}

// FollowEvents implements watch.Log. Like Events it stops before the first event
// younger than the lag, but in the database, because otherwise the same young events
// would be read repeatedly.
func (s *events) FollowEvents(ctx context.Context, after int64, limit int) ([]sheaf.Event, error) {
	q, args := "SELECT e.* FROM events e WHERE e.seq>?", []any{after}
	if s.eventLag > 0 {
		q += " AND e.seq<COALESCE((SELECT y.seq FROM events y WHERE y.seq>? AND " + s.young("y") + " ORDER BY y.seq LIMIT 1), 9223372036854775807)"
		args = append(args, after)
	}
	var rows []eventRow
	if err := scan(s.read(ctx).Raw(q+" AND "+notDeleted+fmt.Sprintf(" ORDER BY e.seq LIMIT %d", limit), args...), &rows); err != nil {
		return nil, translate(err)
	}
	out := make([]sheaf.Event, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, nil
}

// FollowFrom implements watch.Log: no event can still appear before one twice as old
// as the lag.
func (s *events) FollowFrom(ctx context.Context) (int64, error) {
	q := "SELECT seq FROM events e"
	if s.eventLag > 0 {
		q += s.sql(fmt.Sprintf(" WHERE e.at<=@now-%d", 2*s.eventLag.Milliseconds()))
	}
	return s.oneSeq(ctx, q+" ORDER BY e.seq DESC LIMIT 1")
}

// Touched implements watch.Log.
func (s *events) Touched(ctx context.Context, after int64, limit int) ([]taskstore.EventScope, int64, error) {
	newest, err := s.oneSeq(ctx, "SELECT seq FROM events ORDER BY seq DESC LIMIT 1")
	if err != nil || after < 0 || newest <= after {
		return nil, max(newest, after), err
	}
	var of []taskstore.EventScope
	err = scan(s.read(ctx).Raw(fmt.Sprintf("SELECT DISTINCT tenant_id, dataset_id, job_id, doc_id AS document_id FROM events WHERE seq>? AND seq<=? LIMIT %d", limit), after, newest), &of)
	return of, newest, translate(err)
}

// LastEventOf returns the number of the newest event selected by f, 0 if there is
// none. Events may not show it yet.
func (s *events) LastEventOf(ctx context.Context, tenantID string, f taskstore.EventFilter) (int64, error) {
	w := eventsOf(tenantID, f)
	return s.oneSeq(ctx, "SELECT e.seq FROM events e"+w.String()+" ORDER BY e.seq DESC LIMIT 1", w.args...)
}

func (s *events) oneSeq(ctx context.Context, q string, args ...any) (int64, error) {
	var seq []int64
	if err := scan(s.read(ctx).Raw(q, args...), &seq); err != nil || len(seq) == 0 {
		return 0, translate(err)
	}
	return seq[0], nil
}
