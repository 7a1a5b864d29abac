package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/search"
	"sheaf/samples"
)

const (
	// facadeRounds is how often each facade is compared with /v1, in the order /v1,
	// facade, facade, /v1: drift on a machine busy elsewhere affects both. With
	// fewer rounds chance accounts for three hundredths.
	facadeRounds = 8
	// facadeEach is how many conversions run between two readings of the CPU time,
	// which has a resolution of a hundredth of a second.
	facadeEach = 6
	// searchesEach is the same for searches.
	searchesEach = 60
	// atOnce is how many conversions are requested at once, and crowdRounds how often.
	atOnce, crowdRounds = 100, 4
	facadeBound         = 1.05
	crowdBound          = 1.10
)

// beside is a conversion by another program's protocol, and the same steps with /v1.
type beside struct {
	name       string
	facade, v1 func(ctx context.Context, s *server, body []byte) error
}

var besides = []beside{
	{"tika", convertTika, convertV1(nil)},
	{"docling", convertDocling, convertV1(nil)},
	{"openwebui", convertOpenWebUI, convertV1(map[string]any{"chunk_method": "presentation"})},
	{"openai", convertOpenAI, copyV1},
	{"ragflow", convertRAGFlow, heldV1},
}

// facades measures the cost of other programs' protocols compared with /v1.
func (b *bench) facades(ctx context.Context) error {
	pdf, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		return err
	}
	return b.served(ctx, "facades", func(s *server) error {
		for _, name := range []string{"conversions", "openai-files", "store"} {
			if err := s.call(ctx, http.MethodPost, "/v1/datasets", map[string]string{"name": name}, nil); err != nil {
				return err
			}
		}
		for _, one := range besides {
			ratio, note, err := s.ratio(ctx, facadeEach,
				func() error { return one.facade(ctx, s, pdf) }, func() error { return one.v1(ctx, s, pdf) })
			if err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
			b.atMost("facades."+one.name, ratio, "× CPU of /v1", facadeBound, note)
		}
		return nil
	})
}

// ratio returns the CPU time of a facade divided by that of /v1, each over all rounds.
func (s *server) ratio(ctx context.Context, each int, facade, v1 func() error) (float64, string, error) {
	var of [2]time.Duration // of /v1, of the facade
	var rounds []float64
	for round := -1; round < facadeRounds; round++ { // the first one warms up
		var now [2]time.Duration
		for _, which := range []int{0, 1, 1, 0} {
			cpu := cpuTime(s.pid())
			for range each {
				if err := []func() error{v1, facade}[which](); err != nil {
					return 0, "", err
				}
			}
			now[which] += cpuTime(s.pid()) - cpu
		}
		if ctx.Err() != nil {
			return 0, "", ctx.Err()
		}
		if round >= 0 {
			of[0], of[1] = of[0]+now[0], of[1]+now[1]
			rounds = append(rounds, now[1].Seconds()/now[0].Seconds())
		}
	}
	n := float64(2 * each * facadeRounds)
	note := fmt.Sprintf("%.1f CPU-ms each, /v1 %.1f, over %.0f; rounds %.2f, load %s", ms(of[1])/n, ms(of[0])/n, n, rounds, load())
	return of[1].Seconds() / of[0].Seconds(), note, nil
}

// raw sends a body and reads the answer, which must not be empty.
func (s *server) raw(ctx context.Context, method, path string, header map[string]string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode >= 300 || len(answer) < 100) {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, answer)
	}
	return answer, err
}

const pdfMedia = "application/pdf"

func convertTika(ctx context.Context, s *server, body []byte) error {
	_, err := s.raw(ctx, http.MethodPut, "/tika/text", map[string]string{"Content-Type": pdfMedia, "Accept": "application/json"}, body)
	return err
}

func convertOpenWebUI(ctx context.Context, s *server, body []byte) error {
	_, err := s.raw(ctx, http.MethodPut, "/process", map[string]string{"Content-Type": pdfMedia, "X-Filename": "handbook.pdf"}, body)
	return err
}

