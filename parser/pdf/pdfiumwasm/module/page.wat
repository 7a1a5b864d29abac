;; Loops over what lies on a page, merged into PDFium's module by build.sh.
;; A page has thousands of characters and objects, and a call from Go into the
;; module costs more than what most of these functions do. They keep no state,
;; use no stack in memory, and write only to the array that the caller gives, but
;; for sheaf_place.
;;
;; Handles are pointers inside the module; indexes count from 0.
(module
  (import "pdfium" "memory" (memory 1))
  (import "pdfium" "FPDF_GetPageCount" (func $pageCount (param i32) (result i32)))
  (import "pdfium" "FPDFText_GetUnicode" (func $unicode (param i32 i32) (result i32)))
  (import "pdfium" "FPDFText_GetLooseCharBox" (func $looseBox (param i32 i32 i32) (result i32)))
  (import "pdfium" "FPDFText_GetTextObject" (func $textObject (param i32 i32) (result i32)))
  (import "pdfium" "FPDFText_GetFontSize" (func $fontSize (param i32 i32) (result f64)))
  (import "pdfium" "FPDFText_GetCharAngle" (func $charAngle (param i32 i32) (result f32)))
  (import "pdfium" "FPDFTextObj_GetFont" (func $objectFont (param i32) (result i32)))
  (import "pdfium" "FPDFPage_GetObject" (func $pageObject (param i32 i32) (result i32)))
  (import "pdfium" "FPDFFormObj_GetObject" (func $formObject (param i32 i32) (result i32)))
  (import "pdfium" "FPDFPageObj_GetType" (func $objectType (param i32) (result i32)))
  (import "pdfium" "FPDFPageObj_GetBounds" (func $objectBounds (param i32 i32 i32 i32 i32) (result i32)))
  (import "pdfium" "FPDFPath_GetPathSegment" (func $pathSegment (param i32 i32) (result i32)))
  (import "pdfium" "FPDFPathSegment_GetType" (func $segmentType (param i32) (result i32)))
  (import "pdfium" "FPDFPathSegment_GetPoint" (func $segmentPoint (param i32 i32 i32) (result i32)))
  (import "pdfium" "FPDFPathSegment_GetClose" (func $segmentClose (param i32) (result i32)))

  ;; sheaf_chars writes n characters of a text page from the one at index on,
  ;; 40 bytes each:
  ;;    0 i32 code unit
  ;;    4 i32 text object, where a word begins and its object is neither 0 nor
  ;;          the one before it; else 0
  ;;    8 f32 left, top, right, bottom; not written for what separates words
  ;;   24 f64 font size   \
  ;;   32 i32 font         > only where a text object is written
  ;;   36 f32 angle       /
  ;; inWord says that the character before index belongs to a word, last is the
  ;; object written last. The result is inWord for the character after them.
  (func (export "sheaf_chars")
    (param $text i32) (param $index i32) (param $n i32) (param $inWord i32) (param $last i32) (param $out i32)
    (result i32)
    (local $end i32) (local $unit i32) (local $object i32)
    (local.set $end (i32.add (local.get $index) (local.get $n)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_s (local.get $index) (local.get $end)))
        (local.set $unit (call $unicode (local.get $text) (local.get $index)))
        (i32.store (local.get $out) (local.get $unit))
        (i32.store offset=4 (local.get $out) (i32.const 0))
        (block $written
          (if (call $space (local.get $unit))
            (then
              (local.set $inWord (i32.const 0))
              (br $written)))
          (drop (call $looseBox (local.get $text) (local.get $index) (i32.add (local.get $out) (i32.const 8))))
          (br_if $written (local.get $inWord))
          (local.set $inWord (i32.const 1))
          (local.set $object (call $textObject (local.get $text) (local.get $index)))
          (br_if $written (i32.eqz (local.get $object)))
          (br_if $written (i32.eq (local.get $object) (local.get $last)))
          (local.set $last (local.get $object))
          (i32.store offset=4 (local.get $out) (local.get $object))
          (f64.store offset=24 (local.get $out) (call $fontSize (local.get $text) (local.get $index)))
          (i32.store offset=32 (local.get $out) (call $objectFont (local.get $object)))
          (f32.store offset=36 (local.get $out) (call $charAngle (local.get $text) (local.get $index))))
        (local.set $index (i32.add (local.get $index) (i32.const 1)))
        (local.set $out (i32.add (local.get $out) (i32.const 40)))
        (br $next)))
    (local.get $inWord))

  ;; $space is engine.Space; a test holds them equal.
  (func $space (export "sheaf_space") (param $unit i32) (result i32)
    (if (i32.gt_u (local.get $unit) (i32.const 32))
      (then (return (i32.eq (local.get $unit) (i32.const 0xA0)))))
    ;; bits 0, 9 (tab), 10 (line feed), 13 (carriage return) and 32 (space)
    (i32.wrap_i64
      (i64.and
        (i64.shr_u (i64.const 0x100002601) (i64.extend_i32_u (local.get $unit)))
        (i64.const 1))))

  ;; sheaf_objects writes the paths (2), images (3) and forms (5) among the
  ;; objects of a page, or of a form, from index to end (exclusive), at most
  ;; room of them, and returns their number. 32 bytes each:
  ;;    0 i32 index
  ;;    4 i32 object
  ;;    8 i32 type, fpdf_edit.h: FPDF_PAGEOBJ_*
  ;;   12 i32 not 0 where the bounds are known; they are not asked for forms
  ;;   16 f32 left, bottom, right, top
  (func (export "sheaf_objects")
    (param $parent i32) (param $isForm i32) (param $index i32) (param $end i32) (param $out i32) (param $room i32)
    (result i32)
    (local $n i32) (local $object i32) (local $type i32)
    (block $done
      (loop $next
        (br_if $done (i32.ge_s (local.get $index) (local.get $end)))
        (br_if $done (i32.ge_s (local.get $n) (local.get $room)))
        (local.set $object
          (if (result i32) (local.get $isForm)
            (then (call $formObject (local.get $parent) (local.get $index)))
            (else (call $pageObject (local.get $parent) (local.get $index)))))
        (block $written
          (br_if $written (i32.eqz (local.get $object)))
          (local.set $type (call $objectType (local.get $object)))
          (br_if $written
            (i32.and
              (i32.ne (local.get $type) (i32.const 5))
              (i32.ne (i32.and (local.get $type) (i32.const -2)) (i32.const 2)))) ;; 2 and 3
          (i32.store (local.get $out) (local.get $index))
          (i32.store offset=4 (local.get $out) (local.get $object))
          (i32.store offset=8 (local.get $out) (local.get $type))
          (i32.store offset=12 (local.get $out)
            (if (result i32) (i32.eq (local.get $type) (i32.const 5))
              (then (i32.const 0))
              (else
                (call $objectBounds (local.get $object)
                  (i32.add (local.get $out) (i32.const 16))
                  (i32.add (local.get $out) (i32.const 20))
                  (i32.add (local.get $out) (i32.const 24))
                  (i32.add (local.get $out) (i32.const 28))))))
          (local.set $out (i32.add (local.get $out) (i32.const 32)))
          (local.set $n (i32.add (local.get $n) (i32.const 1))))
        (local.set $index (i32.add (local.get $index) (i32.const 1)))
        (br $next)))
    (local.get $n))

  ;; sheaf_segments writes the first n segments of a path, 16 bytes each, and
  ;; returns how many of them could be read:
  ;;    0 i32 type, fpdf_edit.h: FPDF_SEGMENT_*
  ;;    4 i32 not 0 where the figure is closed
  ;;    8 f32 x, y
  (func (export "sheaf_segments") (param $path i32) (param $n i32) (param $out i32) (result i32)
    (local $k i32) (local $segment i32)
    (block $done
      (loop $next
        (br_if $done (i32.ge_s (local.get $k) (local.get $n)))
        (local.set $segment (call $pathSegment (local.get $path) (local.get $k)))
        (br_if $done (i32.eqz (local.get $segment)))
        (i32.store (local.get $out) (call $segmentType (local.get $segment)))
        (br_if $done
          (i32.eqz
            (call $segmentPoint (local.get $segment)
              (i32.add (local.get $out) (i32.const 8))
              (i32.add (local.get $out) (i32.const 12)))))
        (i32.store offset=4 (local.get $out) (call $segmentClose (local.get $segment)))
        (local.set $out (i32.add (local.get $out) (i32.const 16)))
        (local.set $k (i32.add (local.get $k) (i32.const 1)))
        (br $next)))
    (local.get $k))

  ;; sheaf_place says which objects n pages of a document are, from the one at
  ;; index on: their object numbers, 4 bytes each. To find a page, PDFium reads the
  ;; objects of all pages before it, and of all pages to say which one a link leads
  ;; to. It keeps their numbers in CPDF_Document::m_PageList, a vector of uint32_t
  ;; at offset 100 (begin, end), 0 for those that it has not met; what it has met
  ;; stays. The result is 0, and nothing is written, where that is not a list of as
  ;; many pages as the document has.
  (func (export "sheaf_place")
    (param $document i32) (param $index i32) (param $n i32) (param $numbers i32)
    (result i32)
    (local $at i32) (local $count i32) (local $end i32)
    (local.set $at (i32.load offset=100 (local.get $document)))
    (local.set $count (call $pageCount (local.get $document)))
    (if (i32.or
          (i32.ne
            (i32.sub (i32.load offset=104 (local.get $document)) (local.get $at))
            (i32.shl (local.get $count) (i32.const 2)))
          (i32.or
            (i32.or (i32.lt_s (local.get $index) (i32.const 0)) (i32.lt_s (local.get $n) (i32.const 0)))
            (i32.gt_s (local.get $n) (i32.sub (local.get $count) (local.get $index)))))
      (then (return (i32.const 0))))
    (local.set $at (i32.add (local.get $at) (i32.shl (local.get $index) (i32.const 2))))
    (local.set $end (i32.add (local.get $at) (i32.shl (local.get $n) (i32.const 2))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (if (i32.eqz (i32.load (local.get $at)))
          (then (i32.store (local.get $at) (i32.load (local.get $numbers)))))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (local.set $numbers (i32.add (local.get $numbers) (i32.const 4)))
        (br $next)))
    (i32.const 1))
)
