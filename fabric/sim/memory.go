package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The memory of a memory node is sparse: a page is made when something that
// is not zero is first written to it. Pages are small, for locks of a few
// hundred bytes are touched by Zipf all over gigabytes.
//
//	offset  63          19 18        8 7        0
//	       +--------------+-----------+----------+
//	       |     leaf     |   page    |  byte    |
//	       +--------------+-----------+----------+
//
// Pages are numbered, not pointed to: the tables hold nothing for the garbage
// collector to follow.
const (
	pageBits  = 8
	pageSize  = 1 << pageBits
	leafBits  = 11 // pages of a leaf
	leafShift = pageBits + leafBits
	slabBits  = 8 // pages of a slab
	slabPages = 1 << slabBits
)

type leaf [1 << leafBits]uint32 // page numbers, 0: no page

type memory struct {
	size  uint64
	root  []*leaf
	slabs [][]byte
	pages uint32 // pages in use; page 0 is never given out
}

func newMemory(size uint64) memory {
	return memory{size: size, root: make([]*leaf, (size+1<<leafShift-1)>>leafShift), pages: 1}
}

// page returns the page of an offset, nil if it is all zero.
func (m *memory) page(off uint64) []byte {
	l := m.root[off>>leafShift]
	if l == nil {
		return nil
	}
	n := l[off>>pageBits&(1<<leafBits-1)]
	if n == 0 {
		return nil
	}
	return m.slabPage(n)
}

func (m *memory) slabPage(n uint32) []byte {
	at := int(n&(slabPages-1)) << pageBits
	return m.slabs[n>>slabBits][at : at+pageSize : at+pageSize]
}

// makePage returns the page of an offset, made if need be.
func (m *memory) makePage(off uint64) []byte {
	l := m.root[off>>leafShift]
	if l == nil {
		l = new(leaf)
		m.root[off>>leafShift] = l
	}
	i := off >> pageBits & (1<<leafBits - 1)
	if l[i] == 0 {
		n := m.pages
		if n == 1<<32-1 {
			panic(fmt.Sprintf("sim: memory of %d bytes has too many pages", m.size))
		}
		m.pages++
		if int(n>>slabBits) == len(m.slabs) {
			m.slabs = append(m.slabs, make([]byte, m.slabSize()))
		}
		l[i] = n
	}
	return m.slabPage(l[i])
}

// slabSize returns the bytes of a new slab: a small memory has a small one, for exploration makes thousands of
// memories a second.
func (m *memory) slabSize() uint64 {
	return min(slabPages, m.size>>pageBits+2) << pageBits
}

// inBounds reports whether n bytes at off exist.
func (m *memory) inBounds(off uint64, n int) bool {
	return off <= m.size && uint64(n) <= m.size-off
}

func (m *memory) read(off uint64, buf []byte) {
	for len(buf) > 0 {
		in := off & (pageSize - 1)
		n := min(len(buf), int(pageSize-in))
		if p := m.page(off); p != nil {
			copy(buf[:n], p[in:])
		} else {
			clear(buf[:n])
		}
		buf = buf[n:]
		off += uint64(n)
	}
}

func (m *memory) write(off uint64, buf []byte) {
	for len(buf) > 0 {
		in := off & (pageSize - 1)
		n := min(len(buf), int(pageSize-in))
		p := m.page(off)
		if p == nil && !allZero(buf[:n]) {
			p = m.makePage(off)
		}
		if p != nil {
			copy(p[in:], buf[:n])
		}
		buf = buf[n:]
		off += uint64(n)
	}
}

func allZero(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }

// word and setWord access an aligned word; it lies in one page.
func (m *memory) word(off uint64) uint64 {
	if p := m.page(off); p != nil {
		return binary.LittleEndian.Uint64(p[off&(pageSize-1):])
	}
	return 0
}

// wordBytes returns the bytes of an aligned word that is about to be written.
func (m *memory) wordBytes(off uint64) []byte {
	p := m.page(off)
	if p == nil {
		p = m.makePage(off)
	}
	return p[off&(pageSize-1):]
}

func (m *memory) setWord(off, v uint64) {
	p := m.page(off)
	if p == nil {
		if v == 0 {
			return
		}
		p = m.makePage(off)
	}
	binary.LittleEndian.PutUint64(p[off&(pageSize-1):], v)
}

// hash returns the sum of the hashes of the words that n bytes at off touch.
// Zeros count nothing, so that it does not matter which pages there are.
func (m *memory) hash(off uint64, n int) uint64 {
	var sum uint64
	for at := off &^ 7; at < off+uint64(n); at += 8 {
		if v := m.word(at); v != 0 {
			sum += Mix(v ^ Mix(at))
		}
	}
	return sum
}

// equal reports whether memory at off is data.
func (m *memory) equal(off uint64, data []byte) bool {
	for len(data) > 0 {
		in := off & (pageSize - 1)
		n := min(len(data), int(pageSize-in))
		if page := m.page(off); page != nil {
			if string(page[in:in+uint64(n)]) != string(data[:n]) {
				return false
			}
		} else if !allZero(data[:n]) {
			return false
		}
		data = data[n:]
		off += uint64(n)
	}
	return true
}