// form returns a multipart body with one file.
func form(part, name string, body []byte, fields map[string]string) (media string, out []byte) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for key, value := range fields {
		_ = w.WriteField(key, value) // writing to a buffer never fails
	}
	if f, err := w.CreateFormFile(part, name); err == nil {
		_, _ = f.Write(body)
	}
	_ = w.Close()
	return w.FormDataContentType(), b.Bytes()
}

func convertDocling(ctx context.Context, s *server, body []byte) error {
	media, sent := form("files", "handbook.pdf", body, map[string]string{"image_export_mode": "placeholder"})
	_, err := s.raw(ctx, http.MethodPost, "/docling/v1/convert/file", map[string]string{"Content-Type": media}, sent)
	return err
}

// convertV1 does what a native client does: upload, wait, read, delete.
func convertV1(settings map[string]any) func(context.Context, *server, []byte) error {
	return func(ctx context.Context, s *server, body []byte) error {
		q := url.Values{"name": {"handbook.pdf"}, "lane": {"1"}}
		if settings != nil {
			text, err := json.Marshal(settings)
			if err != nil {
				return err
			}
			q.Set("parser_config", string(text))
		}
		var sent uploaded
		if err := s.send(ctx, http.MethodPost, "/v1/datasets/conversions/documents?"+q.Encode(), pdfMedia, bytes.NewReader(body), &sent); err != nil {
			return err
		}
		return s.readAndDelete(ctx, sent.Job.ID, sent.Documents...)
	}
}

type uploaded struct {
	Job       sheaf.Job
	Documents []sheaf.Document
}

