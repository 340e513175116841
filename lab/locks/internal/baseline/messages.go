package baseline

import "github.com/declock/declock/fabric"

// Kinds of messages: 16 for each lock that sends some. What lies on a wire: do not change.
const (
	MsgSherman = fabric.MsgLock + 0x10*iota
	MsgMCS
	MsgShift
	MsgDSLR
	MsgRMARW
	MsgNCoSED
	MsgServer
	MsgFiss // two times 16
	_
	MsgQPLock
	MsgNetLock
	MsgFissAck // further ones of MsgFiss
)
