//go:build !unix

package pdf

import "os"

func mapped(*os.File, int64) ([]byte, func()) { return nil, nil }
