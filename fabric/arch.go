//go:build !(amd64 || arm64 || loong64 || mips64le || ppc64le || riscv64 || wasm)

package fabric

// Remote memory is 64-bit words in little-endian order, at offsets of up to 48 bits, and CPU atomics work on them: this machine has
// another word size or order of bytes. What follows does not compile, and says so.
var _ = declock_needs_a_64_bit_little_endian_machine_such_as_amd64_or_arm64
