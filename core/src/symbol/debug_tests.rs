//! Stripped libraries, whose debug information is where distributions, gdb and `objcopy` put it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};
use tempfile::TempDir;

use super::object_file::{ObjectFile, debug_file};
use super::{Resolver, SymbolSources};
use crate::snapshot::LoadedObject;

/// A function that only debug information names, and one that every build names.
const SOURCE: &str = "#include <stdlib.h>
__attribute__((noinline)) static char *hidden(unsigned long size) { return 1 + (char *)malloc(size); }
char *make(unsigned long size) { return 1 + hidden(size); }
";

/// A stripped library, and the file with its debug information.
struct Stripped {
    folder: TempDir,
    object: LoadedObject,
    debug: PathBuf,
    hidden: u64,
    make: u64,
}

fn tool(name: &str, arguments: &[&str], folder: &Path) {
    let output = Command::new(name).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{name} {arguments:?}: {output:?}");
}

impl Stripped {
    fn of(source: &str, extension: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        fs::write(at.join("make").with_extension(extension), source).unwrap();
        let file = format!("make.{extension}");
        tool("cc", &["-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id", "-o", "libmake.so", &file], &at);
        let (path, debug) = (at.join("libmake.so"), at.join("kept"));
        let [hidden, make] = ["hidden", "make"].map(|name| inside(&path, name));
        tool("objcopy", &["--only-keep-debug", "libmake.so", "kept"], &at);
        tool("strip", &["libmake.so"], &at);
        let build_id = ObjectFile::of(&path).unwrap().build_id;
        let object = LoadedObject { path: Some(path.display().to_string()), build_id, base: 0, range: 0..1 << 20 };
        Self { folder, object, debug, hidden, make }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    /// Makes the library link to its debug information by a name. It will be put below some root under this name.
    fn link_to(&self, file: &Path, name: &str) {
        let copy = self.path("link").join(name);
        copied(file, &copy);
        tool("objcopy", &["--add-gnu-debuglink", copy.to_str().unwrap(), "libmake.so"], self.folder.path());
        fs::remove_file(copy).unwrap();
    }

    /// The function at an address, and its file and line.
    fn resolved(&self, address: u64, debug_dirs: &[&Path]) -> String {
        let debug_dirs = debug_dirs.iter().map(|path| path.to_path_buf()).collect();
        let sources = SymbolSources { debug_dirs, ..SymbolSources::default() };
        let resolved = Resolver::of_files(std::slice::from_ref(&self.object), &sources).resolve(address);
        let frame = &resolved.frames[0];
        let name = frame.file_or_empty().rsplit('/').next().unwrap_or_default();
        format!("{} {name}:{}", frame.function_or_empty(), frame.line.map_or(0, u32::from))
    }

    fn is_found(&self, debug_dirs: &[&Path]) -> bool {
        self.resolved(self.hidden, debug_dirs) == "hidden make.c:2"
    }
}

/// An address inside a function, after its first instruction.
fn inside(path: &Path, name: &str) -> u64 {
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap().address() + 2
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap();
}

#[test]
fn debug_information_is_found_by_build_id() {
    let library = Stripped::of(SOURCE, "c");
    let root = library.path("root");
    let by_id = root.join(debug_file(&library.object.build_id));
    assert!(library.resolved(library.hidden, &[&root]).starts_with("libmake.so+0x"));
    assert_eq!(library.resolved(library.make, &[&root]), "make :0");
    let other = Stripped::of(&SOURCE.replace("1 +", "2 +"), "c");
    copied(&other.debug, &by_id);
    assert_eq!(library.resolved(library.make, &[&root]), "make :0", "of another build");
    copied(&library.debug, &by_id);
    assert!(library.is_found(&[&root]) && library.is_found(&[&library.path("gone"), &root]));
    assert_eq!(library.resolved(library.make, &[&root]), "make make.c:3");
}

/// Such as of a program with AddressSanitizer, which pads the constants in notes.
#[test]
fn a_note_that_is_no_note_hides_no_build_id() {
    let note = "__attribute__((used, aligned(32), section(\".note.a\"))) static const int note[8] = { 9 };\n";
    let library = Stripped::of(&format!("{note}{SOURCE}"), "c");
    assert_eq!(library.object.build_id.len(), 20);
    assert_eq!(library.resolved(library.make, &[]), "make :0");
}

#[test]
fn debug_information_is_found_where_a_link_leads() {
    let library = Stripped::of(SOURCE, "c");
    library.link_to(&library.debug, "some.dbg");
    let root = library.path("root");
    let below = root.join(library.folder.path().canonicalize().unwrap().strip_prefix("/").unwrap());
    for folder in [library.path(""), library.path(".debug"), below, root.clone()] {
        assert!(!library.is_found(&[&root]));
        let file = folder.join("some.dbg");
        copied(&library.debug, &file);
        assert!(library.is_found(&[&root]), "{}", file.display());
        // The build-id is still the same.
        fs::write(&file, [fs::read(&file).unwrap(), b"more".to_vec()].concat()).unwrap();
        assert!(!library.is_found(&[&root]), "another checksum");
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_link_to_another_build_is_not_followed() {
    let library = Stripped::of(SOURCE, "c");
    let other = Stripped::of(&SOURCE.replace("1 +", "2 +"), "c");
    library.link_to(&other.debug, "other.debug");
    copied(&other.debug, &library.path("other.debug"));
    assert_eq!(library.resolved(library.make, &[]), "make :0");
}

#[test]
fn a_link_is_a_name_and_no_way_to_other_folders() {
    let library = Stripped::of(SOURCE, "c");
    let root = library.path("other");
    for (name, leads) in [("name.dbg\0\0\0\0", true), ("../other/name.dbg\0\0\0", false)] {
        let checksum = crc32fast::hash(&fs::read(&library.debug).unwrap());
        fs::write(library.path("link"), [name.as_bytes(), &checksum.to_le_bytes()].concat()).unwrap();
        let section = ["--remove-section", ".gnu_debuglink", "--add-section", ".gnu_debuglink=link", "libmake.so"];
        tool("objcopy", &section, library.folder.path());
        copied(&library.debug, &root.join("name.dbg"));
        assert_eq!(library.is_found(&[&root]), leads, "{name}");
    }
}

#[test]
fn damaged_debug_information_leaves_the_names_that_were_there() {
    let library = Stripped::of(SOURCE, "c");
    let root = library.path("root");
    let by_id = root.join(debug_file(&library.object.build_id));
    let whole = fs::read(&library.debug).unwrap();
    copied(&library.debug, &by_id);
    for length in (0..whole.len()).step_by(97) {
        fs::write(&by_id, &whole[..length]).unwrap();
        assert_eq!(library.resolved(library.make, &[&root]), "make :0", "{length}");
    }
    for at in (0..whole.len()).step_by(13) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        fs::write(&by_id, damaged).unwrap();
        assert!(!library.resolved(library.make, &[&root]).is_empty(), "{at}");
    }
    fs::remove_file(&by_id).unwrap();
    tool("mkfifo", &[by_id.to_str().unwrap()], &root);
    assert_eq!(library.resolved(library.make, &[&root]), "make :0", "a pipe");
}

/// Debug information in which the function's name is in another file, as dwz leaves it.
const SHARED: &str = r#"
    .text
    .globl make
make:
    .skip 16
    .size make, 16
hidden:
    .skip 16
    .section .debug_abbrev,"",%progbits
    .uleb128 1, 0x11
    .byte 1
    .uleb128 0x11, 0x01, 0x12, 0x07, 0, 0
    .uleb128 2, 0x2e
    .byte 0
    .uleb128 0x03, 0x1f21, 0x11, 0x01, 0x12, 0x07, 0, 0
    .byte 0
    .section .debug_info,"",%progbits
    .long after - before
before:
    .short 4
    .long 0
    .byte 8
    .uleb128 1
    .quad hidden, 16
    .uleb128 2
    .long 2
    .quad hidden, 16
    .byte 0
after:
"#;

/// The other file, with the name.
const NAMES: &str = r#"
    .section .debug_str,"",%progbits
    .asciz "?"
    .asciz "shared"
    .text
make:
hidden:
    .skip 9
"#;

#[test]
fn what_debug_information_shares_with_others_is_found() {
    let library = Stripped::of(SHARED, "s");
    let names = Stripped::of(NAMES, "s");
    let other = Stripped::of(&NAMES.replace("shared", "others"), "s");
    let root = library.path("root");
    let by_id = root.join(debug_file(&library.object.build_id));
    let link = [&b"../../.dwz/names\0"[..], &names.object.build_id].concat();
    fs::write(library.path("link"), link).unwrap();
    // Without symbols, because those also name the function.
    let add = ["--strip-all", "--keep-section=.debug*", "--add-section", ".gnu_debugaltlink=link", "kept"];
    tool("objcopy", &add, library.folder.path());
    copied(&library.debug, &by_id);
    assert!(library.resolved(library.hidden, &[&root]).starts_with("libmake.so+0x"));
    for file in [root.join(".dwz/names"), root.join(debug_file(&names.object.build_id))] {
        copied(&other.debug, &file);
        assert!(library.resolved(library.hidden, &[&root]).starts_with("libmake.so+0x"), "of another build");
        copied(&names.debug, &file);
        assert_eq!(library.resolved(library.hidden, &[&root]), "shared :0");
        assert_eq!(library.resolved(library.make, &[&root]), "make :0", "only the library itself names it");
        fs::remove_file(file).unwrap();
    }
}
