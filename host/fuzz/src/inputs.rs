//! What is put through the host: an input follows from a seed and a number alone, so that any one can be made again.

use arbitrary::Unstructured;
use fastrand::Rng;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::Write as _;
use wasm_mutate::WasmMutate;
use wasm_smith::{Component, Config, Module};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, WorldId};

/// How an input came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A made-up core module.
    Module,
    /// A made-up component.
    Component,
    /// A made-up core module with the exports of a policy, made into a policy.
    Policy,
    /// A real policy whose code was changed to other valid code.
    Changed,
    /// A real policy with damaged bytes.
    Damaged,
    /// A real policy, compressed, with damaged bytes.
    Packed,
    /// Bytes.
    Noise,
}

impl Origin {
    pub const ALL: [Self; 7] =
        [Self::Module, Self::Component, Self::Policy, Self::Changed, Self::Damaged, Self::Packed, Self::Noise];
    /// Those of which a fair share gets past the first look.
    pub const LOADABLE: [Self; 4] = [Self::Policy, Self::Changed, Self::Changed, Self::Damaged];

    pub fn name(self) -> &'static str {
        match self {
            Self::Module => "made-up module",
            Self::Component => "made-up component",
            Self::Policy => "made-up policy",
            Self::Changed => "changed policy",
            Self::Damaged => "damaged policy",
            Self::Packed => "damaged archive",
            Self::Noise => "noise",
        }
    }
}

/// What inputs are made from.
pub struct Sources {
    /// Components that load.
    real: Vec<Vec<u8>>,
    /// A core module with the exports of a policy that answers drift.
    required: Vec<u8>,
    resolve: Resolve,
    world: WorldId,
}

const CONTRACT: &str = include_str!("../../../wit/policy.wit");
/// The exports that the encoder wants of a core module of the world `drift-only`.
const REQUIRED: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
  (func (export "moorline:policy/policy@0.1.0#describe") (result i32) unreachable)
  (func (export "moorline:policy/policy@0.1.0#validate-settings") (param i32 i32 i32 i32) (result i32) unreachable)
  (func (export "moorline:policy/drift@0.1.0#assess") (param i32) (result i32) unreachable))"#;

impl Sources {
    pub fn new() -> Result<Self, String> {
        let mut resolve = Resolve::default();
        let package = resolve.push_str("policy.wit", CONTRACT).map_err(|error| format!("{error:#}"))?;
        let world = resolve.select_world(&[package], Some("drift-only")).map_err(|error| format!("{error:#}"))?;
        let real: [&[u8]; 4] = [
            include_bytes!("../../../examples/policies/always-drifted/always_drifted.wasm"),
            include_bytes!("../../../examples/policies/trap-all/trap_all.wasm"),
            include_bytes!("../../../examples/policies/rust-drift/rust_drift.wasm"),
            include_bytes!("../../../policies/default/default.wasm"),
        ];
        Ok(Self {
            real: real.map(<[u8]>::to_vec).to_vec(),
            required: wat::parse_str(REQUIRED).map_err(|error| error.to_string())?,
            resolve,
            world,
        })
    }

    /// The policy that has to go on answering.
    pub fn good(&self) -> &[u8] {
        &self.real[2]
    }

    /// Makes an input. The makers give up on some seeds; then the seed itself is the input.
    pub fn make(&self, origin: Origin, rng: &mut Rng) -> Vec<u8> {
        let made = match origin {
            Origin::Module => module(None, rng),
            Origin::Component => {
                let bytes = entropy(rng);
                Component::new(config(None, rng), &mut Unstructured::new(&bytes)).ok().map(|made| made.to_bytes())
            }
            Origin::Policy => module(Some(&self.required), rng).and_then(|module| self.policy(module)),
            Origin::Changed => changed(self.any(rng), rng),
            Origin::Damaged => Some(self.damaged(self.any(rng).to_vec(), rng)),
            Origin::Packed => {
                let packed = packed(self.any(rng), rng.bool());
                // Half of them are whole: what is inside is damaged.
                Some(if rng.bool() { self.damaged(packed, rng) } else { packed_damage(self, rng) })
            }
            Origin::Noise => None,
        };
        made.unwrap_or_else(|| {
            let mut noise = entropy(rng);
            if rng.bool() {
                noise.splice(..0, *b"\0asm\x0d\0\x01\0");
            }
            noise
        })
    }

