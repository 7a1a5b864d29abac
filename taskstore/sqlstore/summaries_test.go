package sqlstore

import "testing"

func TestLargeJobsAreSummedOneByOne(t *testing.T) {
	job := func(files string) jobRow { return jobRow{Statistics: `{"scanned":` + files + `}`} }
	for _, c := range []struct {
		rows []jobRow
		want int
	}{
		{[]jobRow{job("10000"), job("1")}, 1},
		{[]jobRow{job("1"), job("2"), {Statistics: "{}"}}, 3},
		{[]jobRow{job("3000"), job("3000"), job("3000")}, 2},
		{[]jobRow{job("0")}, 1},
	} {
		if got := summedTogether(c.rows); got != c.want {
			t.Errorf("%d of %v are summed together, want %d", got, c.rows, c.want)
		}
	}
}
