package taskstore

import "time"

// FairnessWindow is how far back fairness looks, and how long a tenant must have had
// waiting work to be included.
const FairnessWindow = 5 * time.Minute

// Fairness is how evenly tenants with waiting work were served, relative to weight.
type Fairness struct {
	Index   float64   `json:"index"`   // Jain's: 1 when all got the same by weight, 1/tenants when one got everything
	Tenants int       `json:"tenants"` // that had waiting work throughout, at least 2
	At      time.Time `json:"at"`
}

// Jain is Jain's fairness index of shares, (Σx)²/(n·Σx²): 1 when all are equal, 1/n
// when one has everything, and 1 when all are zero. Jain, Chiu and Hawe, A
// Quantitative Measure of Fairness, DEC-TR-301, 1984.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// FairnessOf compares the cost served to tenants within FairnessWindow, for tenants
// whose work has waited that long; nil if there are fewer than two.
func FairnessOf(tenants []TenantQueue, served map[string]int) *Fairness {
	var shares []float64
	for _, t := range tenants {
		if !t.Paused && t.OldestPendingAge >= FairnessWindow.Seconds() {
			shares = append(shares, float64(served[t.TenantID])/float64(max(t.Weight, 1)))
		}
	}
	if len(shares) < 2 {
		return nil
	}
	return &Fairness{Index: Jain(shares), Tenants: len(shares)}
}
