//go:build !amd64

package ram

import "unsafe"

const hasLines = false

func storeLines(dst, src unsafe.Pointer, n int) { panic("ram: no storeLines") }
