package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"

	"sheaf"
	"sheaf/internal/settings"
)

// send is a request with a JSON body; it fails the test unless it is answered want.
func (k *keyedServer) send(method, path, body string, want int, out any) {
	k.t.Helper()
	req, err := http.NewRequestWithContext(k.t.Context(), method, k.url+path, strings.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	var raw json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&raw); err != nil || resp.StatusCode != want {
		k.t.Fatalf("%s %s %s: %d %s %v, want %d", method, path, body, resp.StatusCode, raw, err, want)
	}
	if out != nil {
		if err := json.Unmarshal(raw, out); err != nil {
			k.t.Fatal(err)
		}
	}
}

// answered is an answer's parser_config and made_with as they are in JSON.
type answered struct {
	ID     string                     `json:"id"`
	Said   map[string]json.RawMessage `json:"parser_config"`
	Made   map[string]json.RawMessage `json:"made_with"`
	Media  string                     `json:"media_type"`
	Detail string                     `json:"detail"`
}

// says fails unless the setting has the value, "" for none, where it was asked for.
func (s answered) says(t *testing.T, layer, name, want string) {
	t.Helper()
	if got := string(s.Said[name]); got != want {
		t.Errorf("%s: %s is %q, want %q", layer, name, got, want)
	}
	if made, ok := s.Made[name]; s.Made != nil && want != "" && string(made) != want {
		t.Errorf("%s: made with %s %q (%v), want %q", layer, name, made, ok, want)
	}
}

