#include "textflag.h"

// func storeLines(dst, src unsafe.Pointer, n int)
TEXT ·storeLines(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	MOVQ    0(SI), R8
	MOVQ    8(SI), R9
	MOVQ    16(SI), R10
	MOVQ    24(SI), R11
	MOVNTIQ R8, 0(DI)
	MOVNTIQ R9, 8(DI)
	MOVNTIQ R10, 16(DI)
	MOVNTIQ R11, 24(DI)
	MOVQ    32(SI), R8
	MOVQ    40(SI), R9
	MOVQ    48(SI), R10
	MOVQ    56(SI), R11
	MOVNTIQ R8, 32(DI)
	MOVNTIQ R9, 40(DI)
	MOVNTIQ R10, 48(DI)
	MOVNTIQ R11, 56(DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	DECQ    CX
	JNZ     loop
	SFENCE
	RET
