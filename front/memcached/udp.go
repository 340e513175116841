package memcached

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"time"
)

// A datagram begins with 8 bytes: number of the request, number of the datagram in its answer, how many there are, and 2 that are zero.
const (
	udpHeader  = 8
	udpPayload = 1400
	udpLargest = 64 << 10
)

// ServePacket serves clients over UDP until Shutdown, and returns ErrServerClosed then. A request is one datagram, whose sender nothing proves: do not
// have it reached from elsewhere than by clients.
func (s *Server) ServePacket(l net.PacketConn) error {
	if !s.accept.Listen(packetListener{l}) {
		_ = l.Close()
		return ErrServerClosed
	}
	defer s.accept.Unlisten(packetListener{l})
	var wg sync.WaitGroup
	var err error
	var once sync.Once
	for range 2 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			failed := s.servePackets(l)
			once.Do(func() { err = failed })
			_ = l.Close()
		})
	}
	wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return ErrServerClosed
	}
	return err
}

// A packetListener is known by the address that it listens at.
type packetListener struct{ net.PacketConn }

// Addr returns it.
func (p packetListener) Addr() net.Addr { return p.LocalAddr() }

// servePackets serves datagrams, one after the other.
func (s *Server) servePackets(l net.PacketConn) error {
	b, frame := make([]byte, udpLargest), make([]byte, 0, udpHeader+udpPayload)
	for {
		n, from, err := l.ReadFrom(b)
		if err != nil {
			return err
		}
		s.counted.read.Add(uint64(n))
		if n < udpHeader {
			continue
		}
		var answer []byte
		if of := binary.BigEndian.Uint16(b[4:]); of != 1 {
			answer = []byte("SERVER_ERROR multi-packet request not supported\r\n")
		} else {
			answer = s.servePacket(b[udpHeader:n], from, l.LocalAddr())
		}
		total := (len(answer) + udpPayload - 1) / udpPayload
		for i := 0; i < total && total < 1<<16; i++ {
			part := answer[i*udpPayload : min((i+1)*udpPayload, len(answer))]
			frame = append(frame[:0], b[:2]...)
			frame = binary.BigEndian.AppendUint16(frame, uint16(i))
			frame = binary.BigEndian.AppendUint16(frame, uint16(total))
			frame = append(append(frame, 0, 0), part...)
			if _, err := l.WriteTo(frame, from); err != nil {
				break
			}
			s.counted.written.Add(uint64(len(frame)))
		}
	}
}

// servePacket returns the answers to the requests of a datagram.
func (s *Server) servePacket(requests []byte, from, at net.Addr) []byte {
	nc := &datagram{from: from, at: at}
	c := newConn(s, nc)
	c.in, c.to = requests, len(requests)
	c.admitted = s.users == nil
	for c.from < c.to && c.next() == nil {
	}
	_ = c.flush()
	return nc.out
}

// A datagram is the connection of a client, of which one datagram has been read.
type datagram struct {
	from, at net.Addr
	out      []byte
}

func (p *datagram) Read([]byte) (int, error) { return 0, io.EOF }

func (p *datagram) Write(b []byte) (int, error) {
	p.out = append(p.out, b...)
	return len(b), nil
}

func (p *datagram) Close() error                     { return nil }
func (p *datagram) LocalAddr() net.Addr              { return p.at }
func (p *datagram) RemoteAddr() net.Addr             { return p.from }
func (p *datagram) SetDeadline(time.Time) error      { return nil }
func (p *datagram) SetReadDeadline(time.Time) error  { return nil }
func (p *datagram) SetWriteDeadline(time.Time) error { return nil }
