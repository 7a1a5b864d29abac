package dify

import (
	"encoding/json"
	"testing"
)

func TestConditionsDecideByMetadata(t *testing.T) {
	doc := map[string]string{"author": "Ada Lovelace", "year": "1843", "day": "1843-09-05", "empty": ""}
	find := func(name string) (string, bool) { v, ok := doc[name]; return v, ok }
	for text, want := range map[string]bool{
		`{"name":"author","comparison_operator":"contains","value":"LOVE"}`:         true,
		`{"name":"author","comparison_operator":"not contains","value":"Babbage"}`:  true,
		`{"name":"author","comparison_operator":"not contains","value":"ada"}`:      false,
		`{"name":"nobody","comparison_operator":"not contains","value":"x"}`:        true,
		`{"name":"author","comparison_operator":"start with","value":"ada"}`:        true,
		`{"name":"author","comparison_operator":"end with","value":"ada"}`:          false,
		`{"name":"author","comparison_operator":"is","value":"Ada Lovelace"}`:       true,
		`{"name":"author","comparison_operator":"is","value":"ada lovelace"}`:       false,
		`{"name":"author","comparison_operator":"is not","value":"x"}`:              true,
		`{"name":"nobody","comparison_operator":"is","value":""}`:                   false,
		`{"name":["nobody","author"],"comparison_operator":"contains","value":"a"}`: true,
		`{"name":"year","comparison_operator":"in","value":"1842, 1843"}`:           true,
		`{"name":"year","comparison_operator":"in","value":[1842,1843]}`:            true,
		`{"name":"year","comparison_operator":"in","value":[]}`:                     false,
		`{"name":"year","comparison_operator":"not in","value":["1842"]}`:           true,
		`{"name":"empty","comparison_operator":"empty"}`:                            true,
		`{"name":"nobody","comparison_operator":"empty","value":null}`:              true,
		`{"name":"nobody","comparison_operator":"not empty"}`:                       false,
		`{"name":"year","comparison_operator":"=","value":1843.0}`:                  true,
		`{"name":"year","comparison_operator":"≠","value":1843}`:                    false,
		`{"name":"year","comparison_operator":">","value":"999"}`:                   true,
		`{"name":"year","comparison_operator":"<","value":1843}`:                    false,
		`{"name":"year","comparison_operator":"≥","value":1843}`:                    true,
		`{"name":"year","comparison_operator":"≤","value":1842}`:                    false,
		`{"name":"day","comparison_operator":"before","value":"1843-09-06"}`:        true,
		`{"name":"day","comparison_operator":"after","value":"1843-09-05 10:00"}`:   false,
		`{"name":"author","comparison_operator":"after","value":"1843-09-05"}`:      false,
	} {
		var one comparison
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(text, err)
		}
		for _, logic := range []string{"and", "or", ""} {
			c := &condition{Logic: logic, Conditions: []comparison{one}}
			matches, err := c.compile()
			if err != nil || matches(find) != want {
				t.Errorf("%s %s: %v, want %v", text, logic, err, want)
			}
			never := comparison{Name: names{"author"}, Operator: "is", Value: json.RawMessage(`"nobody"`)}
			both := &condition{Logic: logic, Conditions: []comparison{one, never}}
			if matches, err = both.compile(); err != nil || matches(find) != (want && logic == "or") {
				t.Errorf("%s %s with one that fails: %v", text, logic, err)
			}
		}
	}
}

func TestConditionsThatNobodyKnowsAreRefused(t *testing.T) {
	for _, text := range []string{
		`{"logical_operator":"xor","conditions":[{"name":"a","comparison_operator":"is","value":"b"}]}`,
		`{"conditions":[{"name":"a","comparison_operator":"like","value":"b"}]}`,
		`{"conditions":[{"name":"a","comparison_operator":"is"}]}`,
		`{"conditions":[{"name":"a","comparison_operator":"is","value":{"x":1}}]}`,
	} {
		var c condition
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if _, err := c.compile(); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
