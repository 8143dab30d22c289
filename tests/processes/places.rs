//! Output paths of memtrace, and messages if a path is not writable.

use std::fs;
use std::path::Path;

use memtrace::open;

use crate::child::{Ended, command, command_of, copy_of_this_program, ended, if_child, target_folder, test_name};
use crate::support::Raw;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs this test's child in this folder, where it changes to another one.
fn in_folder(folder: &Path, out: &str) -> Ended {
    fs::create_dir_all(folder.join("elsewhere")).unwrap();
    ended(command(&[("MEMTRACE_OUT", out), ("MEMTRACE", "1")]).current_dir(folder)).well()
}

/// The child's body: records, and changes its folder.
fn records_and_leaves() {
    assert!(memtrace::init().unwrap());
    std::env::set_current_dir("elsewhere").unwrap();
    std::mem::forget(Raw::new(5000));
}

#[test]
fn a_relative_path_belongs_to_the_folder_in_which_the_session_started() {
    if_child(records_and_leaves);
    let dir = tempfile::tempdir().unwrap();
    // Text that looks like a part of the pattern is not replaced.
    let folder = dir.path().join("100%p");
    let child = in_folder(&folder, "a/%e.memtrace");
    assert_eq!(names(&folder.join("elsewhere")), [""; 0], "{child}");
    let name = names(&folder.join("a")).remove(0);
    let path = folder.join("a").join(name);
    assert!(child.said(&format!("wrote {}", path.display())) || open(&path).is_ok(), "{child}");
    // Not streamed: the file gets its name when it is written.
    let child = in_folder(&folder, "b/%e.txt");
    assert_eq!(names(&folder.join("elsewhere")), [""; 0], "{child}");
    let path = folder.join("b").join(names(&folder.join("b")).remove(0));
    assert!(child.said(&format!("wrote {}", path.display())), "{child}");
    // Without a path: cargo's target folder, which contains the program.
    let child = in_folder(&folder, "");
    assert_eq!(names(&folder), ["a", "b", "elsewhere"], "{child}");
    assert!(child.said(&format!("wrote {}", target_folder().join("memtrace").display())), "{child}");
}

#[test]
fn cargos_target_folder_may_have_been_created_or_mounted_by_somebody_else() {
    if_child(records_and_leaves);
    for (name, text, is_cargos) in [
        (".rustc_info.json", "{}", true),
        ("CACHEDIR.TAG", "# This file is a cache directory tag created by cargo.", true),
        ("CACHEDIR.TAG", "# This file is a cache directory tag created by a browser.", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("built/release/deps")).unwrap();
        fs::create_dir_all(dir.path().join("here/elsewhere")).unwrap();
        fs::write(dir.path().join("built").join(name), text).unwrap();
        let program = dir.path().join("built/release/deps/program");
        copy_of_this_program(&program);
        let mut child = command_of(&program, &test_name());
        let child = ended(child.env("MEMTRACE", "1").current_dir(dir.path().join("here"))).well();
        let folder = dir.path().join(if is_cargos { "built" } else { "here" }).join("memtrace");
        assert!(child.said(&format!("wrote {}", folder.display())), "{name} {text}\n{child}");
    }
}

#[test]
fn an_unwritable_dump_is_not_reported_as_written() {
    if_child(|| {
        records_and_leaves();
        fs::write("../file", "").unwrap();
    });
    let dir = tempfile::tempdir().unwrap();
    let child = in_folder(dir.path(), "file/dump.txt");
    let path = dir.path().join("file/dump.txt");
    assert!(child.said(&format!("cannot write {}", path.display())), "{child}");
    assert!(child.said("the snapshot is lost") && !child.said("still in memory"), "{child}");
}

#[test]
fn an_unwritable_path_is_reported_at_the_start() {
    if_child(|| {
        let error = memtrace::init().unwrap_err().to_string();
        assert!(error.contains("file/dump.txt") && error.contains("nothing is recorded"), "{error}");
    });
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    in_folder(dir.path(), "file/dump.txt");
}

#[test]
fn a_capture_that_cannot_be_created_is_not_reported_as_in_memory() {
    if_child(|| {
        let error = memtrace::builder().stream("file/streamed.memtrace").start().unwrap_err().to_string();
        assert!(error.contains("nothing is recorded") && !error.contains("still in memory"), "{error}");
        let here = std::env::current_dir().unwrap().join("file/streamed.memtrace");
        assert!(error.contains(&here.display().to_string()), "{error}");
    });
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    ended(command(&[]).current_dir(dir.path())).well();
}
