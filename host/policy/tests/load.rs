//! What isn't a policy of this contract is refused at load, with a reason that says what to do; the others load.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

mod guests;

use std::{fs, io::Write as _, os::unix::fs::symlink};

use guests::{CONTRACT, SAME, component, drift, drift_core, engine, load};
use moorline_policy::{Digest, Hook as _, Hooks, Limits, LoadFault, Loader, hooks::Drift};

fn refusal(bytes: &[u8]) -> LoadFault {
    let error = load(bytes).unwrap_err();
    assert!(error.to_string().starts_with("The policy `guest` (sha256 "), "{error}");
    error.fault
}

#[test]
fn a_file_that_is_no_component_is_called_what_it_is() {
    let cases: [(&[u8], &str); 5] = [
        (b"#!/bin/sh", "something else"),
        (b"", "empty"),
        (b"\x7fELF\x02\x01", "native object file"),
        (b" (component)", "WebAssembly text"),
        (b"\0asm\x01\0\0\0", "core WebAssembly module"),
    ];
    for (bytes, kind) in cases {
        let fault = refusal(bytes);
        assert_eq!(fault.kind(), "not-a-component");
        assert!(
            fault.to_string().contains("this file is not a WebAssembly component") && fault.to_string().contains(kind),
            "{fault}"
        );
    }
}

#[test]
fn a_truncated_or_mutated_component_is_refused() {
    let whole = drift(SAME);
    for length in [9, 20, whole.len() / 2, whole.len() - 1] {
        let fault = refusal(&whole[..length]);
        assert!(
            ["malformed", "no-policy-interface", "compile", "no-hook"].contains(&fault.kind()),
            "{length}: {fault}"
        );
    }
    let mut mutated = whole.clone();
    let middle = mutated.len() / 2;
    mutated[middle..middle + 16].fill(0xff);
    let _ = load(&mutated); // Whatever it says, it says it without a panic.
}

#[test]
fn a_component_larger_than_allowed_is_refused_before_it_is_looked_at() {
    let loader = Loader::new(&engine()).with_limits(Limits { component_bytes: 100, ..Limits::default() });
    let error = loader.load("guest", &[0; 101]).unwrap_err();
    assert!(matches!(error.fault, LoadFault::TooLarge { packed: false, limit: 100 }), "{error}");
}

#[test]
fn an_import_beside_the_log_is_refused() {
    let wit = format!(
        "{CONTRACT}
         world wants-a-clock {{ import wasi:clocks/wall-clock@0.2.0; export policy; export drift; }}
         package wasi:clocks@0.2.0 {{ interface wall-clock {{ now: func() -> u64; }} }}"
    );
    let import = r#"(import "wasi:clocks/wall-clock@0.2.0" "now" (func (result i64)))"#;
    let fault = refusal(&component(&wit, "wants-a-clock", &drift_core(import, "", SAME)));
    assert!(
        matches!(&fault, LoadFault::ForbiddenImport { import } if import == "wasi:clocks/wall-clock@0.2.0"),
        "{fault}"
    );
}

#[test]
fn a_function_that_the_hosts_log_doesnt_have_is_refused() {
    let wit = CONTRACT.replace("interface host-log {", "interface host-log { flush: func();");
    let import = r#"(import "moorline:policy/host-log@0.1.0" "flush" (func))"#;
    assert_eq!(refusal(&component(&wit, "drift-only", &drift_core(import, "", SAME))).kind(), "wrong-signature");
}

#[test]
fn another_version_of_the_contract_is_refused_and_both_are_named() {
    let (wit, core) = (CONTRACT.replace("@0.1.0", "@0.2.0"), drift_core("", "", SAME).replace("@0.1.0", "@0.2.0"));
    let fault = refusal(&component(&wit, "drift-only", &core));
    let LoadFault::OtherContract { found, spoken } = fault else { panic!("{fault}") };
    assert_eq!((found.as_str(), spoken.as_str()), ("moorline:policy@0.2.0", "moorline:policy@0.1.0"));
}

#[test]
fn a_later_patch_of_the_contract_is_accepted() {
    let (wit, core) = (CONTRACT.replace("@0.1.0", "@0.1.7"), drift_core("", "", SAME).replace("@0.1.0", "@0.1.7"));
    let policy = load(&component(&wit, "drift-only", &core)).unwrap();
    assert!(policy.call::<Drift>(&Drift::sample(), "{}").result.is_ok());
}

/// `drift` alone, without the interface that describes a policy.
fn nameless() -> Vec<u8> {
    let wit = format!("{CONTRACT} world nameless {{ export drift; }}");
    component(&wit, "nameless", &drift_core("", "", SAME))
}

#[test]
fn a_component_without_the_policy_interface_is_refused() {
    assert_eq!(refusal(&nameless()).kind(), "no-policy-interface");
}

#[test]
fn a_policy_without_a_hook_is_refused_and_the_hooks_are_named() {
    let wit = format!("{CONTRACT} world mute {{ export policy; }}");
    let fault = refusal(&component(&wit, "mute", &drift_core("", "", SAME)));
    assert!(fault.to_string().contains("moorline:policy/adoption@0.1.0"), "{fault}");
    let strangers = Loader::new(&engine()).with_hooks(Hooks::none().with::<moorline_policy::hooks::Retry>());
    assert_eq!(strangers.load("guest", &drift(SAME)).unwrap_err().fault.kind(), "no-hook");
}

