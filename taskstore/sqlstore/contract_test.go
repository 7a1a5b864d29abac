package sqlstore_test

import (
	"testing"

	"sheaf/taskstore/storetest"
)

func TestContract(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		t.Parallel()
		storetest.Run(t, engine)
	})
}
