//go:build linux

package shm

import "strings"

// shmemHugeAllowed reads the setting of transparent huge pages for shared
// memory: the chosen word is in brackets.
func shmemHugeAllowed(setting string) bool {
	for _, word := range []string{"[always]", "[within_size]", "[advise]", "[force]"} {
		if strings.Contains(setting, word) {
			return true
		}
	}
	return false
}

// hugeOf tells what kind of huge pages a region that was kept is in.
func hugeOf(r *region) string {
	if isDevice(r.file) {
		return "device"
	}
	if _, ok := hugetlbPage(r.file); ok {
		return "hugetlbfs"
	}
	if r.flags&flagHuge != 0 {
		return "transparent"
	}
	return ""
}
