#include "textflag.h"

#define SYS_mmap 9
#define BUS_ADRERR 2

// The kernel's arguments: DI is the signal, SI its siginfo, DX the context that it restores when this returns. All other registers may change.
// It calls nothing and has no frame, so that it can jump to the handler of the Go runtime as if the kernel had.
TEXT ·sigbus(SB), NOSPLIT|NOFRAME, $0-0
	CMPL 8(SI), $BUS_ADRERR // si_code
	JNE  forward
	MOVQ 16(SI), R8         // si_addr
	MOVQ ·ranges(SB), R9
	TESTQ R9, R9
	JZ   forward
	MOVQ 8(R9), R10         // how many
	MOVQ 0(R9), R9          // the first

next:
	TESTQ R10, R10
	JZ    forward
	MOVQ  0(R9), R11
	MOVQ  R8, AX
	SUBQ  0(R11), AX        // from its base
	CMPQ  AX, 8(R11)
	JCS   found             // less than its size, unsigned
	ADDQ  $8, R9
	DECQ  R10
	JMP   next

found:
	MOVL $1, 16(R11)        // lost, before anybody can see the zeros
	MOVQ DI, R12
	MOVQ SI, R13
	MOVQ DX, R14
	MOVQ 0(R11), DI
	MOVQ 8(R11), SI
	MOVL $3, DX             // PROT_READ|PROT_WRITE
	MOVL $0x4032, R10       // MAP_PRIVATE|MAP_FIXED|MAP_ANONYMOUS|MAP_NORESERVE
	MOVQ $-1, R8
	MOVL $0, R9
	MOVL $SYS_mmap, AX
	SYSCALL
	CMPQ AX, $0xfffffffffffff001
	JCC  failed
	RET

failed:
	MOVQ R12, DI
	MOVQ R13, SI
	MOVQ R14, DX

forward:
	MOVQ ·previous(SB), AX
	JMP  AX

// func handlerPC() uintptr
TEXT ·handlerPC(SB), NOSPLIT, $0-8
	LEAQ ·sigbus(SB), AX
	MOVQ AX, ret+0(FP)
	RET
