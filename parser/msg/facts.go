package msg

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Outlook saves appointments and contacts as messages too, whose facts are no text of
// theirs but properties ([MS-OXOCAL], [MS-OXOCNTC]).

// Sets of properties that a file numbers itself ([MS-OXPROPS] 1.3.2), as GUIDs.
const (
	setAppointment = "\x02\x20\x06\x00\x00\x00\x00\x00\xC0\x00\x00\x00\x00\x00\x00\x46"
	setAddress     = "\x04\x20\x06\x00\x00\x00\x00\x00\xC0\x00\x00\x00\x00\x00\x00\x46"
)

// fact is a property by the name that readers see.
type fact struct {
	label string
	prop  string // as in propSubject; "" for a property of a set
	set   string
	id    uint32
}

var contactFacts = []fact{
	{label: "Name", prop: "3001"}, {label: "Company", prop: "3A16"}, {label: "Department", prop: "3A18"}, {label: "Title", prop: "3A17"},
	{label: "Email", set: setAddress, id: 0x8083}, {label: "Email", set: setAddress, id: 0x8093}, {label: "Email", set: setAddress, id: 0x80A3},
	{label: "Business phone", prop: "3A08"}, {label: "Mobile phone", prop: "3A1C"}, {label: "Home phone", prop: "3A09"},
	{label: "Business address", set: setAddress, id: 0x801B}, {label: "Home address", set: setAddress, id: 0x801A}, {label: "Web page", set: setAddress, id: 0x802B},
}

// facts lists what an appointment or a contact says beside its text.
func (s *storage) facts(page string) string {
	var b strings.Builder
	line := func(label, value string) {
		if value = strings.Join(strings.Fields(value), " "); value != "" {
			b.WriteString(label + ": " + value + "\n")
		}
	}
	switch class := strings.ToUpper(s.text(propClass, page)); {
	case strings.HasPrefix(class, "IPM.APPOINTMENT"), strings.HasPrefix(class, "IPM.SCHEDULE.MEETING"):
		for _, t := range []struct {
			label string
			tag   uint32
			id    uint32
		}{{"Start", tagStart, 0x820D}, {"End", tagEnd, 0x820E}} {
			v, ok := s.fixed(t.tag)
			if !ok {
				v, _ = s.fixed(s.numbers[named{setAppointment, t.id}]<<16 | typeTime)
			}
			line(t.label, fileTime(v, "2006-01-02 15:04 UTC"))
		}
		line("Location", s.text(s.prop(setAppointment, 0x8208), page))
	case strings.HasPrefix(class, "IPM.CONTACT"):
		for _, f := range contactFacts {
			prop := f.prop
			if prop == "" {
				prop = s.prop(f.set, f.id)
			}
			line(f.label, s.text(prop, page))
		}
	}
	return b.String()
}

// named is a property of a set.
type named struct {
	set string
	id  uint32
}

const (
	typeTime   = 0x0040
	firstNamed = 0x8000
	firstSet   = 3 // in the list of sets; those before have names of their own
)

// readNumbers reads which numbers a file gives to the properties of sets ([MS-OXMSG]
// 2.2.3). They hold for the messages inside it, too.
func (s *storage) readNumbers() map[named]uint32 {
	f := s.folders["__nameid_version1.0"]
	if f == nil {
		return nil
	}
	sets, entries := f.streams["00020102"], f.streams["00030102"]
	out := map[named]uint32{}
	for ; len(entries) >= 8; entries = entries[8:] {
		id, kind, index := binary.LittleEndian.Uint32(entries), binary.LittleEndian.Uint16(entries[4:]), binary.LittleEndian.Uint16(entries[6:])
		at := 16 * (int(kind>>1) - firstSet)
		if kind&1 == 0 && at >= 0 && at+16 <= len(sets) && index < firstNamed {
			out[named{string(sets[at : at+16]), id}] = firstNamed + uint32(index)
		}
	}
	return out
}

// prop is the name of a property's stream; one that no file has if the file has no
// number for it.
func (s *storage) prop(set string, id uint32) string {
	return fmt.Sprintf("%04X", s.numbers[named{set, id}])
}
