#include "textflag.h"

// func addRowAVX2(v *float32, row *int8, scale float32, dim int)
// v[j] += scale * row[j], rounded after the product and after the sum as the
// plain loop rounds; dim is a positive multiple of 16.
TEXT ·addRowAVX2(SB), NOSPLIT, $0-32
	MOVQ         v+0(FP), DI
	MOVQ         row+8(FP), SI
	VBROADCASTSS scale+16(FP), Y0
	MOVQ         dim+24(FP), CX

step:
	VPMOVSXBD (SI), Y1
	VPMOVSXBD 8(SI), Y2
	VCVTDQ2PS Y1, Y1
	VCVTDQ2PS Y2, Y2
	VMULPS    Y0, Y1, Y1
	VMULPS    Y0, Y2, Y2
	VADDPS    (DI), Y1, Y1
	VADDPS    32(DI), Y2, Y2
	VMOVUPS   Y1, (DI)
	VMOVUPS   Y2, 32(DI)
	ADDQ      $16, SI
	ADDQ      $64, DI
	SUBQ      $16, CX
	JNZ       step
	VZEROUPPER
	RET
