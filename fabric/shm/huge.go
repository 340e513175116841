package shm

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// freeHuge returns the bytes of huge pages that are free and not promised to anyone.
func freeHuge() uint64 {
	const dir = "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	count := func(name string) uint64 {
		text, err := os.ReadFile(dir + name)
		if err != nil {
			return 0
		}
		n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return n
	}
	free, promised := count("free_hugepages"), count("resv_hugepages")
	return (free - min(promised, free)) * hugePageSize
}

// shmemHugeAllowed reads the setting of transparent huge pages for shared
// memory: the chosen word is in brackets.
func shmemHugeAllowed(setting string) bool {
	allowing := []string{"[always]", "[within_size]", "[advise]", "[force]"}
	return slices.ContainsFunc(allowing, func(word string) bool { return strings.Contains(setting, word) })
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
