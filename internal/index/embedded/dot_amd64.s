#include "textflag.h"

// func dotRowsAVX2(dst *int32, rows *int8, query *int16, n, dim int)
// dst[i] = sum of rows[i*dim+j] * query[j]; dim is a multiple of 32, n and dim
// are at least 1.
TEXT ·dotRowsAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ rows+8(FP), SI
	MOVQ query+16(FP), DX
	MOVQ n+24(FP), CX
	MOVQ dim+32(FP), R8

row:
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	MOVQ  DX, R9
	MOVQ  R8, R10

step:
	VPMOVSXBW (SI), Y2
	VPMOVSXBW 16(SI), Y3
	VPMADDWD  (R9), Y2, Y2
	VPMADDWD  32(R9), Y3, Y3
	VPADDD    Y2, Y0, Y0
	VPADDD    Y3, Y1, Y1
	ADDQ      $32, SI
	ADDQ      $64, R9
	SUBQ      $32, R10
	JNZ       step

	VPADDD       Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD       X1, X0, X0
	VPSHUFD      $0x4e, X0, X1
	VPADDD       X1, X0, X0
	VPSHUFD      $0xb1, X0, X1
	VPADDD       X1, X0, X0
	VMOVD        X0, (DI)
	ADDQ         $4, DI
	DECQ         CX
	JNZ          row
	VZEROUPPER
	RET
