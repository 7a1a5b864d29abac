package taskstore

import (
	"time"

	"sheaf"
)

// Replay selects deliveries to be sent again: those of the events when any is
// named, else those that were given up, of all or since a time.
type Replay struct {
	EventIDs []string
	States   []sheaf.DeliveryState // empty: the dead
	Since    time.Time
}

// DeliveryEnd says what became of an attempt.
type DeliveryEnd struct {
	State  sheaf.DeliveryState // pending: to be tried again after Delay
	Status int                 // of the answer, 0 without one
	Error  string
	Delay  time.Duration
	Hold   time.Duration // how long the webhook as a whole waits
	// Untried gives the message back as if it had not been claimed.
	Untried bool
	// Unwanted forgets a message that the webhook did not ask for.
	Unwanted bool
	// Disable turns the webhook off: Error says why.
	Disable bool
}
