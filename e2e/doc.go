// Package e2e holds the tests of the whole service, which start it, a fleet of
// it or a browser, and speak to it from outside.
//
// Tests that wait more than they compute run two at a time, after the others: they
// begin with t.Parallel. Those run alone that look at how long something takes, read
// the process's log, change its environment, or drive a browser.
package e2e
