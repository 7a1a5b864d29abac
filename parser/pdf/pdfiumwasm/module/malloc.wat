;; A shelf in front of the allocator, put in its place by build.sh: PDFium asks
;; for and gives back small blocks all the time, a ninth of the time that a
;; page takes, and most of it goes to joining and cutting them again.
;;
;; A block of at most 256 bytes that is given back waits in the list of its
;; size. For the allocator it is still in use. The lists' heads lie in the 1,024
;; bytes below the module's data, which emscripten leaves empty (build.sh
;; checks that); the next of a list stands in the block itself.
(module
  (import "pdfium" "memory" (memory 1))
  (import "pdfium" "malloc" (func $malloc (param i32) (result i32)))
  (import "pdfium" "free" (func $free (param i32)))

  ;; bytes that wait in the lists, at most 8 MiB: what more is given back may be
  ;; joined to larger blocks.
  (global $waiting (mut i32) (i32.const 0))

  ;; dlmalloc has the size of a block in the 4 bytes before it, these included,
  ;; in the upper 29 bits. The list at 512 + 4k holds blocks of 16k to 16k + 15.
  (func (export "sheaf_malloc") (param $n i32) (result i32)
    (local $list i32) (local $block i32)
    (if (i32.le_u (local.get $n) (i32.const 252))
      (then
        ;; 4 bytes for the size, rounded up to 16
        (local.set $list (i32.and (i32.shr_u (i32.add (local.get $n) (i32.const 19)) (i32.const 2)) (i32.const 0x7C)))
        (local.set $block (i32.load offset=512 (local.get $list)))
        (if (local.get $block)
          (then
            (i32.store offset=512 (local.get $list) (i32.load (local.get $block)))
            (global.set $waiting (i32.sub (global.get $waiting)
              (i32.and (i32.load (i32.sub (local.get $block) (i32.const 4))) (i32.const -8))))
            (return (local.get $block))))))
    (call $malloc (local.get $n)))

  (func (export "sheaf_free") (param $block i32)
    (local $size i32) (local $list i32)
    (if (i32.eqz (local.get $block)) (then (return)))
    (local.set $size (i32.and (i32.load (i32.sub (local.get $block) (i32.const 4))) (i32.const -8)))
    (if (i32.le_u (local.get $size) (i32.const 271))
      (then
        (if (i32.lt_u (global.get $waiting) (i32.const 0x800000))
          (then
            (local.set $list (i32.and (i32.shr_u (local.get $size) (i32.const 2)) (i32.const 0x7C)))
            (i32.store (local.get $block) (i32.load offset=512 (local.get $list)))
            (i32.store offset=512 (local.get $list) (local.get $block))
            (global.set $waiting (i32.add (global.get $waiting) (local.get $size)))
            (return)))))
    (call $free (local.get $block)))
)
