package ragflow

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"sheaf"
	"sheaf/internal/facade"
)

// picturesDataset holds the pictures given to chunks, each as an unparsed file: it
// counts toward the quotas, but is not shown as a dataset. A picture is named after
// its document and the edit of its chunk, so that it survives a reparse of the
// document.
const picturesDataset = "ragflow-pictures"

// Bounds of the pictures of chunks.
const (
	maxPicture     = 4 << 20 // bytes
	maxPictureText = maxPicture/3*4 + 1024
)

// pictureTypes are the picture types a chunk can be given.
var pictureTypes = map[string]string{"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}

// pictureOf reads the picture to give to a chunk, nil if none.
func pictureOf(in object) ([]byte, error) {
	v := in["image_base64"]
	text, ok := v.(string)
	switch {
	case v == nil || ok && strings.TrimSpace(text) == "":
		return nil, nil
	case !ok:
		return nil, bad("`image_base64` must be a string")
	case len(text) > maxPictureText:
		return nil, bad("`image_base64` holds more than %d bytes; make the picture smaller", maxPicture)
	}
	if head, data, url := strings.Cut(text, ","); url && strings.HasPrefix(head, "data:") {
		text = data
	}
	picture, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, bad("`image_base64` is no base64: %v", err)
	}
	if len(picture) > maxPicture {
		return nil, bad("`image_base64` holds more than %d bytes; make the picture smaller", maxPicture)
	}
	if pictureTypes[http.DetectContentType(picture)] == "" {
		return nil, bad("`image_base64` is no PNG, JPEG, GIF or WebP")
	}
	return picture, nil
}

// keepPicture stores the picture of an edited chunk, replacing any previous one.
func (c *call) keepPicture(d *document, editID string, picture []byte) error {
	if err := c.EnsureDataset(c.ctx, picturesDataset); err != nil {
		return err
	}
	name := d.ID + "-" + editID
	former, err := c.pictureFiles(name)
	if err != nil {
		return err
	}
	q := url.Values{"hold": {"true"}, "name": {name + pictureTypes[http.DetectContentType(picture)]}}
	resp, err := c.Do(c.ctx, http.MethodPost, facade.Path("v1", "datasets", picturesDataset, "documents")+"?"+q.Encode(), bytes.NewReader(picture), nil)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	var ids []string
	for _, f := range former {
		ids = append(ids, f.ID)
	}
	return c.dropPictures(ids)
}

// pictureFiles lists pictures with name in their names, newest first; "" is all.
func (c *call) pictureFiles(name string) ([]*document, error) {
	q := url.Values{"fields": {"id,name"}}
	if name != "" {
		q.Set("q", name)
	}
	files, err := c.documents(picturesDataset, q)
	if missing(err) {
		return nil, nil
	}
	return files, err
}

// dropPictures deletes pictures by id.
func (c *call) dropPictures(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	err := c.Call(c.ctx, http.MethodPost, facade.Path("v1", "datasets", picturesDataset, "documents:delete"), object{"filter": object{"document_ids": ids}}, nil)
	if missing(err) {
		return nil
	}
	return err
}

// ownersAtOnce bounds the owners looked up per request.
const ownersAtOnce = 500

// forgetPictures deletes the pictures of deleted documents, including those deleted
// through /v1, which knows nothing of pictures.
func (c *call) forgetPictures() error {
	files, err := c.pictureFiles("")
	if err != nil {
		return err
	}
	byOwner := map[string][]string{} // ids of pictures
	for _, f := range files {
		if owner, _, ok := strings.Cut(f.Name, "-"); ok && sheaf.ValidID(owner) {
			byOwner[owner] = append(byOwner[owner], f.ID)
		}
	}
	for owners := range slices.Chunk(slices.Sorted(maps.Keys(byOwner)), ownersAtOnce) {
		there, err := c.documents("-", url.Values{"id": owners, "fields": {"id"}})
		if err != nil {
			return err
		}
		for _, d := range there {
			delete(byOwner, d.ID)
		}
	}
	for ids := range slices.Chunk(slices.Concat(slices.Collect(maps.Values(byOwner))...), ownersAtOnce) {
		if err := c.dropPictures(ids); err != nil {
			return err
		}
	}
	return nil
}

// pictured reads which chunks of a document were given pictures.
func (c *call) pictured(d *document) error {
	if d.pictures != nil || !d.record.Pictures {
		return nil
	}
	d.pictures = map[string]string{}
	files, err := c.pictureFiles(d.ID + "-")
	if err != nil || len(files) == 0 {
		return err
	}
	byEdit := map[string]string{}
	for _, f := range files {
		id, _, _ := strings.Cut(strings.TrimPrefix(f.Name, d.ID+"-"), ".")
		if byEdit[id] == "" { // the newest wins
			byEdit[id] = f.ID
		}
	}
	all, err := c.edits(d)
	for _, e := range all {
		chunk := e.ChunkID
		if e.Added {
			chunk = e.ID
		}
		if file := byEdit[e.ID]; file != "" && chunk != "" {
			d.pictures[chunk] = file
		}
	}
	return err
}

// editID returns the id of a chunk's edit, which identifies its picture.
func (c *call) editID(d *document, chunkID string) (string, error) {
	var out struct {
		Edit *struct {
			ID string `json:"id"`
		} `json:"edit"`
	}
	if err := c.Call(c.ctx, http.MethodGet, c.chunksPath(d, chunkID), nil, &out); err != nil {
		return "", err
	}
	if out.Edit == nil {
		return "", fmt.Errorf("chunk %s has no edit: %w", chunkID, sheaf.ErrNotFound)
	}
	return out.Edit.ID, nil
}

// givePicture stores the picture of an edited chunk, nil if none.
func (c *call) givePicture(d *document, chunkID string, picture []byte) error {
	if picture == nil {
		return nil
	}
	id, err := c.editID(d, chunkID)
	if err != nil {
		return err
	}
	if err := c.keepPicture(d, id, picture); err != nil {
		return err
	}
	d.pictures = nil
	return c.change(d, func(r *documentRecord) bool {
		was := r.Pictures
		r.Pictures = true
		return !was
	})
}
