#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail by panicking")]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::super::testing::Failing;
use super::*;

const OLD: &str =
    r#"{"cniVersion":"1.0.0","name":"unbounded-net","plugins":[{"type":"bridge","bridge":"cbr0","mtu":1500}]}"#;
const NEW: &str =
    r#"{"cniVersion":"1.0.0","name":"unbounded-net","plugins":[{"type":"bridge","bridge":"cbr0","mtu":9000}]}"#;
/// As the published agent prints it.
const PUBLISHED: &str = "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"unbounded-net\",\n  \"plugins\": [\n    {\n      \
                         \"type\": \"bridge\"\n    },\n    {\n      \"type\": \"portmap\"\n    }\n  ]\n}";
const FOREIGN: &str = r#"{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"cilium-cni"}]}"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn cni(&self) -> CniFile {
        CniFile::new(self.0.path(), "10-unbounded.conflist")
    }

    fn put(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

const NAME: &str = "10-unbounded.conflist";

fn knowing(contents: &[&str]) -> Ownership {
    Ownership::of(contents.iter().copied(), false, Takeover::None)
}

fn lost() -> Ownership {
    Ownership { ledger_lost: true, ..Ownership::default() }
}

#[track_caller]
fn blocked<T: std::fmt::Debug>(result: Result<T, CniError>) -> CniBlocked {
    match result {
        Err(CniError::Blocked(blocked)) => blocked,
        other => panic!("{other:?} is not blocked"),
    }
}

#[test]
fn a_new_file_is_whole_readable_for_all_and_says_what_it_was_given() {
    let folder = Folder::new();
    assert_eq!(folder.cni().write(OLD, &knowing(&[OLD])).unwrap(), Written::Changed);
    let written = fs::read_to_string(folder.path(NAME)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), serde_json::from_str::<Value>(OLD).unwrap());
    assert_eq!(fs::metadata(folder.path(NAME)).unwrap().permissions().mode() & 0o7777, 0o644);
    assert_eq!(folder.names(), [NAME]);
    assert_eq!(folder.cni().read(&knowing(&[OLD])).unwrap(), CniState::Own(digest(OLD).unwrap()));
}

#[test]
fn a_content_that_is_in_place_is_not_written_again_but_its_mode_is_put_right() {
    let folder = Folder::new();
    folder.cni().write(OLD, &knowing(&[OLD])).unwrap();
    let before = fs::metadata(folder.path(NAME)).unwrap();
    fs::set_permissions(folder.path(NAME), fs::Permissions::from_mode(0o600)).unwrap();
    // Other spaces say the same.
    let spaced = OLD.replace(':', " :  ");
    assert_eq!(folder.cni().write(&spaced, &knowing(&[OLD])).unwrap(), Written::Unchanged);
    let after = fs::metadata(folder.path(NAME)).unwrap();
    assert_eq!((after.ino(), after.mtime_nsec()), (before.ino(), before.mtime_nsec()));
    assert_eq!(after.permissions().mode() & 0o7777, 0o644);
}

#[test]
fn an_own_file_is_replaced() {
    let folder = Folder::new();
    folder.cni().write(OLD, &knowing(&[OLD])).unwrap();
    assert_eq!(folder.cni().write(NEW, &knowing(&[OLD, NEW])).unwrap(), Written::Changed);
    assert_eq!(fs::read(folder.path(NAME)).unwrap(), form(NEW).unwrap());
    assert_eq!(folder.names(), [NAME]);
}

#[test]
fn what_is_not_the_agents_is_never_touched_and_the_error_says_the_way_out() {
    let folder = Folder::new();
    for (content, way_out) in [
        (FOREIGN.as_bytes(), "written or changed by someone else"),
        (b"", "written or changed by someone else"),
        (b"\xff\xfe", "written or changed by someone else"),
        (PUBLISHED.as_bytes(), "Set `machine.takeover: published`"),
    ] {
        folder.put(NAME, content);
        for ownership in [knowing(&[OLD, NEW]), lost()] {
            let error = blocked(folder.cni().write(NEW, &ownership)).to_string();
            assert!(error.contains(way_out) && error.contains(NAME), "{error}");
            blocked(folder.cni().disable(&ownership));
            assert!(matches!(folder.cni().read(&ownership).unwrap(), CniState::Blocked(_)));
            assert_eq!(fs::read(folder.path(NAME)).unwrap(), content);
            assert_eq!(folder.names(), [NAME]);
        }
    }
}