    /// One of the real ones; the small ones more often.
    fn any(&self, rng: &mut Rng) -> &[u8] {
        &self.real[[0, 0, 0, 1, 1, 2, 2, 3][rng.usize(..8)]]
    }

    fn policy(&self, mut module: Vec<u8>) -> Option<Vec<u8>> {
        embed_component_metadata(&mut module, &self.resolve, self.world, StringEncoding::UTF8).ok()?;
        ComponentEncoder::default().module(&module).ok()?.encode().ok()
    }

    fn damaged(&self, mut bytes: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
        for _ in 0..rng.usize(1..6) {
            if bytes.is_empty() {
                break;
            }
            let at = rng.usize(..bytes.len());
            let end = (at + rng.usize(1..64)).min(bytes.len());
            match rng.u8(..9) {
                0 => bytes[at] ^= 1 << rng.u8(..8),
                1 => bytes[at] = rng.u8(..),
                2 => bytes[at] = [0, 0x7f, 0x80, 0xff][rng.usize(..4)],
                3 => bytes.truncate(at),
                4 => drop(bytes.drain(at..end)),
                5 => {
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
                // The largest number that LEB128 holds in 32 bits, where a length may have been.
                6 => drop(bytes.splice(at..(at + 1), [0xff, 0xff, 0xff, 0xff, 0x0f])),
                7 => {
                    let other = self.any(rng);
                    let from = rng.usize(..other.len());
                    let to = (from + rng.usize(1..4096)).min(other.len());
                    bytes.splice(at..end, other[from..to].iter().copied());
                }
                _ => bytes[at..end].fill(rng.u8(..)),
            }
        }
        bytes
    }
}

fn packed_damage(sources: &Sources, rng: &mut Rng) -> Vec<u8> {
    packed(&sources.damaged(sources.any(rng).to_vec(), rng), rng.bool())
}

fn packed(bytes: &[u8], zstd: bool) -> Vec<u8> {
    if zstd {
        return compress_to_vec(bytes, CompressionLevel::Fastest);
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    match gzip.write_all(bytes).and_then(|()| gzip.finish()) {
        Ok(packed) => packed,
        // A vector takes every byte.
        Err(error) => unreachable!("{error}"),
    }
}

fn entropy(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; rng.usize(64..4096)];
    rng.fill(&mut bytes);
    bytes
}

/// Features that the host refuses are made as well: they must be refused with a sentence.
fn config(exports: Option<&[u8]>, rng: &mut Rng) -> Config {
    Config {
        exports: exports.map(<[u8]>::to_vec),
        max_imports: if exports.is_some() { 0 } else { 10 },
        min_funcs: 1,
        max_memories: 1,
        max_memory32_bytes: 64 << 20,
        max_tables: 2,
        gc_enabled: rng.u8(..8) == 0,
        threads_enabled: rng.u8(..8) == 0,
        memory64_enabled: rng.u8(..8) == 0,
        exceptions_enabled: rng.u8(..8) == 0,
        simd_enabled: rng.bool(),
        relaxed_simd_enabled: rng.u8(..8) == 0,
        tail_call_enabled: rng.bool(),
        ..Config::default()
    }
}

fn module(exports: Option<&[u8]>, rng: &mut Rng) -> Option<Vec<u8>> {
    let bytes = entropy(rng);
    Module::new(config(exports, rng), &mut Unstructured::new(&bytes)).ok().map(|module| module.to_bytes())
}

/// Changes the first core module inside a component to another one that is valid, and puts it back.
fn changed(component: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let module = Parser::new(0).parse_all(component).find_map(|payload| match payload {
        Ok(Payload::ModuleSection { unchecked_range, .. }) => Some(unchecked_range),
        _ => None,
    })?;
    let mut code = component[module.clone()].to_vec();
    for _ in 0..rng.usize(1..4) {
        let mut mutate = WasmMutate::default();
        mutate.seed(rng.u64(..)).fuel(200).preserve_semantics(rng.u8(..4) == 0);
        code = {
            let mut mutants = mutate.run(&code).ok()?;
            mutants.next()?.ok()?
        };
    }
    // The section's length stands before it, in LEB128.
    let length = leb128(module.len());
    let head = module.start.checked_sub(length.len())?;
    if component[head..module.start] != length {
        return None;
    }
    Some([&component[..head], &leb128(code.len()), &code, &component[module.end..]].concat())
}

fn leb128(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
