package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/cespare/xxhash/v2"

	"sheaf"
)

// http sends chunks to a service of the user's and takes what it answers: other
// texts, keywords, questions, metadata, or that a chunk is to be dropped.
var _ = register(Kind{Name: "http", Doc: "sends chunks to your own service and continues with its response", In: []Port{Chunks}, Out: Chunks, Config: map[string]Field{
	"url":   {Type: "string", Required: true, Check: checkURL, Doc: "URL of the service; flow.allow_hosts must list its host"},
	"batch": {Type: "int", Min: 1, Max: 1000, Doc: "chunks per request; default: 64"},
}, Run: callService})

const (
	serviceBatch     = 64
	maxServiceBody   = 1 << 20 // bytes of one request, unless a single chunk has more
	maxServiceAnswer = 8 << 20
	maxServiceText   = 32 << 10 // of a chunk: what the longest chunk has
	maxServiceTerms  = 64       // keywords or questions of a chunk
	answerRefused    = "service_answer_refused"
)

func checkURL(v any) string {
	s, _ := v.(string)
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" || len(s) > 2000 {
		return "it is http:// or https:// with a host, without a name, password or fragment"
	}
	return ""
}

// serviceRequest is the body of a request.
type serviceRequest struct {
	Node     string         `json:"node"`
	Document Document       `json:"document"`
	Range    [2]int         `json:"range"` // units, from 1, both ends included
	Chunks   []serviceChunk `json:"chunks"`
}

