package chattest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/chat"
	"sheaf/internal/chat/chattest"
)

// What the server does is met by the client that the product asks through.
func TestAnswersAndTroubles(t *testing.T) {
	s := chattest.Start(t)
	c, err := chat.Open(chat.Config{BaseURL: s.URL, Model: chattest.Model})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Ask(t.Context(), "summarise", "one two three", 9)
	if err != nil || got != chattest.Answer("summarise", "one two three") || got == chattest.Answer("other", "one two three") {
		t.Fatalf("%q, %v", got, err)
	}
	s.Next(chattest.Limited, chattest.CutOff, chattest.Broken)
	_, err = c.Ask(t.Context(), "a", "b", 9)
	if limited, ok := errors.AsType[*sheaf.RateLimited](err); !ok || limited.After != time.Second {
		t.Errorf("limited: %v", err)
	}
	for _, what := range []string{"cut off", "broken"} {
		if _, err := c.Ask(t.Context(), "a", "b", 9); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	s.Slow(time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Ask(ctx, "a", "b", 9); err == nil {
		t.Error("a slow answer was waited for")
	}
	if n := len(s.Asked()); n != 5 {
		t.Errorf("%d requests, want 5", n)
	}
}
