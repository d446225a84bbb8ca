;; A policy that traps in every hook: for seeing that an agent lives on, and what it says then.
;; `trap_all.wasm` is this core module made into a component for the world `full`; a test of `moorline-policy` keeps both equal.
(module
  (memory (export "memory") 1)
  (global $free (mut i32) (i32.const 4096))
  (data (i32.const 16) "trap-all")
  (data (i32.const 32) "0.1.0")
  (data (i32.const 128) "Traps in every hook.")
  (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
    (global.get $free)
    (global.set $free (i32.and (i32.add (i32.add (global.get $free) (local.get $size)) (i32.const 7)) (i32.const -8))))

  ;; It loads like any other: it describes itself and is content with all settings.
  (func (export "moorline:policy/policy@0.1.0#describe") (result i32)
    (i32.store (i32.const 64) (i32.const 16)) (i32.store (i32.const 68) (i32.const 8))
    (i32.store (i32.const 72) (i32.const 32)) (i32.store (i32.const 76) (i32.const 5))
    (i32.store (i32.const 80) (i32.const 128)) (i32.store (i32.const 84) (i32.const 20))
    (i32.store8 (i32.const 88) (i32.const 0))
    (i32.const 64))
  (func (export "moorline:policy/policy@0.1.0#validate-settings") (param i32 i32 i32 i32) (result i32)
    (i32.store8 (i32.const 64) (i32.const 0))
    (i32.const 64))

  (func $trap (param i32) (result i32) unreachable)
  (export "moorline:policy/adoption@0.1.0#adopt" (func $trap))
  (export "moorline:policy/drift@0.1.0#assess" (func $trap))
  (export "moorline:policy/taints@0.1.0#unwanted" (func $trap))
  (export "moorline:policy/cni@0.1.0#render" (func $trap))
  (export "moorline:policy/acknowledgment@0.1.0#annotate" (func $trap))
  ;; An attempt is small enough to be passed field by field.
  (func (export "moorline:policy/retry@0.1.0#next") (param i32 i32 i32 i32 i32 i64 i32 i64 i32 i32 i32 i32 i32) (result i32)
    unreachable))