// Whatever a setting was, a zero that is said counts at the dataset, at the
// upload and at the re-parse; null takes it back; every answer shows it.
func TestEverySettingCanBeTakenBack(t *testing.T) {
	k := newKeyedServer(t)
	var tags answered
	k.send("POST", "/v1/datasets", `{"name":"tags","parser_config":{"chunk_method":"tag"}}`, 201, &tags)
	for i, set := range settings.Table {
		t.Run(set.Name, func(t *testing.T) {
			k := &keyedServer{t: t, url: k.url, store: k.store, blobs: k.blobs}
			some, zero, cure := "", "", ""
			switch v, _ := settings.Value(sheaf.ParseConfig{}, set.Name); v.(type) {
			case int:
				some, zero = fmt.Sprint(max(set.Min, set.Max/2)), "0"
				if set.Min > 0 {
					cure = fmt.Sprintf("from %d to %d, or null", set.Min, set.Max)
				}
			case bool:
				some, zero = "true", "false"
			case string:
				some, zero = `"text/plain"`, `""`
			case []string:
				some, zero = `["`+tags.ID+`"]`, "[]"
			case []sheaf.Range:
				some, zero = "[[1,2]]", "[]"
			default:
				t.Fatalf("the test has no value for a %T", v)
			}
			switch set.Name {
			case "chunk_method":
				some, cure = `"book"`, "null stands for"
			case "pii":
				some = `"redact"`
			case "flow":
				some = `"standard"`
			}
			shown := some
			if set.Name == "password" {
				shown = "" // write-only
			}
			key := func(value string) string { return fmt.Sprintf(`{"%s":%s}`, set.Name, value) }
			ds := fmt.Sprintf("/v1/datasets/s%d", i)
			dataset := func(layer, want string) {
				t.Helper()
				var got answered
				k.send("GET", ds, "", 200, &got)
				got.says(t, layer, set.Name, want)
			}
			patch := func(config, want string) {
				t.Helper()
				var got answered
				k.send("PATCH", ds, `{"parser_config":`+config+`}`, 200, &got)
				got.says(t, "PATCH "+config, set.Name, want)
				dataset("GET after PATCH "+config, want)
			}
			document := func(id, layer, want string) {
				t.Helper()
				var got answered
				k.send("GET", ds+"/documents/"+id, "", 200, &got)
				got.says(t, layer, set.Name, want)
				if want == "" && set.Name != "password" && got.Made[set.Name] != nil {
					var c sheaf.ParseConfig
					if v, ok := settings.Value(settings.WithDefaults(c), set.Name); !ok || !reflect.DeepEqual(jsonOrNull(v, true), json.RawMessage(got.Made[set.Name])) {
						t.Errorf("%s: made with %s, want the default", layer, got.Made[set.Name])
					}
				}
				var all struct {
					Items []struct {
						Config map[string]json.RawMessage `json:"parser_config"`
					} `json:"items"`
				}
				k.send("GET", ds+"/documents/"+id+"/generations", "", 200, &all)
				for _, g := range all.Items[:1] {
					if got := string(g.Config[set.Name]); got != want {
						t.Errorf("%s: its generation has %q, want %q", layer, got, want)
					}
				}
			}
			upload := func(config string) string {
				t.Helper()
				status, _, body := k.post(ds+"/documents?name=a.txt&parser_config="+url.QueryEscape(config), "", "text/plain", "some text of "+config)
				var answer SubmitAnswer
				if err := json.Unmarshal(body, &answer); status != 202 || err != nil {
					t.Fatalf("upload with %s: %d %s", config, status, body)
				}
				return answer.Documents[0].ID
			}
			again := func(id, config, want string) {
				t.Helper()
				k.send("POST", ds+"/documents:reparse", fmt.Sprintf(`{"filter":{"document_ids":["%s"]},"parser_config":%s}`, id, config), 202, nil)
				document(id, "re-parse with "+config, want)
			}

			var made answered
			k.send("POST", "/v1/datasets", fmt.Sprintf(`{"name":"s%d","parser_config":%s}`, i, key("null")), 201, &made)
			made.says(t, "created with null", set.Name, "")
			patch(key(some), shown)
			if set.Name != "auto_keywords" {
				patch(`{"auto_keywords":7}`, shown) // what is not named stays
				var got answered
				k.send("GET", ds, "", 200, &got)
				got.says(t, "beside "+set.Name, "auto_keywords", "7")
				patch(`{"auto_keywords":null}`, shown)
			}
			if cure != "" {
				refused := func(what string, status int, body []byte) {
					t.Helper()
					var p Problem
					if err := json.Unmarshal(body, &p); err != nil || status != 400 || !strings.Contains(p.Detail, set.Name) || !strings.Contains(p.Detail, cure) {
						t.Errorf("%s %s: %d %s %v, want 400 with the cure", what, key(zero), status, body, err)
					}
				}
				status, _, body := k.post(ds+"/documents?name=a.txt&parser_config="+url.QueryEscape(key(zero)), "", "text/plain", "text")
				refused("upload", status, body)
				status, _, body = k.post("/v1/datasets", "", "application/json", `{"name":"none","parser_config":`+key(zero)+`}`)
				refused("dataset", status, body)
				id := upload("{}")
				status, _, body = k.post(ds+"/documents:reparse", "", "application/json", fmt.Sprintf(`{"filter":{"document_ids":["%s"]},"parser_config":%s}`, id, key(zero)))
				refused("re-parse", status, body)
				document(id, "upload without a word", shown)
				again(id, key("null"), shown)
				patch(key("null"), "")
				again(id, "{}", shown)
				again(id, key("null"), "")
				return
			}
			document(upload("{}"), "upload without a word", shown)
			document(upload(key("null")), "upload with null", shown)
			id := upload(key(zero))
			document(id, "upload with "+zero, zero)
			again(id, "{}", zero)
			again(id, key("null"), shown) // as the dataset says
			again(id, key(zero), zero)
			again(id, key(some), shown)
			patch(key(zero), zero)
			again(id, "{}", shown)
			again(id, key("null"), zero)
			document(upload("{}"), "upload, the dataset says "+zero, zero)
			patch(key("null"), "")
			again(id, key("null"), "")
			document(upload("{}"), "upload, nobody says anything", "")
			patch(key(some), shown)
			patch("null", "") // all of them
		})
	}
	var none answered
	k.send("POST", "/v1/datasets", `{"name":"zero","parser_config":{"delimiter":"","auto_keywords":0,"tag_kb_ids":[],"ocr_pictures":false}}`, 201, &none)
	if got := fmt.Sprintf("%s %s %s %s %d", none.Said["delimiter"], none.Said["auto_keywords"], none.Said["tag_kb_ids"], none.Said["ocr_pictures"], len(none.Said)); got != `"" 0 [] false 4` {
		t.Errorf("a dataset that is created with zeros says %s", got)
	}
}

