#include "textflag.h"

// func prefetch(base unsafe.Pointer, at *uint32, n int, mask uint32, size uintptr)
TEXT ·prefetch(SB), NOSPLIT, $0-40
	MOVD base+0(FP), R0
	MOVD at+8(FP), R1
	MOVD n+16(FP), R2
	MOVWU mask+24(FP), R3
	MOVD size+32(FP), R4
	CMP  $0, R2
	BLE  done
loop:
	MOVWU.P 4(R1), R5
	AND  R3, R5
	MADD R4, R0, R5, R6
	PRFM (R6), PLDL1KEEP
	SUBS $1, R2
	BNE  loop
done:
	RET
