package webhook

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf/taskstore"
)

// outbox is a store of messages: how many each webhook has left to send.
type outbox struct {
	mu    sync.Mutex
	hooks map[string]taskstore.Webhook
	left  map[string]int
	asked int // lists of due webhooks
}

func (o *outbox) AnyWebhook(context.Context) (bool, error) { return true, nil }

func (o *outbox) DueWebhooks(_ context.Context, after string, limit int) (due []taskstore.Webhook, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	for _, id := range slices.Sorted(maps.Keys(o.hooks)) {
		if id > after && o.left[id] > 0 && len(due) < limit {
			due = append(due, o.hooks[id])
		}
	}
	return due, nil
}

func (o *outbox) ClaimDeliveries(_ context.Context, id string, limit int, _ time.Duration) (out []taskstore.Delivery, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for range min(limit, o.left[id]) {
		o.left[id]--
		out = append(out, taskstore.Delivery{EventID: "doc", Event: "document.succeeded", Data: []byte(`{}`), Attempts: 1})
	}
	return out, nil
}

func (o *outbox) AnnounceJob(context.Context, string, string) error { return nil }

func (o *outbox) EndDelivery(context.Context, *taskstore.Delivery, taskstore.DeliveryEnd) error {
	return nil
}

func (o *outbox) add(tenant, id, url string, messages int) {
	o.hooks[id] = taskstore.Webhook{ID: id, TenantID: tenant, URL: url, Secret: NewSecret(), Enabled: true}
	o.left[id] = messages
}

// Webhooks that do not answer keep nobody waiting but their own tenant: the others
// get all that they have to get, and what comes meanwhile, in the same round.
func TestSlowWebhooksKeepNobodyWaiting(t *testing.T) {
	const messages = 10 * batch
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer slow.Close()
	var got sync.WaitGroup
	quick := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Done() }))
	defer quick.Close()
	o := &outbox{hooks: map[string]taskstore.Webhook{}, left: map[string]int{}}
	for i := range 3 * maxWebhooks {
		o.add("slow", fmt.Sprintf("a%03d", i), slow.URL, 3)
	}
	got.Add(messages + 1)
	o.add("quick", "b1", quick.URL, messages)
	o.add("quick", "b2", quick.URL, 1)
	s := &Sender{Store: o, Hosts: Hosts{strings.TrimPrefix(slow.URL, "http://"), strings.TrimPrefix(quick.URL, "http://")}, Timeout: time.Minute}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		n, _ := s.Round(ctx)
		ended <- n
	}()
	got.Wait()
	got.Add(1)
	o.mu.Lock()
	o.add("late", "a0", quick.URL, 1)
	o.mu.Unlock()
	got.Wait()
	o.mu.Lock()
	sent := 3*3*maxWebhooks - sum(o.left)
	o.mu.Unlock()
	if sent != 3*perTenant {
		t.Errorf("the slow ones have %d messages under way", sent)
	}
	stop()
	close(release)
	if n := <-ended; n < messages {
		t.Errorf("the round sent %d messages", n)
	}
}

// All have their turns, however many there are, and a round without anything to send
// asks once.
func TestWebhooksHaveTheirTurns(t *testing.T) {
	var mu sync.Mutex
	calls := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		calls[r.URL.Path]++
	}))
	defer server.Close()
	o := &outbox{hooks: map[string]taskstore.Webhook{}, left: map[string]int{}}
	want := map[string]int{}
	for i := range 2*maxWebhooks + 7 {
		id := fmt.Sprintf("%04d", i)
		want["/"+id] = 1 + i%(2*batch+1)
		o.add(fmt.Sprint(i%5), id, server.URL+"/"+id, want["/"+id])
	}
	s := &Sender{Store: o, Hosts: Hosts{strings.TrimPrefix(server.URL, "http://")}}
	for round := range 3 {
		n, err := s.Round(t.Context())
		if err != nil || round == 0 && n != sum(want) || round > 0 && n != 0 {
			t.Errorf("round %d: %d messages, %v", round, n, err)
		}
		if round == 2 && o.asked != 1 {
			t.Errorf("a round without messages lists webhooks %d times", o.asked)
		}
		o.asked = 0
	}
	if !maps.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
}

// inbox is a store of one turn's messages, and what became of it.
type inbox struct {
	outbox
	mu        sync.Mutex
	messages  []taskstore.Delivery
	announced []string
	ends      map[string]taskstore.DeliveryEnd // by event
}

func (o *inbox) ClaimDeliveries(context.Context, string, int, time.Duration) ([]taskstore.Delivery, error) {
	return o.messages, nil
}

func (o *inbox) AnnounceJob(_ context.Context, _, job string) error {
	o.announced = append(o.announced, job)
	return nil
}

func (o *inbox) EndDelivery(_ context.Context, d *taskstore.Delivery, end taskstore.DeliveryEnd) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ends[d.EventID] = end
	return nil
}

func message(id, document, job string) taskstore.Delivery {
	return taskstore.Delivery{EventID: id, Event: "document.succeeded", JobID: job, Data: fmt.Appendf(nil, `{"document_id":%q}`, document), Attempts: 1}
}