#[test]
fn a_wrong_signature_is_found_at_load_and_not_at_the_first_call() {
    let wit = CONTRACT.replace("same(string),", "same(u32),");
    assert_ne!(wit, CONTRACT);
    let fault = refusal(&component(&wit, "drift-only", &drift_core("", "", SAME)));
    assert!(matches!(&fault, LoadFault::WrongSignature { interface, .. } if interface.contains("/drift@")), "{fault}");

    let wit = CONTRACT.replace("assess: func", "judge: func");
    let core = drift_core("", "", SAME).replace("#assess", "#judge");
    assert!(refusal(&component(&wit, "drift-only", &core)).to_string().contains("no function `assess`"));
}

#[test]
fn a_policy_that_cant_describe_itself_is_refused_with_the_reason() {
    let core = drift_core("", "", SAME).replace(
        guests::DESCRIBE,
        r#"(func (export "moorline:policy/policy@0.1.0#describe") (result i32) unreachable)"#,
    );
    let fault = refusal(&component(CONTRACT, "drift-only", &core));
    assert!(fault.to_string().contains("failed in `describe`"), "{fault}");
}

#[test]
fn a_module_that_is_not_the_pinned_one_is_refused_and_both_digests_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (file, bytes) = (folder.path().join("guest.wasm"), drift(SAME));
    fs::write(&file, &bytes).unwrap();
    let loader = Loader::new(&engine());
    assert!(loader.load_file("guest", &file, Some(Digest::of(&bytes))).is_ok());
    let error = loader.load_file("guest", &file, Some(Digest::of(b"another"))).unwrap_err();
    let text = error.to_string();
    for part in [Digest::of(&bytes).to_string(), Digest::of(b"another").to_string(), file.display().to_string()] {
        assert!(text.contains(&part), "{text}");
    }
}

#[test]
fn a_file_that_is_missing_or_a_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let loader = Loader::new(&engine());
    for file in [folder.path().join("nowhere.wasm"), folder.path().to_owned()] {
        let error = loader.load_file("guest", &file, None).unwrap_err();
        assert_eq!(error.fault.kind(), "unreadable");
        assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    }
}

#[test]
fn a_pipe_in_the_place_of_a_module_is_refused_and_never_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.wasm");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    assert_eq!(Loader::new(&engine()).load_file("guest", &pipe, None).unwrap_err().fault.kind(), "unreadable");
}

#[test]
fn a_link_to_a_module_is_followed_since_a_config_map_is_made_of_links() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("..data")).unwrap();
    fs::write(folder.path().join("..data/guest.wasm"), drift(SAME)).unwrap();
    symlink("..data/guest.wasm", folder.path().join("guest.wasm")).unwrap();
    assert!(Loader::new(&engine()).load_file("guest", &folder.path().join("guest.wasm"), None).is_ok());
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn a_compressed_component_is_the_same_policy() {
    let plain = drift(SAME);
    for packed in [gzip(&plain), zstd(&plain)] {
        assert!(packed.len() < plain.len());
        let policy = load(&packed).unwrap();
        assert_eq!(policy.digest(), Digest::of(&plain));
        assert!(policy.call::<Drift>(&Drift::sample(), "{}").result.is_ok());
        assert_eq!(Loader::new(&engine()).check(&packed).unwrap(), ["drift"]);
    }
}

#[test]
fn compressed_data_that_becomes_a_memory_full_is_given_up_at_the_limit() {
    let zeros = vec![0; 64 << 20];
    for packed in [gzip(&zeros), zstd(&zeros)] {
        let fault = refusal_without_digest(&packed);
        assert!(matches!(fault, LoadFault::TooLarge { packed: true, .. }), "{fault}");
        assert!(fault.to_string().contains("when it is unpacked") && fault.to_string().contains("limits.moduleSize"));
    }
}

#[test]
fn compressed_data_that_is_cut_damaged_or_followed_by_more_is_refused() {
    let plain = drift(SAME);
    for packed in [gzip(&plain), zstd(&plain)] {
        let mut damaged = packed.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 8].fill(0xff);
        let mut followed = packed.clone();
        followed.extend_from_slice(b"more");
        for bad in [&packed[..packed.len() - 6], &packed[..5], &damaged, &followed] {
            let fault = refusal_without_digest(bad);
            assert_eq!(fault.kind(), "packed", "{fault}");
        }
    }
}

#[test]
fn a_pin_is_that_of_the_component_whether_or_not_it_is_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let (file, plain) = (folder.path().join("guest.wasm.zst"), drift(SAME));
    let packed = zstd(&plain);
    fs::write(&file, &packed).unwrap();
    let loader = Loader::new(&engine());
    assert!(loader.load_file("guest", &file, Some(Digest::of(&plain))).is_ok());
    let error = loader.load_file("guest", &file, Some(Digest::of(&packed))).unwrap_err();
    assert!(error.to_string().contains("pin that of the component inside"), "{error}");
}

fn refusal_without_digest(bytes: &[u8]) -> LoadFault {
    let error = load(bytes).unwrap_err();
    assert!(error.to_string().starts_with("The policy `guest` was refused"), "{error}");
    error.fault
}
