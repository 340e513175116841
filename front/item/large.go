package item

import (
	"context"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// open is itemOf of an object that was opened.
func (it *Item) open(o *objstore.Item, l *objstore.Large, now fabric.Time) bool {
	size := len(o.Value)
	if l != nil {
		size = l.Size()
	}
	it.Large = l
	return it.itemOf(o, size, now)
}

// Segment is from how many bytes on values are stored by Upload; 0: never.
func (x *Items) Segment() int { return x.objects().Segment() }

// Read appends a part of an item's value in segments to dst. objstore.ErrChanged: it is not there any more.
func (x *Items) Read(ctx context.Context, l *objstore.Large, from, n int, dst []byte) (_ []byte, err error) {
	err = x.objects().Use(ctx, func(c *objstore.Client) (err error) {
		dst, err = c.Read(l, HeadSize+from, n, dst)
		return err
	})
	return dst, err
}

// Upload begins to store a value of a size in segments: Change.Upload puts it, or Abort gives it up.
func (x *Items) Upload(ctx context.Context, key []byte, size int) (u *objstore.Upload, err error) {
	err = x.objects().Use(ctx, func(c *objstore.Client) (err error) {
		u, err = c.Upload(key, HeadSize, HeadSize+size)
		return err
	})
	return u, err
}

// UploadToFill is Upload of segments that Place and Fill are to store, where they can.
func (x *Items) UploadToFill(ctx context.Context, key []byte, size int) (u *objstore.Upload, err error) {
	err = x.objects().Use(ctx, func(c *objstore.Client) (err error) {
		u, err = c.UploadToFill(key, HeadSize, HeadSize+size)
		return err
	})
	return u, err
}

// Write writes a segment of an upload.
func (x *Items) Write(ctx context.Context, u *objstore.Upload, i int, data []byte) error {
	return x.objects().Use(ctx, func(c *objstore.Client) error { return c.Write(u, i, data) })
}

// Place stores a segment of an upload that Fill fills, and reports whether it has; else Write is to write it.
func (x *Items) Place(ctx context.Context, u *objstore.Upload, i int) (placed bool, err error) {
	err = x.objects().Use(ctx, func(c *objstore.Client) (err error) {
		placed, err = c.Place(u, i)
		return err
	})
	return placed, err
}

// Fill fills a segment of an upload that was placed, from an offset on, with what f has, and returns how much that was.
func (x *Items) Fill(ctx context.Context, u *objstore.Upload, i, from int, f func(dst []byte) int) (n int, err error) {
	err = x.objects().Use(ctx, func(c *objstore.Client) (err error) {
		n, err = c.Fill(u, i, from, f)
		return err
	})
	return n, err
}

// Abort gives an upload up, unless it was put.
func (x *Items) Abort(ctx context.Context, u *objstore.Upload) error {
	return x.objects().Use(ctx, func(c *objstore.Client) error { return c.Abort(u) })
}
