package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/samples"
)

// forRAGFlow is a server for RAGFlow's clients, and a tenant of it.
func forRAGFlow(t *testing.T) *service {
	s := start(t, func(c *config.Config) {
		c.Server.Auth, c.Server.Interfaces = true, []string{"ragflow"}
	})
	return s.tenant("alpha", "write", sheaf.Quota{})
}

// RAGFlow's own client, unmodified: datasets, upload, parsing, chunks,
// retrieval, metadata and deletion.
func TestRAGFlowClient(t *testing.T) {
	t.Parallel()
	tools := filepath.Dir(fetched(t, "clients-*/ragflow")) // of an older or newer set, others may lie beside it
	s := forRAGFlow(t)
	pdf, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "handbook.pdf")
	if err := os.WriteFile(file, pdf, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(tools, "python3.13"), filepath.Join("testdata", "ragflow.py"), s.base, s.key, file)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(tools, "ragflow"), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// asked is an answer of the interface.
type asked struct {
	status  int
	code    int
	message string
	data    any
	body    string
}

func (s *service) askRAGFlow(method, path, body string) (out asked) {
	s.t.Helper()
	resp, text := s.ask(method, "/api/v1/"+path, "application/json", []byte(body))
	var envelope struct {
		Code    *int
		Message string
		Data    any
	}
	if err := json.Unmarshal([]byte(text), &envelope); err != nil || envelope.Code == nil {
		s.t.Fatalf("%s %s answers no envelope: %d %s", method, path, resp.StatusCode, text)
	}
	return asked{resp.StatusCode, *envelope.Code, envelope.Message, envelope.Data, text}
}

// sendRAGFlow uploads files to a dataset.
func (s *service) sendRAGFlow(dataset string, files ...[2]string) (out asked) {
	s.t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range files {
		part, err := w.CreateFormFile("file", f[0])
		if err != nil {
			s.t.Fatal(err)
		}
		_, _ = part.Write([]byte(f[1]))
	}
	_ = w.Close()
	resp, text := s.ask("POST", "/api/v1/datasets/"+dataset+"/documents", w.FormDataContentType(), b.Bytes())
	var envelope struct {
		Code    int
		Message string
		Data    any
	}
	if err := json.Unmarshal([]byte(text), &envelope); err != nil {
		s.t.Fatalf("an upload answers %s", text)
	}
	return asked{resp.StatusCode, envelope.Code, envelope.Message, envelope.Data, text}
}

