//go:build !linux || !(amd64 || arm64 || loong64 || mips64le || ppc64le || riscv64)

package fabric

// Remote memory is 64-bit words in little-endian order, at offsets of up to 48 bits, and CPU atomics work on them; fabrics
// use locks of files, wakeups and mappings of Linux. Here one of these is missing: what follows does not compile, and says so.
var _ = declock_needs_linux_on_a_64_bit_little_endian_machine_such_as_amd64_or_arm64