type serviceChunk struct {
	ID          string            `json:"id"` // its position in the range
	Kind        sheaf.ChunkKind   `json:"kind"`
	Role        sheaf.ChunkRole   `json:"role,omitempty"`
	Text        string            `json:"text"`
	Tokens      int               `json:"tokens"`
	Pages       []int             `json:"pages"`
	Boxes       []sheaf.Box       `json:"boxes"`
	HeadingPath []string          `json:"heading_path"`
	Context     string            `json:"context,omitempty"`
	Language    string            `json:"language,omitempty"`
	Keywords    []string          `json:"keywords,omitempty"`
	Questions   []string          `json:"questions,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// serviceAnswer is what becomes of a chunk; what it leaves out stays.
type serviceAnswer struct {
	ID        string            `json:"id"`
	Drop      bool              `json:"drop"`
	Text      *string           `json:"text"`
	Context   *string           `json:"context"`
	Keywords  []string          `json:"keywords"`
	Questions []string          `json:"questions"`
	Metadata  map[string]string `json:"metadata"`
}

func callService(ctx context.Context, in Input) (out []sheaf.Chunk, warnings []sheaf.Warning, err error) {
	address, _ := in.Node.Config["url"].(string)
	batch := serviceBatch
	if n, ok := number(in.Node.Config["batch"]); ok {
		batch = int(n)
	}
	dropped := map[int]bool{}
	for from := 0; from < len(in.Chunks); {
		ask := serviceRequest{Node: in.Node.ID, Document: in.Document, Range: [2]int{in.Range.From, in.Range.To}}
		size := 0
		for i := from; i < len(in.Chunks) && len(ask.Chunks) < batch; i++ {
			c := &in.Chunks[i]
			more := len(c.Text) + len(c.Context) + 512
			if len(ask.Chunks) > 0 && size+more > maxServiceBody {
				break
			}
			size += more
			ask.Chunks = append(ask.Chunks, serviceChunk{
				ID: fmt.Sprint(i), Kind: c.Kind, Role: c.Role, Text: c.Text, Tokens: c.Tokens, Pages: c.Pages, Boxes: c.Boxes, HeadingPath: c.HeadingPath,
				Context: c.Context, Language: c.Language, Keywords: c.Keywords, Questions: c.Questions, Metadata: c.Metadata,
			})
		}
		body, err := json.Marshal(ask)
		if err != nil {
			return nil, nil, fmt.Errorf("encoding the chunks for the node %s: %w", in.Node.ID, err)
		}
		// What is asked names the request, so that a service which has answered it may
		// answer as before.
		answer, err := in.Post(ctx, address, fmt.Sprintf("%s_%016x", in.Node.ID, xxhash.Sum64(body)), body, maxServiceAnswer)
		if err != nil {
			return nil, nil, err
		}
		if answer != nil {
			if wrong := take(answer, in, from, from+len(ask.Chunks), dropped); wrong != "" {
				return nil, nil, sheaf.Fail(sheaf.CategoryPolicy, answerRefused, "The answer that the node %s got is refused: %s", in.Node.ID, wrong)
			}
		}
		from += len(ask.Chunks)
	}
	for i, c := range in.Chunks {
		if !dropped[i] {
			out = append(out, c)
		}
	}
	if n := len(dropped); n > 0 {
		warnings = []sheaf.Warning{{Code: DroppedCode, Message: fmt.Sprintf("The node %s dropped %d of %d chunks.", in.Node.ID, n, len(in.Chunks))}}
	}
	return out, warnings, nil
}

// take carries an answer over to the chunks from, to the one before to; it says
// what is wrong with it, "" for nothing.
func take(answer []byte, in Input, from, to int, dropped map[int]bool) string {
	var given struct {
		Chunks []serviceAnswer `json:"chunks"`
	}
	d := json.NewDecoder(bytes.NewReader(answer))
	d.DisallowUnknownFields()
	if err := d.Decode(&given); err != nil {
		return fmt.Sprintf("it is not {\"chunks\": […]} as the handbook has it: %v.", err)
	}
	if d.More() {
		return "something stands behind its JSON."
	}
	seen := map[int]bool{}
	for _, a := range given.Chunks {
		var i int
		if n, err := fmt.Sscanf(a.ID, "%d", &i); n != 1 || err != nil || fmt.Sprint(i) != a.ID || i < from || i >= to {
			return fmt.Sprintf("%.40q is no id of a chunk that was sent.", a.ID)
		}
		if seen[i] {
			return fmt.Sprintf("the chunk %d is in it twice.", i)
		}
		seen[i] = true
		c := &in.Chunks[i]
		if a.Drop {
			dropped[i] = true
			continue
		}
		if a.Text != nil && *a.Text != c.Text {
			if *a.Text == "" || len(*a.Text) > maxServiceText {
				return fmt.Sprintf("the text of the chunk %d has %d bytes; 1 to %d are allowed, and drop takes a chunk out.", i, len(*a.Text), maxServiceText)
			}
			c.Text, c.Tokens = *a.Text, in.CountTokens(*a.Text)
		}
		if a.Context != nil {
			if len(*a.Context) > maxServiceText {
				return fmt.Sprintf("the context of the chunk %d has %d bytes; %d are allowed.", i, len(*a.Context), maxServiceText)
			}
			c.Context = *a.Context
		}
		for _, l := range []struct {
			name string
			from []string
			to   *[]string
		}{{"keywords", a.Keywords, &c.Keywords}, {"questions", a.Questions, &c.Questions}} {
			if l.from == nil {
				continue
			}
			if len(l.from) > maxServiceTerms || slices.ContainsFunc(l.from, func(s string) bool { return s == "" || len(s) > 1000 }) {
				return fmt.Sprintf("the %s of the chunk %d are more than %d, or one is empty or has more than 1,000 bytes.", l.name, i, maxServiceTerms)
			}
			*l.to = l.from
		}
		if len(a.Metadata) > maxAdded {
			return fmt.Sprintf("the chunk %d gets %d values of metadata; %d are allowed.", i, len(a.Metadata), maxAdded)
		}
		values := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(a.Metadata)) {
			if wrong := checkName(name); wrong != "" {
				return wrong + "."
			}
			values[name] = value(a.Metadata[name])
		}
		add(c, values)
	}
	return ""
}
