// Package control is how the commands talk to compute-node daemons: JSON
// lines over a unix socket cnN.sock (mode 0600) in the cluster's directory.
//
// A connection carries one request. Each line is one object with the version
// of the protocol; lines are at most [MaxLine] bytes. Requests:
//
//	{"v":3,"op":"status"}                       -> {"type":"status"}
//	{"v":3,"op":"replay","replay":{...}}        -> {"type":"warming"}..., {"type":"ready"}
//	{"v":3,"op":"start"}                        -> {"type":"progress"}..., {"type":"result"}
//	{"v":3,"op":"cancel"}                       -> {"type":"result"} of what was done so far
//
// A replay has two phases so that several daemons can begin to measure at the
// same time: when the stores are filled each says ready, and waits for start.
// Closing the connection cancels. {"type":"error"} with an exit code may come instead of
// any answer, and ends the connection.
package control