#[test]
fn a_link_a_folder_and_a_pipe_are_neither_followed_nor_replaced() {
    let folder = Folder::new();
    folder.put("elsewhere", &form(OLD).unwrap());
    let path = folder.path(NAME);
    symlink(folder.path("elsewhere"), &path).unwrap();
    assert_eq!(blocked(folder.cni().write(NEW, &knowing(&[OLD]))).reason, BlockReason::Symlink);
    assert_eq!(blocked(folder.cni().disable(&knowing(&[OLD]))).reason, BlockReason::Symlink);
    assert_eq!(fs::read(folder.path("elsewhere")).unwrap(), form(OLD).unwrap());
    fs::remove_file(&path).unwrap();

    fs::create_dir(&path).unwrap();
    assert_eq!(blocked(folder.cni().write(NEW, &knowing(&[OLD]))).reason, BlockReason::Folder);
    fs::remove_dir(&path).unwrap();

    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    assert_eq!(blocked(folder.cni().write(NEW, &knowing(&[OLD]))).reason, BlockReason::Special);
}

#[test]
fn an_own_file_that_was_changed_by_hand_is_someone_elses() {
    let folder = Folder::new();
    folder.cni().write(OLD, &knowing(&[OLD])).unwrap();
    let edited = fs::read_to_string(folder.path(NAME)).unwrap().replace("1500", "1400");
    folder.put(NAME, edited.as_bytes());
    assert_eq!(blocked(folder.cni().write(NEW, &knowing(&[OLD, NEW]))).reason, BlockReason::Foreign);
}

#[test]
fn a_known_content_in_anothers_form_is_someone_elses() {
    let folder = Folder::new();
    folder.put(NAME, OLD.as_bytes());
    assert_eq!(blocked(folder.cni().disable(&knowing(&[OLD]))).reason, BlockReason::Published);
}

#[test]
fn without_a_ledger_an_own_file_is_recognised_by_its_form() {
    let folder = Folder::new();
    folder.cni().write(OLD, &knowing(&[OLD])).unwrap();
    assert_eq!(folder.cni().write(NEW, &lost()).unwrap(), Written::Changed);
    assert_eq!(folder.cni().disable(&lost()).unwrap(), Disabled::Renamed);
}

#[test]
fn the_published_agents_file_is_taken_over_where_that_is_allowed_and_no_other_is() {
    let folder = Folder::new();
    let taking_over = Ownership { takeover: Takeover::Published, ..knowing(&[]) };
    folder.put(NAME, PUBLISHED.as_bytes());
    assert_eq!(folder.cni().write(NEW, &taking_over).unwrap(), Written::Changed);
    folder.put(NAME, FOREIGN.as_bytes());
    assert_eq!(blocked(folder.cni().write(NEW, &taking_over)).reason, BlockReason::Foreign);
}

#[test]
fn disabling_renames_and_replaces_an_own_leftover() {
    let folder = Folder::new();
    let disabled = format!("{NAME}.disabled");
    assert_eq!(folder.cni().disable(&knowing(&[OLD])).unwrap(), Disabled::Absent);
    for content in [OLD, NEW] {
        folder.cni().write(content, &knowing(&[content])).unwrap();
        assert_eq!(folder.cni().disable(&knowing(&[content])).unwrap(), Disabled::Renamed);
        assert_eq!(folder.names(), [disabled.as_str()]);
        assert_eq!(fs::read(folder.path(&disabled)).unwrap(), form(content).unwrap());
    }
}

#[test]
fn disabling_never_replaces_a_leftover_of_someone_else() {
    let folder = Folder::new();
    let disabled = format!("{NAME}.disabled");
    folder.put(&disabled, FOREIGN.as_bytes());
    folder.cni().write(OLD, &knowing(&[OLD])).unwrap();
    let error = blocked(folder.cni().disable(&knowing(&[OLD])));
    assert_eq!(error.path, folder.path(&disabled));
    assert_eq!(fs::read(folder.path(&disabled)).unwrap(), FOREIGN.as_bytes());
    assert_eq!(fs::read(folder.path(NAME)).unwrap(), form(OLD).unwrap());
}

