package sqlstore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
)

func TestUploadsAreCountedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rooms uploadRooms
		quota := sheaf.Quota{Documents: 10, Bytes: 1000}
		if rooms.take("t", quota, 1) {
			t.Fatal("a tenant that was never counted has room")
		}
		counted := func() {
			rooms.put("t", uploadRoom{quota: quota, uploads: 2, documents: 3, bytes: 100, counted: time.Now()})
		}
		counted()
		for n := range 5 {
			if !rooms.take("t", quota, 1) {
				t.Fatalf("no room for upload %d of 5", n+1)
			}
		}
		if rooms.take("t", quota, 1) {
			t.Error("there is room beyond the documents of the quota")
		}
		counted()
		if rooms.take("t", quota, 901) || !rooms.take("t", quota, 900) || rooms.take("t", quota, 1) {
			t.Error("of 1,000 bytes 900 are free, no more and no less")
		}

		counted()
		if rooms.take("t", sheaf.Quota{Documents: 11, Bytes: 1000}, 1) {
			t.Error("a count under another quota is used")
		}
		time.Sleep(roomFor)
		if !rooms.take("t", quota, 1) {
			t.Errorf("a count is not used for %v", roomFor)
		}
		time.Sleep(time.Nanosecond)
		if rooms.take("t", quota, 1) {
			t.Errorf("a count is used for more than %v", roomFor)
		}
		counted()
		rooms.forget("t")
		if rooms.take("t", quota, 1) {
			t.Error("a count is used although documents were created since")
		}

		for n := range 3 * maxRooms {
			rooms.put(fmt.Sprint(n), uploadRoom{counted: time.Now()})
		}
		if len(rooms.tenants) > maxRooms {
			t.Errorf("%d tenants are remembered, want at most %d", len(rooms.tenants), maxRooms)
		}
	})
}
