// Package e2e holds the tests of the whole service, which start it, a fleet of
// it or a browser, and speak to it from outside.
package e2e