#[test]
fn a_missing_folder_is_made_also_when_it_was_removed_meanwhile() {
    let parent = Folder::new();
    let cni = CniFile::new(parent.path("cni/net.d"), NAME);
    assert_eq!(cni.disable(&lost()).unwrap(), Disabled::Absent);
    for _ in 0..2 {
        assert_eq!(cni.write(OLD, &knowing(&[OLD])).unwrap(), Written::Changed);
        assert_eq!(fs::metadata(parent.path("cni/net.d")).unwrap().permissions().mode() & 0o7777, 0o755);
        fs::remove_dir_all(parent.path("cni")).unwrap();
    }
}

#[test]
fn a_folder_behind_a_link_is_used_and_a_file_in_its_place_is_said() {
    let folder = Folder::new();
    fs::create_dir(folder.path("real")).unwrap();
    symlink(folder.path("real"), folder.path("net.d")).unwrap();
    CniFile::new(folder.path("net.d"), NAME).write(OLD, &lost()).unwrap();
    assert!(folder.path("real").join(NAME).is_file());

    folder.put("file", b"");
    let error = blocked(CniFile::new(folder.path("file"), NAME).write(OLD, &lost())).to_string();
    assert!(error.contains("is not a folder") && error.contains("machine.cniDirectory"), "{error}");
}

#[test]
fn leftovers_of_a_crash_are_removed_and_strangers_are_not() {
    let folder = Folder::new();
    for name in [".moorline-1-0.tmp", ".moorline-77-3.tmp", ".hidden", "05-other.conf"] {
        folder.put(name, b"{");
    }
    fs::create_dir(folder.path(".moorline-2-0.tmp")).unwrap();
    folder.cni().write(OLD, &lost()).unwrap();
    assert_eq!(folder.names(), [".hidden", ".moorline-2-0.tmp", "05-other.conf", NAME]);
}

#[test]
fn a_leftover_with_the_same_name_is_never_in_the_way() {
    let folder = Folder::new();
    // A folder can't be swept.
    fs::create_dir(folder.path(&format!(".moorline-{}-0.tmp", std::process::id()))).unwrap();
    assert_eq!(folder.cni().write(OLD, &lost()).unwrap(), Written::Changed);
}

#[test]
fn a_configuration_that_is_no_json_is_not_written() {
    let folder = Folder::new();
    assert!(matches!(folder.cni().write("{", &lost()), Err(CniError::NotJson(_))));
    assert!(folder.names().is_empty());
}

#[test]
fn killed_at_every_change_the_file_is_the_old_or_the_new_one_and_the_next_start_ends_with_the_new_one() {
    for at in 0.. {
        let folder = Folder::new();
        folder.cni().write(OLD, &knowing(&[OLD])).unwrap();
        let killed = Failing::killed_at(at);
        let ended = CniFile::with_files(folder.0.path(), NAME, &killed).write(NEW, &knowing(&[OLD, NEW]));
        let present = fs::read(folder.path(NAME)).unwrap();
        assert!([form(OLD).unwrap(), form(NEW).unwrap()].contains(&present), "killed at {at}");
        folder.cni().write(NEW, &knowing(&[OLD, NEW])).unwrap();
        assert_eq!(fs::read(folder.path(NAME)).unwrap(), form(NEW).unwrap());
        assert_eq!(folder.names(), [NAME], "killed at {at}");
        if !killed.was_reached() {
            ended.unwrap();
            assert!(at >= 4, "create, sync, rename and sync of the folder were all passed");
            return;
        }
    }
}

#[test]
fn a_file_system_that_fails_leaves_the_old_file_and_is_told_with_the_way_out() {
    for (kind, way_out) in [
        (ErrorKind::ReadOnlyFilesystem, "its file system is read-only. Mount it writable"),
        (ErrorKind::StorageFull, "no space, inodes or quota is left on its file system. Free some"),
        (ErrorKind::PermissionDenied, "the agent's user may not"),
    ] {
        for at in 0..3 {
            let folder = Folder::new();
            folder.cni().write(OLD, &knowing(&[OLD])).unwrap();
            let failing = Failing::failing_from(at, kind);
            let error = CniFile::with_files(folder.0.path(), NAME, &failing).write(NEW, &knowing(&[OLD])).unwrap_err();
            assert!(!error.is_blocked() && error.to_string().contains(way_out), "{error}");
            assert_eq!(fs::read(folder.path(NAME)).unwrap(), form(OLD).unwrap());
            assert_eq!(folder.names(), [NAME], "nothing half is left behind at {at}");
        }
    }
}

