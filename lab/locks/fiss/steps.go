package fiss

import "github.com/declock/declock/fabric"

// RecoveryStep returns which of the paper's steps of a recovery a message is of, 1 to 3; 0: of none.
func RecoveryStep(k fabric.MsgKind) int {
	switch k {
	case msgPause, msgReport:
		return 1
	case msgRebuild, msgRebuilt:
		return 2
	case msgRestore, msgOpen, msgDone:
		return 3
	}
	return 0
}
