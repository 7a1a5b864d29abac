// Package e2e holds the tests of the whole service, which start it, a fleet of
// it or a browser, and speak to it from outside.
//
// Tests that wait more than they compute begin with t.Parallel: they run two at a
// time, after the others. Those run alone that measure times, must come in the middle
// of something, read the process's log, change its environment or drive a browser.
package e2e
