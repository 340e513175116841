#include "textflag.h"

// func cas16(a unsafe.Pointer, old0, old1, new0, new1 uint64) (seen0, seen1 uint64)
TEXT ·cas16(SB), NOSPLIT, $0-56
	MOVQ a+0(FP), DI
	MOVQ old0+8(FP), AX
	MOVQ old1+16(FP), DX
	MOVQ new0+24(FP), BX
	MOVQ new1+32(FP), CX
	LOCK
	CMPXCHG16B (DI)
	MOVQ AX, seen0+40(FP)
	MOVQ DX, seen1+48(FP)
	RET