// readAndDelete waits for a job, reads the chunks of its first document and deletes
// everything.
func (s *server) readAndDelete(ctx context.Context, job string, docs ...sheaf.Document) error {
	ended, err := s.ended(ctx, job)
	if err != nil {
		return err
	}
	if ended.State != sheaf.DocSucceeded {
		return fmt.Errorf("the job is %s: %s", ended.State, s.why(ctx, job))
	}
	path := "/v1/datasets/-/documents/" + docs[0].ID
	cursor := ""
	for n := 0; ; {
		var list struct {
			Items []sheaf.Chunk
			Next  *string `json:"next_cursor"`
		}
		if err := s.call(ctx, http.MethodGet, path+"/chunks?limit=200"+cursor, nil, &list); err != nil {
			return err
		}
		if n += len(list.Items); n == 0 {
			return fmt.Errorf("%s has no chunks", path)
		}
		if list.Next == nil {
			break
		}
		cursor = "&cursor=" + url.QueryEscape(*list.Next)
	}
	for _, d := range docs {
		if err := s.call(ctx, http.MethodDelete, "/v1/datasets/-/documents/"+d.ID, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// convertOpenAI uploads a file, attaches it to a store, reads it and deletes it.
func convertOpenAI(ctx context.Context, s *server, body []byte) error {
	var store, file struct{ ID string }
	var there sheaf.Dataset
	if err := s.call(ctx, http.MethodGet, "/v1/datasets/store", nil, &there); err != nil {
		return err
	}
	store.ID = "vs_" + there.ID
	media, sent := form("file", "handbook.pdf", body, map[string]string{"purpose": "assistants"})
	if err := s.send(ctx, http.MethodPost, "/openai/v1/files", media, bytes.NewReader(sent), &file); err != nil {
		return err
	}
	at := "/openai/v1/vector_stores/" + store.ID + "/files"
	if err := s.call(ctx, http.MethodPost, at, map[string]string{"file_id": file.ID}, nil); err != nil {
		return err
	}
	for {
		var one struct{ Status string }
		if err := s.call(ctx, http.MethodGet, at+"/"+file.ID, nil, &one); err != nil {
			return err
		}
		if one.Status == "completed" {
			break
		}
		if one.Status != "in_progress" {
			return fmt.Errorf("the file is %s", one.Status)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	if _, err := s.raw(ctx, http.MethodGet, at+"/"+file.ID+"/content", nil, nil); err != nil {
		return err
	}
	return s.call(ctx, http.MethodDelete, "/openai/v1/files/"+file.ID, nil, nil)
}

// pollPause is how long a client waits between two polls, as OpenAI's client is
// told to.
const pollPause = 250 * time.Millisecond

func pause(ctx context.Context) error {
	select {
	case <-time.After(pollPause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copyV1 is the same with /v1: a held document, and one created from its bytes.
func copyV1(ctx context.Context, s *server, body []byte) error {
	var there sheaf.Dataset
	if err := s.call(ctx, http.MethodGet, "/v1/datasets/store", nil, &there); err != nil {
		return err
	}
	kept, err := s.hold(ctx, "openai-files", body)
	if err != nil {
		return err
	}
	var sent uploaded
	if err := s.call(ctx, http.MethodPost, "/v1/datasets/store/documents", map[string]string{"from": kept.ID}, &sent); err != nil {
		return err
	}
	if err := s.polled(ctx, sent.Documents[0].ID); err != nil {
		return err
	}
	return s.readAndDelete(ctx, sent.Job.ID, sent.Documents[0], *kept)
}

// polled returns once a document has been parsed, polling as often as other clients
// do.
func (s *server) polled(ctx context.Context, id string) error {
	for {
		var d sheaf.Document
		if err := s.call(ctx, http.MethodGet, "/v1/datasets/-/documents/"+id, nil, &d); err != nil {
			return err
		}
		if d.State == sheaf.DocSucceeded {
			return nil
		}
		if d.State.Terminal() {
			return fmt.Errorf("the document is %s", d.State)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// hold uploads a document without processing it.
func (s *server) hold(ctx context.Context, dataset string, body []byte) (*sheaf.Document, error) {
	media, sent := form("file", "handbook.pdf", body, nil)
	var held uploaded
	if err := s.send(ctx, http.MethodPost, "/v1/datasets/"+dataset+"/documents?hold=true", media, bytes.NewReader(sent), &held); err != nil {
		return nil, err
	}
	return &held.Documents[0], nil
}

// convertRAGFlow uploads a document, has it parsed, reads its chunks and deletes it.
func convertRAGFlow(ctx context.Context, s *server, body []byte) error {
	var there sheaf.Dataset
	if err := s.call(ctx, http.MethodGet, "/v1/datasets/store", nil, &there); err != nil {
		return err
	}
	at := "/api/v1/datasets/" + there.ID
	media, sent := form("file", "handbook.pdf", body, nil)
	var up struct {
		Code    int
		Message string
		Data    []struct{ ID string }
	}
	if err := s.send(ctx, http.MethodPost, at+"/documents", media, bytes.NewReader(sent), &up); err != nil || len(up.Data) != 1 {
		return fmt.Errorf("upload: %w %+v", err, up)
	}
	ids := []string{up.Data[0].ID}
	if err := s.call(ctx, http.MethodPost, at+"/chunks", map[string]any{"document_ids": ids}, nil); err != nil {
		return err
	}
	for {
		var list struct {
			Data struct {
				Docs []struct{ Run string }
			}
		}
		if err := s.call(ctx, http.MethodGet, at+"/documents?id="+ids[0], nil, &list); err != nil || len(list.Data.Docs) != 1 {
			return fmt.Errorf("status: %w %+v", err, list)
		}
		if run := list.Data.Docs[0].Run; run == "DONE" || run == "3" {
			break
		} else if run == "FAIL" || run == "4" {
			return fmt.Errorf("the document is %s", run)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	if _, err := s.raw(ctx, http.MethodGet, at+"/documents/"+ids[0]+"/chunks?page_size=200", nil, nil); err != nil {
		return err
	}
	return s.call(ctx, http.MethodDelete, at+"/documents", map[string]any{"ids": ids}, nil)
}

// heldV1 is the same with /v1.
func heldV1(ctx context.Context, s *server, body []byte) error {
	var there sheaf.Dataset
	if err := s.call(ctx, http.MethodGet, "/v1/datasets/store", nil, &there); err != nil {
		return err
	}
	held, err := s.hold(ctx, "store", body)
	if err != nil {
		return err
	}
	var again struct{ Job sheaf.Job }
	if err := s.call(ctx, http.MethodPost, "/v1/datasets/store/documents:reparse", map[string]any{"filter": map[string]any{"document_ids": []string{held.ID}}}, &again); err != nil {
		return err
	}
	if err := s.polled(ctx, held.ID); err != nil {
		return err
	}
	return s.readAndDelete(ctx, again.Job.ID, *held)
}

// facadeCrowds requests many conversions at once, with /v1 and with the blocking
// routes of the facades, and compares when the last one is answered.
func (b *bench) facadeCrowds(ctx context.Context) error {
	pdf, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		return err
	}
	return b.served(ctx, "crowd", func(s *server) error { return b.crowds(ctx, s, pdf) })
}

func (b *bench) crowds(ctx context.Context, s *server, pdf []byte) error {
	if err := s.call(ctx, http.MethodPost, "/v1/datasets", map[string]string{"name": "conversions"}, nil); err != nil {
		return err
	}
	last := func(f func(context.Context, *server, []byte) error) (float64, error) {
		begun := time.Now()
		failures := make([]error, atOnce)
		var all sync.WaitGroup
		for i := range atOnce {
			all.Go(func() { failures[i] = f(ctx, s, pdf) })
		}
		all.Wait()
		failed := 0
		var why error
		for _, err := range failures {
			if err != nil {
				failed, why = failed+1, err
			}
		}
		if failed > 0 {
			why = fmt.Errorf("%d of %d were not answered, such as: %w", failed, atOnce, why)
		}
		return time.Since(begun).Seconds(), why
	}
	for _, one := range besides {
		if one.name != "docling" && one.name != "openwebui" {
			continue
		}
		var ratios, own, others []float64
		if err := one.v1(ctx, s, pdf); err != nil { // starts the parsers
			return err
		}
		for round := range crowdRounds {
			var took [2]float64
			for _, which := range [2][]int{{0, 1}, {1, 0}}[round%2] {
				seconds, err := last([]func(context.Context, *server, []byte) error{one.v1, one.facade}[which])
				if err != nil {
					return fmt.Errorf("%s: %w", []string{"/v1", one.name}[which], err)
				}
				took[which] = seconds
			}
			ratios, own, others = append(ratios, took[1]/took[0]), append(own, took[0]), append(others, took[1])
		}
		note := fmt.Sprintf("of %d at once, all answered: %.2f s, /v1 %.2f s; rounds %.2f, load %s", atOnce, sum(others)/crowdRounds, sum(own)/crowdRounds, ratios, load())
		b.atMost("facades.crowd."+one.name, sum(others)/sum(own), "× slowest of /v1", crowdBound, note)
	}
	return nil
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// facadeSearch queries a collection of 100,000 chunks by Dify's route and by /v1.
func (b *bench) facadeSearch(ctx context.Context) error {
	data := filepath.Join(b.tmp, "facades-search")
	queries, err := fill(ctx, data)
	if err != nil {
		return fmt.Errorf("filling the collection: %w", err)
	}
	s, err := b.start(ctx, data)
	if err != nil {
		return err
	}
	defer s.discard()
	at := [2]int{}
	next := func(which int) string {
		at[which]++
		return queries[at[which]%len(queries)]
	}
	ratio, note, err := s.ratio(ctx, searchesEach, func() error {
		var answer struct {
			Records []struct{ Content string } `json:"records"`
		}
		ask := map[string]any{"knowledge_id": "default", "query": next(1), "retrieval_setting": map[string]any{"top_k": 10}}
		return s.call(ctx, http.MethodPost, "/retrieval", ask, &answer)
	}, func() error {
		var answer search.Response
		return s.call(ctx, http.MethodPost, "/v1/datasets/default/search", search.Request{Query: next(0), Limit: 10}, &answer)
	})
	if err != nil {
		return err
	}
	b.atMost("facades.dify", ratio, "× CPU of /v1 search", facadeBound, strings.ReplaceAll(note, " each", " a search"))
	return nil
}