// A type that was overridden is what was found again, once nobody overrides it.
func TestMediaTypeThatIsTakenBackIsFoundAgain(t *testing.T) {
	k := newKeyedServer(t)
	status, _, body := k.post("/v1/datasets/files/documents?name=a.txt&parser_config="+url.QueryEscape(`{"media_type":"text/markdown"}`), "", "", "plain text")
	if status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	id := k.documents()[0].ID
	var got answered
	for _, step := range []struct{ config, want string }{{`{"chunk_token_num":64}`, "text/markdown"}, {`{"media_type":null}`, "text/plain"}} {
		k.send("POST", "/v1/datasets/files/documents:reparse", `{"filter":{"document_ids":["`+id+`"]},"parser_config":`+step.config+`}`, 202, nil)
		k.send("GET", "/v1/datasets/files/documents/"+id, "", 200, &got)
		if !strings.HasPrefix(got.Media, step.want) {
			t.Errorf("after %s it is %s, want %s", step.config, got.Media, step.want)
		}
	}
}

// Changes of one dataset that come at once are all made.
func TestChangesOfADatasetDoNotUndoEachOther(t *testing.T) {
	k := newKeyedServer(t)
	bodies := []string{`{"parser_config":{"auto_keywords":4}}`, `{"parser_config":{"delimiter":""}}`, `{"parser_config":{"chunk_token_num":64}}`, `{"name":"other"}`}
	k.send("PATCH", "/v1/datasets/files", `{"parser_config":{"auto_keywords":1}}`, 200, nil)
	id := func() string {
		var d answered
		k.send("GET", "/v1/datasets/files", "", 200, &d)
		return d.ID
	}()
	var all sync.WaitGroup
	for _, body := range bodies {
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), "PATCH", k.url+"/v1/datasets/"+id, strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("%s: %s", body, resp.Status)
			}
		})
	}
	all.Wait()
	var d sheaf.Dataset
	k.send("GET", "/v1/datasets/"+id, "", 200, &d)
	b, err := json.Marshal(d.ParseConfig)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Name + " " + string(b); got != `other {"chunk_token_num":64,"delimiter":"","auto_keywords":4}` {
		t.Errorf("after all changes: %s", got)
	}
}

// What programs store with a dataset or a document is changed key by key.
func TestAttributesAreChangedKeyByKey(t *testing.T) {
	k := newKeyedServer(t)
	type described struct {
		ID, Name   string
		Attributes map[string]any
	}
	var d described
	k.send("PATCH", "/v1/datasets/files", `{"attributes":{"crm.id":17,"crm.note":"x"}}`, 200, nil)
	k.send("PATCH", "/v1/datasets/files", `{"attributes":{"crm.note":null,"crm.list":[1,null]}}`, 200, nil)
	k.send("GET", "/v1/datasets/files", "", 200, &d)
	if got := fmt.Sprint(d.Attributes); got != "map[crm.id:17 crm.list:[1 <nil>]]" {
		t.Errorf("the dataset has %s", got)
	}
	large := fmt.Sprintf(`{"attributes":{"crm.note":%q}}`, strings.Repeat("x", sheaf.MaxDatasetAttributes))
	k.send("PATCH", "/v1/datasets/files", large, 400, nil)
	k.send("POST", "/v1/datasets", `{"name":"large",`+large[1:], 400, nil)
	d = described{}
	k.send("POST", "/v1/datasets", `{"name":"described","attributes":{"crm.id":1,"crm.none":null}}`, 201, &d)
	if got := fmt.Sprint(d.Attributes); got != "map[crm.id:1]" {
		t.Errorf("the new dataset has %s", got)
	}
	// Decoded, a large integer would lose digits.
	k.send("PATCH", "/v1/datasets/described", `{"attributes":{"crm.id":12345678901234567890}}`, 200, nil)
	if _, body := k.ask("GET", "/v1/datasets/described", "", nil); !strings.Contains(body, `"crm.id":12345678901234567890`) {
		t.Errorf("the dataset is %s", body)
	}
	for _, body := range []string{`{"attributes":null}`, `{"attributes":[]}`, `{"attributes":"x"}`, `{"atributes":{}}`} {
		k.send("PATCH", "/v1/datasets/files", body, 400, nil)
	}
}

