#include "textflag.h"

// func prefetch(base unsafe.Pointer, at *uint32, n int, mask uint32, size uintptr)
TEXT ·prefetch(SB), NOSPLIT, $0-40
	MOVQ base+0(FP), DI
	MOVQ at+8(FP), SI
	MOVQ n+16(FP), CX
	MOVL mask+24(FP), DX
	MOVQ size+32(FP), R8
	TESTQ CX, CX
	JLE  done
loop:
	MOVL (SI), AX
	ANDL DX, AX
	IMULQ R8, AX
	PREFETCHT0 (DI)(AX*1)
	ADDQ $4, SI
	DECQ CX
	JNZ  loop
done:
	RET
