package child

import (
	"context"
	"errors"
	"math/bits"
	"time"

	"sheaf"
)

// ParseIsolating is Parse for documents that may hold a poison unit. When the child
// crashes, hangs or runs out of memory, the rest of the range is bisected, down to
// the single unit, which is emitted as failed with the failure's code and the
// child's last output as its Detail; all other units succeed. Every unit of r is
// emitted exactly once, in order, unless an error is returned.
//
// perTry returns the time allowed for reading that many units; ctx limits the whole
// call. Its end is an error, as is a failure to open the document.
func (p *Pool) ParseIsolating(ctx context.Context, src Source, r sheaf.Range, perTry func(units int) time.Duration, emit func(sheaf.UnitResult) error) error {
	// One poison unit costs as many failures as it takes halvings to reach it; a
	// range with many is abandoned, so that the work stays proportionate.
	tries := 32 + 4*bits.Len(uint(r.Len()))
	budget := p.cfg.RangeBytes
	work := []sheaf.Range{r} // the last is next
	for len(work) > 0 {
		q := work[len(work)-1]
		work = work[:len(work)-1]
		next := q.From
		try, cancel := context.WithTimeout(ctx, perTry(q.Len()))
		at, err := p.parse(try, src, q, &budget, func(u sheaf.UnitResult) error {
			if err := emit(u); err != nil {
				return errEmit{err}
			}
			next = max(u.Unit, u.LastUnit) + 1
			return nil
		})
		cancel()
		if err == nil {
			continue
		}
		var own errEmit
		if errors.As(err, &own) {
			return own.error
		}
		if ctx.Err() != nil {
			return waitOr(ctx, err)
		}
		f, ok := errors.AsType[*sheaf.Failure](err)
		if !ok || !at.opened || !poison(f) {
			return err
		}
		if next > q.To {
			continue // it died after its last unit
		}
		left := sheaf.Range{From: next, To: q.To}
		if tries--; tries < 0 {
			return emit(sheaf.UnitResult{Unit: left.From, LastUnit: r.To, Status: sheaf.UnitFailed, Code: f.Code,
				Message: "The parser failed on too many units here; the rest was not tried. " + f.Message, Detail: f.Detail})
		}
		if left.Len() == 1 {
			if err := emit(sheaf.UnitResult{Unit: next, Status: sheaf.UnitFailed, Code: f.Code, Message: f.Message, Detail: f.Detail}); err != nil {
				return err
			}
			continue
		}
		middle := left.From + left.Len()/2
		work = append(work, sheaf.Range{From: middle, To: left.To}, sheaf.Range{From: left.From, To: middle - 1})
	}
	return nil
}

// poison reports whether a single unit may have caused the failure.
func poison(f *sheaf.Failure) bool {
	switch f.Code {
	case "parser_crash", "parse_timeout", "parser_out_of_memory":
		return true
	}
	return false
}

// waitOr prefers the reason the whole call ended.
func waitOr(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, sheaf.ErrCanceled) {
		return waitError(ctx)
	}
	return err
}
