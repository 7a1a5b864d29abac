package executor

import (
	"encoding/json"
	"fmt"
	"testing"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/internal/tagset"
)

// everyOption is the settings that there were when the digests below were taken.
var everyOption = []string{"chunk_method", "chunk_token_num", "delimiter", "overlapped_percent", "children_delimiter", "html4excel", "toc_extraction",
	"image_context_size", "table_context_size", "ocr_pictures", "auto_keywords", "auto_questions", "auto_context", "pii", "tag_kb_ids", "topn_tags",
	"task_page_size", "pages", "table_rows", "encoding", "media_type", "password"}

// The digest, the reuse key and the address of a stored plan of settings that
// did not change must not change either, or a new version would parse and embed
// everything again. The values were taken before settings could be set to zero.
func TestDigestsOfUnchangedSettingsStay(t *testing.T) {
	for _, c := range []struct{ settings, want string }{
		{`{}`, `c06a9eeafcc56c45 9626735ab6490b64c06a9eeafcc56c45 artifacts/t/d/plans/af63df4c8601f1a5/db701d7b324f2871.json {}`},
		{`{"chunk_method":"paper"}`, `e60038e1faecc153 9626735ab6490b64e60038e1faecc153 artifacts/t/d/plans/af63df4c8601f1a5/b267dad8742ae2e9.json {"chunk_method":"paper"}`},
		{"{\"chunk_method\":\"one\",\"chunk_token_num\":256,\"delimiter\":\"`##`;\"}", "95fffae1cd86470d 9626735ab6490b6495fffae1cd86470d artifacts/t/d/plans/af63df4c8601f1a5/fa6c8e103fc2c4e9.json {\"chunk_method\":\"one\",\"chunk_token_num\":256,\"delimiter\":\"`##`;\"}"},
		{`{"overlapped_percent":20,"children_delimiter":"\n","html4excel":true,"toc_extraction":false,"image_context_size":40,"table_context_size":9}`, `2d262ef644270629 9626735ab6490b642d262ef644270629 artifacts/t/d/plans/af63df4c8601f1a5/eed9d67ede57f54b.json {"overlapped_percent":20,"children_delimiter":"\n","html4excel":true,"toc_extraction":false,"image_context_size":40,"table_context_size":9}`},
		{`{"ocr_pictures":true,"auto_keywords":3,"auto_questions":2,"auto_context":false,"pii":"redact"}`, `a8d37ff0018406e0 9626735ab6490b64a8d37ff0018406e0 artifacts/t/d/plans/af63df4c8601f1a5/594b9062e5b2ffcd.json {"ocr_pictures":true,"auto_keywords":3,"auto_questions":2,"auto_context":false,"pii":"redact"}`},
		{`{"tag_kb_ids":["0123","4567"],"topn_tags":5,"task_page_size":22,"pages":[[1,10],[20,25]],"table_rows":100}`, `1b71e0a32c2d8bdb 72c5c7158ce852b51b71e0a32c2d8bdb artifacts/t/d/plans/af63df4c8601f1a5/ada51ab105c0aeaa.json {"tag_kb_ids":["0123","4567"],"topn_tags":5,"task_page_size":22,"pages":[[1,10],[20,25]],"table_rows":100}`},
		{`{"encoding":"koi8-r","media_type":"text/csv","password":"<secret>"}`, `c13b95b7695a0f35 9626735ab6490b64c13b95b7695a0f35 artifacts/t/d/plans/af63df4c8601f1a5/45a711e5fd762d93.json {"encoding":"koi8-r","media_type":"text/csv","password":"\u003csecret\u003e"}`},
	} {
		var said sheaf.ParseConfig
		if err := json.Unmarshal([]byte(c.settings), &said); err != nil {
			t.Fatal(err)
		}
		config := settings.WithDefaults(said)
		digest := Fingerprint{Parser: "pdf", ParserVersion: 3, Chunker: "sheaf", ChunkerVersion: 7, Options: everyOption, Config: config, Model: "m@1", Chat: "c@1"}.Digest()
		key := reuseKey(digest, sheaf.Range{From: 3, To: 14}, 42, []string{"One", "Two"}, []int{1, 2}, false, tagsOf(config, []string{"a", "b"}, tagset.DefaultLimits))
		plan := planKey(&sheaf.Document{ID: "d", TenantID: "t", BlobKey: "b", SHA256: "s"}, digest, config)
		stored, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s %s %s %s", digest, key, plan, stored); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.settings, got, c.want)
		}
	}
}

// A zero that is the default makes nothing else than silence does, and shares
// its results; one that is not the default has its own.
func TestDigestsOfZeros(t *testing.T) {
	digest := func(text string) string {
		var c sheaf.ParseConfig
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		return Fingerprint{Options: everyOption, Config: settings.WithDefaults(c)}.Digest()
	}
	silent := digest("{}")
	for _, same := range []string{`{"overlapped_percent":0}`, `{"auto_keywords":0,"pii":"","encoding":""}`, `{"tag_kb_ids":[],"pages":[]}`, `{"chunk_token_num":null}`, "null"} {
		if digest(same) != silent {
			t.Errorf("%s is made anew", same)
		}
	}
	if digest(`{"delimiter":""}`) == silent {
		t.Error("no delimiters and the usual ones share results")
	}
}
