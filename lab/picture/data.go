package picture

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/declock/declock/fabric"
)

// What follows decodes the memory formats of package objstore (layout.go there) and package btree (layout.go there), as far as a word
// says what it is. It is written down a second time, so that a picture does not depend on what it shows.

// Node names the lock of a node of a tree, and the node behind it. size is that of the lock.
func (w *Words) Node(at fabric.Addr, size, node uint64, name string) {
	w.behind(at, size, node, name, treeNode)
}

// Bucket names the lock of a bucket of an object store, and the slots and the link behind it.
func (w *Words) Bucket(at fabric.Addr, size, slots uint64, name string) {
	w.behind(at, size, slots, name, func(off uint64, b []byte) string { return w.slots(at, slots-8, off, b) })
}

// behind names a lock and what is behind it.
func (w *Words) behind(at fabric.Addr, size, more uint64, name string, words func(off uint64, b []byte) string) {
	w.Name(at, size+more, name, func(off uint64, b []byte) string {
		if off >= size {
			return words(off-size, b)
		}
		if have := size - off; uint64(len(b)) > have {
			return w.Lock(off, b[:have]) + " " + words(0, b[have:])
		}
		return w.Lock(off, b)
	})
}

// Fields of the first word of a tree's node, and of a ptr.
var treeStates = []string{"virgin", "alive", "dead", "moving", "shadow", "free"}

const (
	treeOffsetMask = 1<<38 - 1
	treeMoving     = 3
	treeHeader     = 48
)

// treeWord takes the first word of a tree's node apart.
func treeWord(v uint64) string {
	s := v >> 60
	switch {
	case s >= uint64(len(treeStates)):
		return fmt.Sprintf("word=%#x", v)
	case s == treeMoving:
		return fmt.Sprintf("moving version=%d shadow=%#x", v>>38&(1<<22-1), v&treeOffsetMask*64)
	}
	return fmt.Sprintf("%s used=%d", treeStates[s], v>>32&0xffff)
}

// treePtr takes a ptr apart.
func treePtr(v uint64) string {
	if v == 0 {
		return "none"
	}
	return fmt.Sprintf("%d+%#x.%d", v>>38&0xff, v&treeOffsetMask*64, v>>46)
}

// treeNode takes apart what is in a node of a tree from an offset on.
func treeNode(off uint64, b []byte) string {
	var parts []string
	for at := uint64(0); at+8 <= uint64(len(b)) && off+at <= 40 && (off+at)%8 == 0; at += 8 {
		v := binary.LittleEndian.Uint64(b[at:])
		switch off + at {
		case 0:
			parts = append(parts, treeWord(v))
		case 8:
			parts = append(parts, "self="+treePtr(v))
		case 16:
			parts = append(parts, "link="+treePtr(v))
		case 24:
			parts = append(parts, "token="+hexToken(v))
		case 32:
			parts = append(parts, fmt.Sprintf("version=%d", uint32(v)))
		case 40:
			parts = append(parts, fmt.Sprintf("level=%d", v&0xff))
		}
	}
	if off == 0 && len(b) > treeHeader {
		parts = append(parts, treeRecords(b))
	} else if off >= treeHeader {
		parts = append(parts, records(b))
	}
	return strings.Join(parts, " ")
}

// hexToken writes the token of the client that wrote a node.
func hexToken(v uint64) string {
	if v == 0 {
		return "none"
	}
	return fmt.Sprintf("%#x", v)
}

// treeRecords takes the fences and records of a whole node apart.
func treeRecords(b []byte) string {
	used := int(binary.LittleEndian.Uint64(b) >> 32 & 0xffff)
	low, high := int(binary.LittleEndian.Uint16(b[36:])), int(binary.LittleEndian.Uint16(b[38:]))
	first := treeHeader + low + high
	if used > len(b) || first > used {
		return ""
	}
	text := fmt.Sprintf("keys=[%q,", b[treeHeader:treeHeader+low])
	if b[41]&1 != 0 {
		text += fmt.Sprintf("%q)", b[treeHeader+low:first])
	} else {
		text += "∞)"
	}
	return text + " " + records(b[first:used])
}

// maxRecords bounds the records that a text shows.
const maxRecords = 6

// records takes records of a node of a tree apart.
func records(b []byte) string {
	var parts []string
	for len(b) >= 4 {
		h := binary.LittleEndian.Uint32(b)
		key, value := int(h&0xfff), int(h>>12&0xffff)
		if key == 0 || 4+key+value > len(b) {
			break
		}
		text := strconv.Quote(string(b[4 : 4+key]))
		switch h >> 28 {
		case 0:
			text += fmt.Sprintf("(%d B)", value)
		case 1:
			text += "(out of line)"
		case 2:
			text += "(deleted)"
		}
		if parts = append(parts, text); len(parts) == maxRecords {
			parts = append(parts, "..")
			break
		}
		b = b[4+key+value:]
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%d bytes", len(b))
	}
	return "records " + strings.Join(parts, " ")
}

// slots takes slots of a bucket of an object store apart, and its link, which is at an offset. What a slot points to is an object.
func (w *Words) slots(bucket fabric.Addr, link, off uint64, b []byte) string {
	var parts []string
	alone := len(b) == 8
	for ; len(b) >= 8; off, b = off+8, b[8:] {
		v := binary.LittleEndian.Uint64(b)
		switch {
		case off == link && v != 0:
			parts = append(parts, fmt.Sprintf("link=%#x", v&(1<<48-1)))
		case off == link && alone:
			parts = append(parts, "link=none")
		case v != 0:
			at := v & (1<<34 - 1) * 64
			if object := fabric.At(bucket.MN(), at); w.NameOf(object) == object.String() {
				w.Name(object, objectHeader, fmt.Sprintf("object at %#x", at), objectWords)
			}
			parts = append(parts, fmt.Sprintf("slot[%d]={fp=%#x,class=%d,tag=%d,at=%#x}", off/8, v>>51, v>>44&127, v>>34&63, v&(1<<34-1)*64))
		case alone:
			parts = append(parts, fmt.Sprintf("slot[%d]=0", off/8))
		}
	}
	if len(parts) == 0 {
		return "empty"
	}
	return strings.Join(parts, " ")
}

const (
	objectHeader = 32
	maxObject    = 8 << 20
)

// objectWords takes apart what is in the header of an object from an offset on.
func objectWords(off uint64, b []byte) string {
	if text := guess(b); off == 0 && text != "" {
		return text
	}
	switch {
	case off == 0 && len(b) == 8:
		return fmt.Sprintf("unique=%#x", binary.LittleEndian.Uint64(b))
	case off == 8 && len(b) == 8:
		return fmt.Sprintf("access=%d expiry=%d", binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]))
	}
	return plain(off, b)
}

// guess takes apart an object of a store: it is one if its header makes sense.
func guess(b []byte) string {
	const header = objectHeader
	if len(b) <= header || b[24] == 0 || b[26] != 0 || b[27] != 0 {
		return ""
	}
	key, value := int(b[24]), int(binary.LittleEndian.Uint32(b[20:]))
	if header+key > len(b) || value > maxObject {
		return ""
	}
	name := string(b[header : header+key])
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	text := fmt.Sprintf("%q of %d B, unique=%#x", name, value, binary.LittleEndian.Uint64(b))
	if expiry := binary.LittleEndian.Uint32(b[12:]); expiry != 0 {
		text += fmt.Sprintf(" expiry=%d", expiry)
	}
	return text
}
