#include "textflag.h"

#define SYS_mmap 222
#define BUS_ADRERR 2

// The kernel's arguments: R0 is the signal, R1 its siginfo, R2 the context that it restores when this returns. All other registers may change.
// It calls nothing and has no frame, so that it can jump to the handler of the Go runtime as if the kernel had.
TEXT ·sigbus(SB), NOSPLIT|NOFRAME, $0-0
	MOVW 8(R1), R3          // si_code
	CMPW $BUS_ADRERR, R3
	BNE  forward
	MOVD 16(R1), R3         // si_addr
	MOVD ·ranges(SB), R4
	CBZ  R4, forward
	MOVD 8(R4), R5          // how many
	MOVD 0(R4), R4          // the first

next:
	CBZ  R5, forward
	MOVD 0(R4), R6
	MOVD 0(R6), R7          // its base
	MOVD 8(R6), R9          // its size
	SUB  R7, R3, R10
	CMP  R9, R10
	BLO  found              // R10 is less than R9, unsigned
	ADD  $8, R4
	SUB  $1, R5
	B    next

found:
	MOVD $1, R10
	MOVW R10, 16(R6)        // lost, before anybody can see the zeros
	DMB  $0xb               // ISH
	MOVD R0, R11
	MOVD R1, R12
	MOVD R2, R13
	MOVD R7, R0
	MOVD R9, R1
	MOVD $3, R2             // PROT_READ|PROT_WRITE
	MOVD $0x4032, R3        // MAP_PRIVATE|MAP_FIXED|MAP_ANONYMOUS|MAP_NORESERVE
	MOVD $-1, R4
	MOVD $0, R5
	MOVD $SYS_mmap, R8
	SVC
	CMN  $4095, R0
	BCS  failed
	RET

failed:
	MOVD R11, R0
	MOVD R12, R1
	MOVD R13, R2

forward:
	MOVD ·previous(SB), R14
	JMP  (R14)

// func handlerPC() uintptr
TEXT ·handlerPC(SB), NOSPLIT, $0-8
	MOVD $·sigbus(SB), R0
	MOVD R0, ret+0(FP)
	RET