// An upload may say what is stored with its documents, in every form that it has.
func TestUploadsCarryAttributes(t *testing.T) {
	k := newKeyedServer(t)
	part := func(head, value string) string {
		return "--b\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + value + "\r\n"
	}
	form := part(`name="attributes"`, `{"crm.id":1}`) + part(`name="file"; filename="a.txt"`, "text") + part(`name="attributes"`, `{"crm.no":2}`) + part(`name="file"; filename="b.txt"`, "words") + "--b--\r\n"
	at := "/v1/datasets/files/documents"
	for _, c := range []struct{ path, media, body, want string }{
		{at + "?name=c.txt&hold=true&attributes=" + url.QueryEscape(`{"crm.id":3,"crm.none":null}`), "text/plain", "a text", "[map[crm.id:3]]"},
		{at + "?hold=true", "multipart/form-data; boundary=b", form, "[map[crm.id:1] map[crm.no:2]]"},
		{at + "?hold=true&attributes=" + url.QueryEscape(`{"crm.id":4}`), "multipart/form-data; boundary=b", part(`name="file"; filename="a.txt"`, "more text") + "--b--\r\n", "[map[crm.id:4]]"},
	} {
		status, _, body := k.post(c.path, "", c.media, c.body)
		var out struct{ Documents []sheaf.Document }
		if err := json.Unmarshal([]byte(body), &out); err != nil || status != 201 {
			t.Fatalf("%s: %d %s", c.path, status, body)
		}
		var got []map[string]any
		for _, d := range out.Documents {
			var one struct{ Attributes map[string]any }
			k.send("GET", at+"/"+d.ID, "", 200, &one)
			got = append(got, one.Attributes)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s %s stores %v", c.path, c.body, got)
		}
	}
	large := `{"crm.note":"` + strings.Repeat("x", sheaf.MaxDocumentAttributes) + `"}`
	for _, wrong := range []string{"null", "[]", `"x"`, "{", large} {
		if status, _, body := k.post(at+"?name=d.txt&hold=true&attributes="+url.QueryEscape(wrong), "", "text/plain", "refused"); status != 400 || !strings.Contains(string(body), "ttributes") {
			t.Errorf("attributes %.20s: %d %s", wrong, status, body)
		}
	}
}

// The settings of each file of a request are its own, whatever is said for those after it.
func TestSettingsOfOneFileStayWhenTheNextHasOthers(t *testing.T) {
	k := newKeyedServer(t)
	field := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	file := func(name string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name + "\"\r\n\r\ntext of " + name + "\r\n"
	}
	body := field("parser_config", `{"pages":[[1,2]],"html4excel":true,"auto_keywords":3}`) + file("a.txt") +
		field("parser_config", `{"pages":[[5,6]],"html4excel":false,"auto_keywords":0}`) + file("b.txt") + "--b--\r\n"
	if status, _, answer := k.post("/v1/datasets/files/documents", "", "multipart/form-data; boundary=b", body); status != 202 {
		t.Fatalf("%d %s", status, answer)
	}
	for i, want := range []string{`{"html4excel":true,"auto_keywords":3,"pages":[[1,2]]}`, `{"html4excel":false,"auto_keywords":0,"pages":[[5,6]]}`} {
		d := k.documents()[i]
		if b, err := json.Marshal(d.ParseConfig); err != nil || string(b) != want {
			t.Errorf("%s has %s %v, want %s", d.Name, b, err, want)
		}
	}
}

func TestSettingsThatCannotBeReadAreRefused(t *testing.T) {
	k := newKeyedServer(t)
	for config, want := range map[string]string{
		`{"chunk_tokens":64}`: `there is no key \"chunk_tokens\"; did you mean`, `{"chunk_token_num":"64"}`: "chunk_token_num is a JSON string; give a whole number",
		`{} {}`: "something follows", `[]`: "it is a JSON array",
	} {
		status, _, answer := k.post("/v1/datasets/files/documents?name=a.txt&parser_config="+url.QueryEscape(config), "", "text/plain", "text")
		if status != 400 || !strings.Contains(string(answer), want) {
			t.Errorf("%s: %d %s, want 400 with %s", config, status, answer, want)
		}
		if !strings.Contains(want, "follows") {
			if status, _, answer := k.post("/v1/datasets/files/documents", "", "application/json", `{"url":"http://example.org/a.txt","parser_config":`+config+`}`); status != 400 || !strings.Contains(string(answer), want) {
				t.Errorf("url with %s: %d %s, want 400 with %s", config, status, answer, want)
			}
		}
	}
	if docs := k.documents(); len(docs) != 0 {
		t.Errorf("%d documents were made", len(docs))
	}
}
