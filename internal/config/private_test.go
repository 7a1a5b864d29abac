package config

import (
	"strings"
	"testing"
)

func TestPrivateAddressIsLoopbackUnlessSaidOtherwise(t *testing.T) {
	for address, want := range map[string][2]bool{ // without and with debug_remote
		"127.0.0.1:6060": {true, true}, "[::1]:6060": {true, true}, "localhost:6060": {true, true},
		"0.0.0.0:6060": {false, true}, ":6060": {false, true}, "10.1.2.3:6060": {false, true}, "6060": {false, false},
	} {
		for i, remote := range []bool{false, true} {
			c := Default()
			c.Server.DebugListen, c.Server.DebugRemote = address, remote
			if err := c.Validate(); (err == nil) != want[i] || err != nil && !strings.Contains(err.Error(), "server.debug_listen") {
				t.Errorf("%s with debug_remote = %v: %v", address, remote, err)
			}
		}
	}
}