// turnOf sends the messages in one turn.
func turnOf(t *testing.T, w taskstore.Webhook, messages []taskstore.Delivery, answer http.HandlerFunc) *inbox {
	t.Helper()
	server := httptest.NewServer(answer)
	defer server.Close()
	o := &inbox{messages: messages, ends: map[string]taskstore.DeliveryEnd{}}
	s := &Sender{Store: o, Hosts: Hosts{strings.TrimPrefix(server.URL, "http://")}}
	s.once.Do(s.begin)
	w.URL, w.Secret = server.URL, NewSecret()
	if n, err := s.serve(t.Context(), &w, time.Now().Add(time.Minute)); err != nil || n != len(messages) {
		t.Errorf("%d messages ended, %v", n, err)
	}
	return o
}

// A service that is far away gets messages side by side. Those about one document
// stay in order, and what is not about a document comes after all before it.
func TestMessagesOfATurnAreSentSideBySide(t *testing.T) {
	var mu sync.Mutex
	var order []string
	both := make(chan struct{})
	turnOf(t, taskstore.Webhook{}, []taskstore.Delivery{message("a1", "a", ""), message("b1", "b", ""), message("c1", "c", ""), message("b2", "b", ""), message("job", "", ""), message("d1", "d", "")}, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		order = append(order, r.Header.Get(HeaderID))
		first := len(order) == 1
		if len(order) == 3 {
			close(both)
		}
		mu.Unlock()
		if !first {
			<-both // the second and the third are there together, or never
		}
	})
	slices.Sort(order[1:3])
	if want := []string{"a1", "b1", "c1", "b2", "job", "d1"}; !slices.Equal(order, want) {
		t.Errorf("sent in the order %v, want %v", order, want)
	}
}

// serial is a service that handles one message after another.
type serial struct {
	free chan struct{}
	each time.Duration
}

func (s *serial) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case s.free <- struct{}{}:
		defer func() { <-s.free }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	select {
	case <-time.After(s.each):
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// A service that handles one message after another, quickly or slowly, gets no more
// of them at a time than it answers within the timeout.
func TestSerialServicesAnswerInTime(t *testing.T) {
	for _, each := range []time.Duration{10 * time.Millisecond, time.Second, 1250 * time.Millisecond, 1300 * time.Millisecond, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			o := &inbox{ends: map[string]taskstore.DeliveryEnd{}}
			for i := range batch {
				o.messages = append(o.messages, message(fmt.Sprint(i), fmt.Sprint(i), ""))
			}
			s := &Sender{Store: o, Hosts: Hosts{"far.example"}}
			s.once.Do(s.begin)
			s.client.Transport = &serial{make(chan struct{}, 1), each}
			w := taskstore.Webhook{URL: "https://far.example/", Secret: NewSecret()}
			if n, err := s.serve(t.Context(), &w, time.Now().Add(time.Minute)); n != batch || err != nil {
				t.Errorf("%s each: %d ended, %v", each, n, err)
			}
			for id, end := range o.ends {
				if end.State != taskstore.DeliveryDelivered {
					t.Errorf("%s each: message %s ended as %+v", each, id, end)
				}
			}
		})
	}
}

// Of messages that fail together the webhook has failed once, and those after them
// are not tried. After a first one that fails none is.
func TestAFailureIsCountedOnce(t *testing.T) {
	refused := func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	messages := []taskstore.Delivery{message("ok", "ok", ""), message("a", "a", ""), message("b", "b", ""), message("job", "", ""), message("c", "c", "")}
	var both sync.WaitGroup
	both.Add(2)
	o := turnOf(t, taskstore.Webhook{}, messages, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(HeaderID) != "ok" {
			both.Done()
			both.Wait()
			refused(w)
		}
	})
	var holds []time.Duration
	for _, id := range []string{"a", "b"} {
		holds = append(holds, o.ends[id].Hold)
		if o.ends[id].State != taskstore.DeliveryPending || o.ends[id].Delay < time.Minute {
			t.Errorf("%s ended as %+v", id, o.ends[id])
		}
	}
	if slices.Sort(holds); holds[0] != 0 || holds[1] != time.Minute {
		t.Errorf("the webhook is held for %v", holds)
	}
	if !o.ends["job"].Untried || !o.ends["c"].Untried {
		t.Errorf("messages after a failure are sent: %+v", o.ends)
	}
	o = turnOf(t, taskstore.Webhook{Failures: 3}, messages, func(w http.ResponseWriter, _ *http.Request) { refused(w) })
	if o.ends["ok"].Untried || !o.ends["a"].Untried {
		t.Errorf("a webhook that fails gets more than one message: %+v", o.ends)
	}
}

// Whether a job has ended is looked up for what may be its last message, since that
// may read all of its documents.
func TestJobsAreAnnouncedByTheirLastMessage(t *testing.T) {
	messages := []taskstore.Delivery{message("1", "a", "x"), message("2", "b", "y"), message("3", "c", "y"), message("4", "d", "")}
	messages[0].Followed = true
	o := turnOf(t, taskstore.Webhook{}, messages, func(http.ResponseWriter, *http.Request) {})
	if !slices.Equal(o.announced, []string{"y"}) {
		t.Errorf("announced %v", o.announced)
	}
}

func sum(of map[string]int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
}
