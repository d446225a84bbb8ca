;; A policy that says `drifted` to every observation: for seeing that it can't keep a Node's agent from its work for ever.
;; `always_drifted.wasm` is this core module made into a component for the world `drift-only`; a test of `moorline-policy`
;; keeps both equal.
(module
  (memory (export "memory") 1)
  (global $free (mut i32) (i32.const 4096))
  (data (i32.const 16) "always-drifted")
  (data (i32.const 32) "0.1.0")
  (data (i32.const 128) "Says drifted to everything.")
  (data (i32.const 192) "nothing is ever as it was")
  (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
    (global.get $free)
    (global.set $free (i32.and (i32.add (i32.add (global.get $free) (local.get $size)) (i32.const 7)) (i32.const -8))))

  (func (export "moorline:policy/policy@0.1.0#describe") (result i32)
    (i32.store (i32.const 64) (i32.const 16)) (i32.store (i32.const 68) (i32.const 14))
    (i32.store (i32.const 72) (i32.const 32)) (i32.store (i32.const 76) (i32.const 5))
    (i32.store (i32.const 80) (i32.const 128)) (i32.store (i32.const 84) (i32.const 27))
    (i32.store8 (i32.const 88) (i32.const 0))
    (i32.const 64))
  (func (export "moorline:policy/policy@0.1.0#validate-settings") (param i32 i32 i32 i32) (result i32)
    (i32.store8 (i32.const 64) (i32.const 0))
    (i32.const 64))

  ;; ok(drifted(reason)): the tag of the result, the tag of the verdict, and the reason.
  (func (export "moorline:policy/drift@0.1.0#assess") (param i32) (result i32)
    (i32.store8 (i32.const 256) (i32.const 0))
    (i32.store8 (i32.const 260) (i32.const 1))
    (i32.store (i32.const 264) (i32.const 192)) (i32.store (i32.const 268) (i32.const 25))
    (i32.const 256)))