#[test]
fn a_file_that_appears_while_the_agent_writes_is_not_overwritten() {
    /// Someone else puts a file there just before the rename.
    struct Racing(PathBuf);
    impl Files for Racing {
        fn change(&self, change: &Change<'_>) -> std::io::Result<()> {
            if matches!(change, Change::Rename { .. }) {
                fs::write(&self.0, FOREIGN)?;
            }
            Disk.change(change)
        }
    }
    let folder = Folder::new();
    let racing = Racing(folder.path(NAME));
    let result = CniFile::with_files(folder.0.path(), NAME, racing).write(NEW, &knowing(&[NEW]));
    assert_eq!(blocked(result).reason, BlockReason::Foreign);
    assert_eq!(fs::read(folder.path(NAME)).unwrap(), FOREIGN.as_bytes());
    assert_eq!(folder.names(), [NAME]);
}

fn look(folder: &Folder) -> (bool, Option<String>) {
    let seen = folder.cni().look(OLD);
    (seen.in_place, seen.in_the_way)
}

#[test]
fn a_configuration_is_in_place_only_as_it_was_put_there() {
    let folder = Folder::new();
    assert_eq!(look(&folder), (false, None));
    folder.cni().write(OLD, &knowing(&[OLD])).unwrap();
    assert_eq!(look(&folder), (true, None));
    for other in [OLD.as_bytes(), NEW.as_bytes(), b"", FOREIGN.as_bytes()] {
        folder.put(NAME, other);
        assert_eq!(look(&folder), (false, None));
    }
    fs::remove_file(folder.path(NAME)).unwrap();
    fs::create_dir(folder.path(NAME)).unwrap();
    assert_eq!(look(&folder), (false, None));
    fs::remove_dir_all(folder.0.path()).unwrap();
    assert_eq!(look(&folder), (false, None));
}

#[test]
fn only_an_earlier_file_that_a_runtime_reads_and_can_not_make_sense_of_is_in_the_way() {
    let plugin = r#"{"cniVersion":"1.0.0","name":"lo","type":"loopback"}"#;
    let cases = [
        ("00-a.conflist", FOREIGN, false),
        ("00-a.conflist", plugin, true),
        ("00-a.conflist", "", true),
        ("00-a.conflist", r#"{"name":"a","plugins":[]}"#, true),
        ("00-a.conf", plugin, false),
        ("00-a.json", plugin, false),
        ("00-a.json", FOREIGN, true),
        ("00-a.conf", "{\"name\":", true),
        ("00-a.conflist.disabled", "{", false),
        ("README", "{", false),
        ("99-a.conflist", "{", false),
    ];
    for (name, content, broken) in cases {
        let folder = Folder::new();
        folder.cni().write(OLD, &knowing(&[OLD])).unwrap();
        folder.put(name, content.as_bytes());
        let (in_place, in_the_way) = look(&folder);
        assert!(in_place);
        assert_eq!(
            in_the_way.is_some_and(|told| told.contains(name) && told.contains(NAME)),
            broken,
            "{name} {content}"
        );
    }
}

#[test]
fn without_a_ledger_the_form_tells_what_an_earlier_agent_left() {
    let folder = Folder::new();
    assert_eq!(folder.cni().left(), None);
    folder.cni().write(OLD, &knowing(&[OLD])).unwrap();
    let left = folder.cni().left().unwrap();
    assert_eq!(folder.cni().read(&knowing(&[&left])).unwrap(), CniState::Own(digest(OLD).unwrap()));
    for other in [OLD, FOREIGN, PUBLISHED, "", "{"] {
        folder.put(NAME, other.as_bytes());
        assert_eq!(folder.cni().left(), None, "{other}");
    }
}
