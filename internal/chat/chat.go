// Package chat requests short answers from any server of POST /v1/chat/completions.
// Chunk enrichment and section summaries use it if a server is configured.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/openaiapi"
)

// Config configures the server. See each field for the meaning of zero.
type Config struct {
	BaseURL     string        // up to and including "/v1": "https://api.openai.com/v1"
	APIKey      string        // sent as "Authorization: Bearer …"; empty sends none
	Key         func() string // returns the current key; takes precedence over APIKey
	Model       string        // as the server names it
	Timeout     time.Duration // per request; 0 means 60 s
	Concurrency int           // concurrent requests; 0 means 4
	Client      *http.Client  // nil means a private one
}

// String omits the key.
func (c Config) String() string { return fmt.Sprintf("chat{%s model=%s}", c.BaseURL, c.Model) }

// GoString omits the key.
func (c Config) GoString() string { return c.String() }

// Client is safe for concurrent use.
type Client struct {
	server openaiapi.Server
	slots  chan struct{}
}

// Open checks the configuration; it does not call the server.
func Open(c Config) (*Client, error) {
	endpoint, err := openaiapi.Endpoint(c.BaseURL, "/chat/completions")
	if err != nil {
		return nil, err
	}
	if c.Model == "" {
		return nil, fmt.Errorf("%w: no chat model is configured", sheaf.ErrInvalid)
	}
	if c.Timeout <= 0 {
		c.Timeout = time.Minute
	}
	if c.Concurrency <= 0 {
		c.Concurrency = 4
	}
	if c.Key == nil {
		c.Key = func() string { return c.APIKey }
	}
	if c.Client == nil {
		c.Client = openaiapi.NewClient()
	}
	return &Client{
		server: openaiapi.Server{Endpoint: endpoint, What: "chat server", Code: "chat", Key: c.Key, Model: c.Model, Timeout: c.Timeout, Client: c.Client},
		slots:  make(chan struct{}, c.Concurrency),
	}, nil
}

// Model returns the model's name on the server.
func (c *Client) Model() string { return c.server.Model }

// Limits of one call. The longest chunk has 8,191 tokens, some 32 KB of text;
// answers are a few lines.
const (
	maxPromptBytes = 128 << 10
	maxAnswerBytes = 1 << 20
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type request struct {
	Model       string    `json:"model"`
	Messages    []message `json:"messages"`
	MaxTokens   int       `json:"max_tokens"`
	Temperature float64   `json:"temperature"`
}

// Ask returns the model's answer to a text under an instruction, in at most
// maxTokens, trimmed. Text beyond 128 KB is truncated. The failures have the codes
// chat_rate_limited, chat_unavailable and chat_timeout (retryable, with a
// *sheaf.RateLimited if the server specified a wait), chat_unauthorized and
// chat_refused (with sheaf.ErrMisconfigured, or sheaf.ErrInvalid if the server
// rejects the text) and chat_bad_answer.
func (c *Client) Ask(ctx context.Context, instruction, text string, maxTokens int) (string, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if len(text) > maxPromptBytes {
		text = text[:maxPromptBytes]
	}
	body, err := c.server.Post(ctx, request{
		Model: c.server.Model, MaxTokens: maxTokens,
		Messages: []message{{"system", strings.ToValidUTF8(instruction, "")}, {"user", strings.ToValidUTF8(text, "")}},
	}, maxAnswerBytes)
	if refusal, ok := errors.AsType[*openaiapi.Refusal](err); ok {
		if refusal.AboutInput() {
			return "", fmt.Errorf("%w (%w)", sheaf.Fail(sheaf.CategoryBadInput, "chat_refused", "the chat server %s refuses a text (%d): %s", c.server.Endpoint, refusal.Status, refusal.Message), sheaf.ErrInvalid)
		}
		return "", refusal.Failure()
	}
	if err != nil {
		return "", err
	}
	var answer struct {
		Choices []struct{ Message message }
	}
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Choices) == 0 {
		return "", c.server.BadAnswer("it holds no completion")
	}
	return strings.TrimSpace(answer.Choices[0].Message.Content), nil
}