// What clients of RAGFlow match on: statuses, codes, messages and the order of
// checks.
func TestRAGFlowContract(t *testing.T) {
	s := forRAGFlow(t)
	stranger := s.tenant("beta", "write", sheaf.Quota{})
	reader := s.withKey("alpha", "read")
	wrong := &service{client: newClient(s.base, "wrong"), t: t}

	const unauthorized = "<Unauthorized '401: Unauthorized'>"
	if a := wrong.askRAGFlow("GET", "datasets/x", ""); a.status != 401 || a.code != 401 || a.message != unauthorized || !strings.Contains(a.body, `"data":null`) {
		t.Errorf("a wrong key: %+v", a)
	}
	if a := s.askRAGFlow("GET", "nowhere", ""); a.status != 404 || a.code != 404 || a.message != "Not Found: /api/v1/nowhere" || !strings.Contains(a.body, `"error":"Not Found"`) {
		t.Errorf("an unknown route: %+v", a)
	}
	if a := reader.askRAGFlow("POST", "datasets", `{"name":"x"}`); a.status != 200 || a.code != 108 {
		t.Errorf("a key that may read makes a dataset: %+v", a)
	}

	made := s.askRAGFlow("POST", "datasets", `{"name":" birds ","avatar":null,"embedding_model":null,"parser_config":{}}`)
	ds := made.data.(map[string]any)
	id := ds["id"].(string)
	config := ds["parser_config"].(map[string]any)
	if made.code != 0 || strings.Contains(made.body, `"message"`) || ds["name"] != "birds" || ds["avatar"] != nil || ds["permission"] != "me" || ds["chunk_method"] != "naive" || config["topn_tags"] != 3.0 || config["raptor"].(map[string]any)["use_raptor"] != true || len(config) != 13 {
		t.Errorf("a dataset is %s", made.body)
	}
	if other := stranger.askRAGFlow("GET", "datasets/"+id, ""); other.code != 102 || !strings.Contains(other.message, "lacks permission for dataset '"+id+"'") {
		t.Errorf("the dataset of another tenant: %+v", other)
	}
	sent := s.sendRAGFlow(id, [2]string{"a.txt", "Herons wait in the water."}, [2]string{"empty.txt", ""}, [2]string{"deck.pptx", "no deck"})
	docs, ok := sent.data.([]any)
	if !ok || len(docs) != 3 {
		t.Fatalf("an upload: %+v", sent)
	}
	doc, blank := docs[0].(map[string]any)["id"].(string), docs[1].(map[string]any)["id"].(string)
	if bad := s.sendRAGFlow(id, [2]string{"b.txt", "b"}, [2]string{"c.nothing", "c"}); bad.code != 500 || bad.message != "c.nothing: This type of file has not been supported yet!" || len(bad.data.([]any)) != 1 {
		t.Errorf("a good file and a bad one: %+v", bad)
	}
	if long := s.sendRAGFlow(id, [2]string{strings.Repeat("x", 252) + ".txt", "c"}); long.code != 101 || long.message != "File name must be 255 bytes or less." {
		t.Errorf("a long name: %+v", long)
	}
	if none := s.sendRAGFlow(id); none.code != 101 || none.message != "No file part!" {
		t.Errorf("no file: %+v", none)
	}

	nobody := strings.Repeat("0", 32)
	docPath := "datasets/" + id + "/documents/" + doc
	for _, c := range []struct {
		method, path, body string
		code               int
		message            string
	}{
		{"PATCH", "datasets/" + id, "{}", 100, "<MethodNotAllowed '405: Method Not Allowed'>"},
		{"GET", "datasets//documents", "", 102, "lacks permission for dataset 'documents'"},
		{"POST", "datasets//documents/parse", "{}", 100, "<MethodNotAllowed '405: Method Not Allowed'>"},
		// Strict validation.
		{"POST", "datasets", `{"name":`, 101, "Malformed JSON syntax: Missing commas/brackets or invalid encoding"},
		{"POST", "datasets", ``, 101, "Malformed JSON syntax"},
		{"POST", "datasets", `"x"`, 101, "Invalid request payload: expected object, got str"},
		{"POST", "datasets", `[1]`, 101, "Invalid request payload: expected object, got list"},
		{"POST", "datasets", `[]`, 101, "Field: <name> - Message: <Field required> - Value: <{}>"},
		{"POST", "datasets", `{"name":" "}`, 101, "Field: <name> - Message: <String should have at least 1 character> - Value: <>"},
		{"POST", "datasets", `{"name":null}`, 101, "Field: <name> - Message: <Input should be a valid string> - Value: <None>"},
		{"POST", "datasets", `{"name":"` + strings.Repeat("n", 129) + `"}`, 101, "Field: <name> - Message: <String should have at most 128 characters> - Value: <" + strings.Repeat("n", 125) + "...>"},
		{"POST", "datasets", `{"name":"x","avatar":"abc"}`, 101, "Field: <avatar> - Message: <missing MIME prefix. Expected format: data:<mime>;base64,<data>> - Value: <abc>"},
		{"POST", "datasets", `{"name":"x","avatar":"data:text/plain;base64,YQ=="}`, 101, "Unsupported MIME type. Allowed: ['image/jpeg', 'image/png']"},
		{"POST", "datasets", `{"name":"x","embedding_model":"nothing"}`, 101, "embedding model identifier must follow <model_name>@<provider> format"},
		{"POST", "datasets", `{"name":"x","embedding_model":"@b"}`, 101, "both model_name and provider must be non-empty strings"},
		{"POST", "datasets", `{"name":"x","embedding_model":"other@Nobody"}`, 102, "Unsupported model: <other@Nobody>"},
		{"POST", "datasets", `{"name":"x","permission":null}`, 101, "Field: <permission> - Message: <Input should be 'me' or 'team'> - Value: <None>"},
		{"POST", "datasets", `{"name":"x","chunk_method":""}`, 101, "Input should be 'naive', 'book', 'email', 'laws', 'manual', 'one', 'paper', 'picture', 'presentation', 'qa', 'table', 'tag' or 'resume'"},
		{"POST", "datasets", `{"name":"x","tenant_id":"t","id":1}`, 101, "Field: <id> - Message: <Extra inputs are not permitted> - Value: <1>\nField: <tenant_id> - Message: <Extra inputs are not permitted> - Value: <t>"},
		{"POST", "datasets", `{"name":"x","parser_config":{"auto_keywords":33}}`, 101, "Field: <parser_config.auto_keywords> - Message: <Input should be less than or equal to 32> - Value: <33>"},
		{"POST", "datasets", `{"name":"x","parser_config":{"auto_keywords":3.14}}`, 101, "Message: <Input should be a valid integer> - Value: <3.14>"},
		{"POST", "datasets", `{"name":"x","parser_config":{"html4excel":1}}`, 101, "Message: <Input should be a valid boolean> - Value: <1>"},
		{"POST", "datasets", `{"name":"x","parser_config":{"raptor":{"max_cluster":0}}}`, 101, "Field: <parser_config.raptor.max_cluster> - Message: <Input should be greater than or equal to 1> - Value: <0>"},
		{"POST", "datasets", `{"name":"x","parser_config":{"nothing":{"a":true}}}`, 101, "Field: <parser_config.nothing> - Message: <Extra inputs are not permitted> - Value: <{'a': True}>"},
		{"POST", "datasets", `{"name":"x","parser_config":[]}`, 101, "Field: <parser_config> - Message: <Input should be a valid dictionary> - Value: <[]>"},
		{"PUT", "datasets/x", `{"name":"y"}`, 101, "Field: <dataset_id> - Message: <Invalid UUID format> - Value: <x>"},
		{"PUT", "datasets/" + nobody, `{"name":"y"}`, 102, "lacks permission for dataset '" + nobody + "'"},
		{"PUT", "datasets/" + id, `{}`, 102, "no properties were modified"},
		{"PUT", "datasets/" + id, `{"pagerank":101}`, 101, "Input should be less than or equal to 100"},
		{"GET", "datasets?page=0", "", 101, "Field: <page> - Message: <Input should be greater than or equal to 1> - Value: <0>"},
		{"GET", "datasets?page=x", "", 101, "Input should be a valid integer, unable to parse string as an integer"},
		{"GET", "datasets?desc=maybe", "", 101, "Input should be a valid boolean, unable to interpret input"},
		{"GET", "datasets?orderby=Create_time", "", 101, "Input should be 'create_time' or 'update_time'"},
		{"GET", "datasets?id=", "", 101, "Invalid UUID format"},
		{"GET", "datasets?nothing=1", "", 101, "Extra inputs are not permitted"},
		{"GET", "datasets?id=" + nobody, "", 102, "lacks permission for dataset '" + nobody + "'"},
		{"GET", "datasets?page=99&name=", "", 0, ""},
		{"DELETE", "datasets", `{"ids":["` + id + `","` + id + `"]}`, 101, "Duplicate ids: '" + id + "'"},
		{"DELETE", "datasets", `{"ids":["` + id + `","` + nobody + `"]}`, 102, "lacks permission for datasets: '" + nobody + "'"},
		{"DELETE", "datasets", `{"ids":null,"delete_all":false}`, 0, ""},
		// Documents.
		{"GET", "datasets/" + nobody + "/documents", "", 102, "You don't own the dataset " + nobody + ". "},
		{"GET", "datasets/" + id + "/documents?orderby=x", "", 101, "invalid orderby field: x"},
		{"GET", "datasets/" + id + "/documents?id=" + nobody, "", 102, "you don't own the document " + nobody},
		{"GET", "datasets/" + id + "/documents?run=9", "", 102, "Invalid filter run status conditions: 9"},
		{"GET", "datasets/" + id + "/documents?types=x", "", 102, "Invalid filter conditions: x type"},
		{"GET", "datasets/" + id + "/documents?metadata_condition=x", "", 102, "metadata_condition must be valid JSON"},
		{"GET", "datasets/" + id + "/documents?metadata_condition=%5B%5D", "", 102, "metadata_condition must be an object."},
		{"GET", "datasets/" + id + "/documents?page=x&page_size=0&run=UNSTART&create_time_from=0&create_time_to=0", "", 0, "success"},
		{"GET", "datasets/" + id + "/documents/" + blank, "", 102, "This file is empty."},
		{"GET", "datasets/" + id + "/documents/" + nobody, "", 102, "document not found"},
		{"GET", "documents/" + nobody, "", 102, "document not found"},
		{"PATCH", "datasets/" + nobody + "/documents/" + doc, `{}`, 102, "you don't own the dataset"},
		{"PATCH", "datasets/" + id + "/documents/" + nobody, `{}`, 102, "the dataset doesn't own the document"},
		{"PATCH", docPath, `{"chunk_count":1}`, 102, "can't change `chunk_count`"},
		{"PATCH", docPath, `{"chunk_count":0,"progress":0}`, 0, ""},
		{"PATCH", docPath, `{"name":null}`, 102, "Field: <name> - Message: <Input should be a valid string> - Value: <None>"},
		{"PATCH", docPath, `{"name":""}`, 101, "The extension of file can't be changed"},
		{"PATCH", docPath, `{"name":"empty.txt"}`, 102, "Duplicated document name in the same dataset."},
		{"PATCH", docPath, `{"chunk_method":""}`, 102, "`chunk_method` (empty string) is not valid"},
		{"PATCH", docPath, `{"chunk_method":"x"}`, 102, "Field: <chunk_method> - Message: <`chunk_method` x doesn't exist> - Value: <x>"},
		{"PATCH", docPath, `{"parser_config":{"chunk_token_num":0}}`, 102, "Field: <parser_config.chunk_token_num> - Message: <Input should be greater than or equal to 1> - Value: <0>"},
		{"PATCH", docPath, `{"meta_fields":[]}`, 102, "Field: <meta_fields> - Message: <Input should be a valid dictionary> - Value: <[]>"},
		{"PATCH", docPath, `{"meta_fields":{"a":{"b":1}}}`, 102, "The type is not supported: {'b': 1}"},
		{"DELETE", "datasets/" + id + "/documents", `{}`, 102, "should either provide doc ids or set delete_all(true), dataset: " + id + ". "},
		{"DELETE", "datasets/" + id + "/documents", `{"ids":["` + doc + `"],"delete_all":true}`, 102, "both"},
		{"DELETE", "datasets/" + id + "/documents", `{"ids":["` + doc + `","` + nobody + `"]}`, 102, "These documents do not belong to dataset " + id + " or Document not found: " + nobody},
		{"POST", "datasets/" + id + "/documents/parse", `{}`, 102, "`document_ids` is required"},
		{"POST", "datasets/" + id + "/documents/parse", `"x"`, 100, "object has no attribute"},
		{"POST", "datasets/" + id + "/documents/parse", `{"document_ids":["` + nobody + `"]}`, 102, "Documents not found: ['" + nobody + "']"},
		{"POST", "datasets/" + id + "/documents/stop", `{"document_ids":["` + nobody + `"]}`, 102, "Documents not found: ['" + nobody + "']"},
		{"DELETE", "datasets/" + id + "/chunks", `{"document_ids":["` + doc + `"]}`, 102, "Can't stop parsing document that has not started or already completed"},
		{"POST", "datasets/" + id + "/documents/stop", `{"document_ids":["` + doc + `"]}`, 0, ""},
		// Metadata.
		{"PATCH", "datasets/" + id + "/documents/metadatas", `{"selector":1}`, 102, "selector must be an object."},
		{"PATCH", "datasets/" + id + "/documents/metadatas", `{"updates":1}`, 102, "updates and deletes must be lists."},
		{"PATCH", "datasets/" + id + "/documents/metadatas", `{"selector":{"document_ids":1}}`, 102, "document_ids must be a list."},
		{"PATCH", "datasets/" + id + "/documents/metadatas", `{"updates":[{"key":"a"}]}`, 102, "Each update requires key and value."},
		{"PATCH", "datasets/" + id + "/documents/metadatas", `{"deletes":[{}]}`, 102, "Each delete requires key."},
		{"PUT", docPath + "/metadata/config", `{}`, 101, "metadata is required"},
		// Chunks.
		{"GET", "datasets/" + nobody + "/documents/" + doc + "/chunks", "", 102, "You don't own the dataset " + nobody + "."},
		{"GET", "datasets/" + id + "/documents/" + nobody + "/chunks", "", 102, "you don't own the document " + nobody},
		{"GET", docPath + "/chunks?id=x", "", 102, "Chunk not found: " + id + "/x"},
		{"GET", docPath + "/chunks/x", "", 102, "Chunk not found!"},
		{"PATCH", docPath + "/chunks/x", "{}", 102, "Can't find this chunk x"},
		{"POST", docPath + "/chunks", `{"content":null}`, 102, "`content` is required"},
		{"POST", docPath + "/chunks", `{"content":"a","questions":"b"}`, 102, "`questions` is required to be a list"},
		{"POST", docPath + "/chunks", `{"content":"a","tag_kwd":[1]}`, 102, "`tag_kwd` must be a list of strings"},
		{"DELETE", docPath + "/chunks", `{}`, 0, ""},
		{"DELETE", docPath + "/chunks", `{"chunk_ids":["x"]}`, 102, "rm_chunk deleted chunks 0, expect 1"},
		// Retrieval, in the order of the checks.
		{"POST", "retrieval", `{"question":"x","document_ids":["` + doc + `"]}`, 102, "`dataset_ids` is required."},
		{"POST", "retrieval", `{"dataset_ids":"x"}`, 102, "`dataset_ids` should be a list"},
		{"POST", "retrieval", `{"dataset_ids":["` + nobody + `"]}`, 102, "You don't own the dataset " + nobody + "."},
		{"POST", "retrieval", `{"dataset_ids":["` + id + `"]}`, 102, "`question` is required."},
		{"POST", "retrieval", `{"dataset_ids":["` + id + `"],"question":"x","document_ids":"y"}`, 102, "`documents` should be a list"},
		{"POST", "retrieval", `{"dataset_ids":["` + id + `"],"question":"x","document_ids":["` + nobody + `"]}`, 102, "The datasets don't own the document " + nobody},
		{"POST", "retrieval", `{"dataset_ids":["` + id + `"],"question":"x","top_k":0}`, 102, "`top_k` must be greater than 0"},
		{"POST", "retrieval", `{"dataset_ids":["` + id + `"],"question":"x","similarity_threshold":"a"}`, 100, "could not convert string to float"},
		{"POST", "retrieval", `{"dataset_ids":["` + id + `"],"question":"x","highlight":"yes"}`, 102, "`highlight` should be a boolean"},
		{"POST", "retrieval", `{"dataset_ids":["` + id + `"],"question":" ","rerank_id":null,"cross_languages":null,"metadata_condition":null}`, 0, ""},
		{"POST", "datasets/" + id + "/search", `{}`, 101, "Field: <question> - Message: <Field required>"},
		{"POST", "datasets/" + nobody + "/search", `{"question":"x"}`, 102, "Only owner of dataset " + nobody + " authorized for this operation."},
		// The rest.
		{"POST", "tasks/" + nobody + "/cancel", "", 0, ""},
		{"PATCH", "tasks/" + nobody, `{"action":"go"}`, 101, "Only 'stop' is supported"},
		{"GET", "documents/images/x", "", 102, "Image not found."},
		{"GET", "system/status", "", 0, ""},
		{"DELETE", "datasets", `{"ids":["` + id + `"]}`, 0, ""},
		{"DELETE", "datasets", `{"ids":["` + id + `"]}`, 102, "lacks permission for datasets: '" + id + "'"},
	} {
		if a := s.askRAGFlow(c.method, c.path, c.body); a.status != 200 || a.code != c.code || !strings.Contains(a.message, c.message) {
			t.Errorf("%s %s %.200s\nanswers %d %s\nwant    %d %s", c.method, c.path, c.body, a.code, a.body, c.code, c.message)
		}
	}
	resp, text := s.ask("POST", "/api/v1/datasets", "text/plain", []byte(`{}`))
	if want := "Unsupported content type: Expected application/json, got text/plain"; resp.StatusCode != 200 || !strings.Contains(text, want) {
		t.Errorf("another content type: %s", text)
	}
	if resp, text := wrong.ask("GET", "/api/v1/system/healthz", "", nil); resp.StatusCode != 200 {
		t.Errorf("healthz: %d %s", resp.StatusCode, text)
	}
}

