package openaistore

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"sheaf/internal/facade"
)

// maxPages bounds the /v1 pages, of a thousand items each, read for one list.
const maxPages = 100

// asked is the page that a request asks for.
type asked struct {
	limit         int
	ascending     bool
	after, before string
}

func (c *call) page(usual, most int) (asked, error) {
	q := c.r.URL.Query()
	p := asked{limit: usual, after: q.Get("after"), before: q.Get("before")}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > most {
			return p, invalid("limit", "limit cannot be %q; give 1 to %d", text, most)
		}
		p.limit = n
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		p.ascending = true
	default:
		return p, invalid("order", "order cannot be %q; give asc or desc", q.Get("order"))
	}
	if p.after != "" && p.before != "" {
		return p, invalid("before", "after and before are both given; give one of them")
	}
	return p, nil
}

// listing is a list of /v1 in id order, with ids as cursors.
type listing[T any] struct {
	path  string
	query url.Values
	keep  func(*T) bool // whether an item is included; nil for all
}

// read collects the page next to the item with the id cursor ("" for the first
// page), in response order.
func (l *listing[T]) read(ctx context.Context, c *call, p asked, cursor string) (items []T, more bool, err error) {
	q := url.Values{"limit": {strconv.Itoa(min(1000, max(100, p.limit+1)))}, "order": {"newest"}}
	if p.ascending != (p.before != "") {
		q.Set("order", "oldest")
	}
	for name, values := range l.query {
		q[name] = values
	}
read:
	for range maxPages {
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		var list facade.List[T]
		if err := c.Call(ctx, http.MethodGet, l.path+"?"+q.Encode(), nil, &list); err != nil {
			return nil, false, err
		}
		for i := range list.Items {
			if l.keep != nil && !l.keep(&list.Items[i]) {
				continue
			}
			if more = len(items) == p.limit; more {
				break read
			}
			items = append(items, list.Items[i])
		}
		if list.NextCursor == nil {
			break
		}
		cursor = *list.NextCursor
	}
	if p.before != "" {
		slices.Reverse(items)
	}
	return items, more, nil
}

// list is a page in the clients' format.
type list struct {
	Object  string  `json:"object"`
	Data    []any   `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

func (l *list) add(id string, v any) {
	if l.Data = append(l.Data, v); len(l.Data) == 1 {
		l.FirstID = &id
	}
	l.LastID = &id
}
