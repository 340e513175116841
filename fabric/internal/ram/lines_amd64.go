package ram

import "unsafe"

const hasLines = true

// storeLines copies n lines of 64 bytes, more than none, to where lines begin, each word at once, past the caches: what is as large as them would only be read into them to be replaced.
//
//go:noescape
func storeLines(dst, src unsafe.Pointer, n int)