// until repeats a request until its answer satisfies, for at most a minute.
func (s *service) until(what, method, path string, done func(map[string]any) bool) {
	s.t.Helper()
	var last asked
	waitFor(s.t, what, func() bool {
		last = s.askRAGFlow(method, path, "")
		data, ok := last.data.(map[string]any)
		return ok && done(data)
	})
}

// Documents are parsed, stopped, switched off and described in bulk, and the
// rest of the service knows of it.
func TestRAGFlowDocuments(t *testing.T) {
	t.Parallel()
	s := forRAGFlow(t)
	nobody := strings.Repeat("0", 32)
	id := s.askRAGFlow("POST", "datasets", `{"name":"birds","parser_config":{"chunk_token_num":64}}`).data.(map[string]any)["id"].(string)
	sent := s.sendRAGFlow(id, [2]string{"heron.txt", "The heron waits in the shallow water."}, [2]string{"stork.txt", "The stork nests on chimneys."})
	if sent.code != 0 {
		t.Fatal(sent)
	}
	var ids []string
	for _, d := range sent.data.([]any) {
		ids = append(ids, d.(map[string]any)["id"].(string))
	}
	heron, stork := ids[0], ids[1]
	ask := func(method, path, body string, want ...string) string {
		t.Helper()
		a := s.askRAGFlow(method, path, body)
		if a.code != 0 {
			t.Errorf("%s %s %s: %s", method, path, body, a.body)
		}
		for _, w := range want {
			if !strings.Contains(a.body, w) {
				t.Errorf("%s %s %s lacks %s: %s", method, path, body, w, a.body)
			}
		}
		return a.body
	}
	found := func(question, more string) int {
		t.Helper()
		a := s.askRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"`+question+`"`+more+`}`)
		if a.code != 0 {
			t.Fatal(a.body)
		}
		return int(a.data.(map[string]any)["total"].(float64))
	}

	// An unknown id does not keep the others from being parsed.
	if a := s.askRAGFlow("POST", "datasets/"+id+"/documents/parse", `{"document_ids":["`+nobody+`","`+heron+`"]}`); a.code != 102 || a.message != "Documents not found: ['"+nobody+"']" {
		t.Errorf("parsing an unknown document: %s", a.body)
	}
	ask("POST", "datasets/"+id+"/documents/parse", `{"document_ids":["`+stork+`","`+stork+`"]}`, `"success_count":1`, "Duplicate document ids: "+stork)
	s.until("both to be parsed", "GET", "datasets/"+id+"/documents?run=DONE", func(m map[string]any) bool { return m["total"] == 2.0 })
	var jobs struct{ Items []sheaf.Job }
	waitFor(t, "the jobs to end", func() bool {
		s.get("/v1/jobs", &jobs)
		return len(jobs.Items) > 0 && !slices.ContainsFunc(jobs.Items, func(j sheaf.Job) bool { return !j.State.Terminal() })
	})
	if found("chimneys", "") != 1 || found("nothing", "") != 0 || found("heron", `,"vector_similarity_weight":0.0,"similarity_threshold":0.9`) != 1 {
		t.Error("a word does not find the chunk that has it, and no other")
	}

	// Status.
	ask("POST", "datasets/"+id+"/documents/batch-update-status", `{"doc_ids":["`+stork+`"],"status":0}`)
	if found("chimneys", "") != 0 {
		t.Error("a document that is switched off is found")
	}
	ask("POST", "datasets/"+id+"/documents/batch-update-status", `{"doc_ids":["`+stork+`"],"status":"1"}`)
	if a := s.askRAGFlow("POST", "datasets/"+id+"/documents/batch-update-status", `{"doc_ids":["`+stork+`","`+nobody+`"],"status":1}`); a.code != 500 || found("chimneys", "") != 1 {
		t.Errorf("a status of an unknown document: %s", a.body)
	}

	// Metadata.
	ask("PATCH", "datasets/"+id+"/documents/metadatas", `{"selector":{"document_ids":["`+heron+`","`+stork+`"]},"updates":[{"key":"kind","value":"bird"},{"key":"tags","value":["a","b"]}]}`, `"updated":2`, `"matched_docs":2`)
	ask("PATCH", "datasets/"+id+"/documents/metadatas", `{"selector":{"document_ids":["`+stork+`"]},"updates":[{"key":"kind","value":"stork","match":"bird"}],"deletes":[{"key":"tags","value":"a"}]}`, `"updated":1`)
	ask("PATCH", "datasets/"+id+"/documents/metadatas", `{"selector":{"document_ids":[]},"deletes":[{"key":"kind"}]}`, `"updated":0`, `"matched_docs":0`)
	ask("GET", "datasets/"+id+"/metadata/summary", "", `"kind":{"type":"string","values":[["bird",1],["stork",1]]}`, `"tags":{"type":"list","values":[["b",2],["a",1]]}`)
	ask("GET", "datasets/metadata/flattened?dataset_ids="+id, "", `"stork":["`+stork+`"]`)
	ask("GET", `datasets/`+id+`/documents?metadata_condition={"conditions":[{"name":"kind","comparison_operator":"is","value":"bird"}]}`, "", `"total":1`, heron)
	if found("stork heron", `,"metadata_condition":{"logic":"and","conditions":[{"name":"tags","comparison_operator":"contains","value":"a"}]}`) != 1 {
		t.Error("a condition does not narrow a search")
	}
	ask("PUT", "datasets/"+id+"/documents/"+heron+"/metadata/config", `{"metadata":[{"key":"k"}]}`, `"metadata":[{"key":"k"}]`)

	// Chunks that are switched off together.
	list := s.askRAGFlow("GET", "datasets/"+id+"/documents/"+heron+"/chunks", "").data.(map[string]any)["chunks"].([]any)
	chunk := list[0].(map[string]any)["id"].(string)
	ask("PATCH", "datasets/"+id+"/documents/"+heron+"/chunks", `{"chunk_ids":["`+chunk+`"],"available_int":0}`, `"data":true`)
	ask("GET", "datasets/"+id+"/documents/"+heron+"/chunks?available=false", "", `"total":1`)
	ask("GET", "datasets/"+id+"/documents/"+heron+"/chunks/"+chunk, "", `"available_int":0`, "content_with_weight")
	if a := s.askRAGFlow("PATCH", "datasets/"+id+"/documents/"+heron+"/chunks/"+chunk, `{"available":"True"}`); a.code != 100 || !strings.Contains(a.message, "invalid literal for int()") {
		t.Errorf("available that is a word: %s", a.body)
	}

	// A document that is being parsed is stopped.
	s.request("POST", "/v1/queues:pause", "", "Authorization", "Bearer "+s.key)
	ask("POST", "datasets/"+id+"/chunks", `{"document_ids":["`+heron+`"]}`)
	if a := s.askRAGFlow("POST", "datasets/"+id+"/chunks", `{"document_ids":["`+heron+`"]}`); a.code != 102 || a.message != "Can't parse document that is currently being processed" {
		t.Errorf("parsing it twice: %s", a.body)
	}
	ask("POST", "datasets/"+id+"/documents/stop", `{"document_ids":["`+heron+`","`+stork+`"]}`, `"success_count":1`, "Can't stop parsing document that has not started or already completed")
	ask("GET", "datasets/"+id+"/documents?id="+heron, "", `"run":"CANCEL"`, "Task stopped by user.", `"chunk_count":0`)
	if found("heron", "") != 0 {
		t.Error("chunks of a document that was stopped are found")
	}
	s.request("POST", "/v1/queues:resume", "", "Authorization", "Bearer "+s.key)
	ask("POST", "documents/ingest", `{"doc_ids":["`+heron+`"],"run":"1"}`, `"data":true`)
	s.until("it to be parsed again", "GET", "datasets/"+id+"/documents?id="+heron, func(m map[string]any) bool {
		return m["docs"].([]any)[0].(map[string]any)["run"] == "DONE"
	})

	// The settings that were sent in part, and what /v1 has of them.
	ask("PUT", "datasets/"+id, `{"parser_config":{"raptor":{"max_token":100}}}`, `"chunk_token_num":64`, `"use_raptor":false`, `"max_token":512`, `"connectors":[]`)
	ask("PUT", "datasets/"+id, `{"chunk_method":"laws","parser_config":null}`, `"parser_config":{"graphrag":{"use_graphrag":false},"image_context_size":0,"raptor":{"use_raptor":false},"table_context_size":0}`)
	var ours sheaf.Dataset
	s.get("/v1/datasets/"+id, &ours)
	if ours.ParseConfig.Raptor.IsSet() || ours.ParseConfig.GraphRAG.IsSet() {
		t.Errorf("a default has runs begin: %+v", ours.ParseConfig)
	}
	ask("PUT", "datasets/"+id, `{"parser_config":{"raptor":{"use_raptor":true,"max_token":600}}}`, `"use_raptor":true`)
	s.get("/v1/datasets/"+id, &ours)
	if r := ours.ParseConfig.Raptor.V; r["use_raptor"] != true || r["max_token"] != 600.0 {
		t.Errorf("raptor is %v", r)
	}
	ask("PUT", "datasets/"+id, `{"parser_config":{"raptor":{"use_raptor":false}}}`, `"use_raptor":false`)
	s.get("/v1/datasets/"+id, &ours)
	if r := ours.ParseConfig.Raptor.V; r["use_raptor"] != false {
		t.Errorf("raptor is %v", r)
	}
	// What RAGFlow has none of, or was sent nothing of, is as /v1 has it.
	if resp, b := s.request("PATCH", "/v1/datasets/"+id, `{"parser_config": {"raptor": {"use_raptor": true, "budget": {"max_tokens": 7000}}, "graphrag": {"entity_types": ["bird"]}}}`, "Content-Type", "application/json", "Authorization", "Bearer "+s.key); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, b)
	}
	ask("PUT", "datasets/"+id, `{"parser_config":{"raptor":{"use_raptor":true,"max_token":700}}}`, `"use_raptor":true`)
	var both sheaf.Dataset
	s.get("/v1/datasets/"+id, &both)
	if r, g := fmt.Sprint(both.ParseConfig.Raptor.V), fmt.Sprint(both.ParseConfig.GraphRAG.V); r != "map[budget:map[max_tokens:7000] max_token:700 use_raptor:true]" || g != "map[entity_types:[bird]]" {
		t.Errorf("after a change through RAGFlow's interface, raptor is %s and graphrag %s", r, g)
	}
	if ours.ParseConfig.ChunkMethod.V != "laws" || ours.ParseConfig.ChunkTokenNum.IsSet() {
		t.Errorf("the dataset has %+v", ours.ParseConfig)
	}
	ask("GET", "datasets/"+id+"/ingestions/summary", "", `"doc_num":2`)
	ask("DELETE", "datasets/"+id+"/documents", `{"delete_all":true}`, `"deleted":2`)
	ask("DELETE", "datasets", `{"delete_all":true}`, `"success_count":`)
}
