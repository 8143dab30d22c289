//! Parts of the kit that cargo builds: each kept in the cache under what its sources hash to, so that a part of other sources is
//! never used, and one that runs is never replaced.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, IsTerminal};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use cargo_metadata::Message;

use super::sources;
use crate::build::cargo;
use crate::cache::cache;
use crate::failure::CommandFailure;
use crate::output;

pub(super) const PARTS: [KitPart; 3] = [
    KitPart { name: "preload library", package: "memtrace-preload", file: "libmemtrace_preload.so" },
    KitPart { name: "test runner", package: "memtrace-runner", file: "memtrace-runner" },
    KitPart { name: "check of the GPU", package: "memtrace-gpu-check", file: "gpu-check" },
];

/// Those that cargo might take for fresh when sources of other times replace them.
const OURS: [&str; 5] =
    ["candle-memtrace", "memtrace-core", "memtrace-gpu-check", "memtrace-preload", "memtrace-runner"];

/// Parts of sources that nobody has any more go after this time.
const KEPT: Duration = Duration::from_hours(24 * 30);

/// A file that a package of the kit builds.
pub(super) struct KitPart {
    pub(super) name: &'static str,
    package: &'static str,
    file: &'static str,
}

impl KitPart {
    /// The file, built if it was not yet.
    pub(super) fn file(&self) -> Result<PathBuf, CommandFailure> {
        let root = sources::root()?;
        let made_from = fingerprint(&root);
        let file = cache()?.join("kit").join(&made_from).join(self.file);
        if !file.is_file() {
            output::say(format!("building the {}; this happens once", self.name));
            self.build(&root, &made_from, &file)?;
        }
        Ok(file)
    }

    pub(super) fn is_built(&self) -> bool {
        let file = || Some(cache().ok()?.join("kit").join(fingerprint(&sources::root_at_hand()?)).join(self.file));
        file().is_some_and(|file| file.is_file())
    }

    fn build(&self, root: &Path, made_from: &str, file: &Path) -> Result<(), CommandFailure> {
        let target = cache()?.join("kit-target");
        let failed = |error: io::Error| CommandFailure::usage(format!("cannot build the {}: {error}", self.name));
        fs::create_dir_all(&target).map_err(failed)?;
        // Two at once would take each other's files.
        let lock = File::create(target.join(".memtrace-lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let stamp = target.join(".made-from");
        if fs::read_to_string(&stamp).is_ok_and(|last| last != made_from) {
            let mut clean = Command::new(cargo());
            clean.args(["clean", "--quiet", "--release"]).args(OURS.iter().flat_map(|name| ["--package", name]));
            // What cannot be cleaned is built again anyway, unless times of files mislead cargo.
            let _ = clear_of_the_project(clean.arg("--target-dir").arg(&target), root).status();
        }
        fs::write(&stamp, made_from).map_err(failed)?;
        let built = self.run_cargo(root, &target).map_err(failed)?;
        let built = built.ok_or_else(|| {
            CommandFailure::usage(format!("the {} could not be built; cargo's messages are above", self.name))
        })?;
        forget_old(&cache()?.join("kit"));
        keep(&built, file).map_err(failed)
    }

    /// The file that cargo built, if it did.
    fn run_cargo(&self, root: &Path, target: &Path) -> io::Result<Option<PathBuf>> {
        let mut command = Command::new(cargo());
        command.args(["build", "--release", "--package", self.package, "--message-format=json-render-diagnostics"]);
        // On a terminal, cargo shows its progress.
        command.args((!io::stderr().is_terminal()).then_some("--quiet")).arg("--target-dir").arg(target);
        let mut child = clear_of_the_project(&mut command, root).stdout(Stdio::piped()).spawn()?;
        let messages = child.stdout.take().map(BufReader::new).into_iter().flat_map(Message::parse_stream);
        let artifacts = messages.filter_map(|message| match message {
            Ok(Message::CompilerArtifact(artifact)) => Some(artifact.filenames),
            _ => None,
        });
        let built = artifacts.flatten().filter(|path| path.file_name() == Some(self.file)).last();
        Ok(built.filter(|_| child.wait().is_ok_and(|status| status.success())).map(Into::into))
    }
}

/// Has cargo work in the kit's folder, without the configuration of the project: its flags and targets are not the kit's.
pub(super) fn clear_of_the_project<'a>(command: &'a mut Command, root: &Path) -> &'a mut Command {
    const PROJECTS: [&str; 7] = [
        "CARGO_BUILD_",
        "CARGO_PROFILE_",
        "CARGO_TARGET_",
        "CARGO_UNSTABLE_",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
        "RUSTC",
    ];
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| PROJECTS.iter().any(|start| name.starts_with(start))) {
            command.env_remove(name);
        }
    }
    command.current_dir(root)
}

/// A hash of the kit's sources, and of the kind of machine: homes may be shared.
fn fingerprint(root: &Path) -> String {
    let mut files = Vec::new();
    for part in sources::parts() {
        walk(&root.join(part), &mut files);
    }
    files.sort_unstable();
    let mut hasher = DefaultHasher::new();
    (std::env::consts::ARCH, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    for file in files {
        file.strip_prefix(root).unwrap_or(&file).hash(&mut hasher);
        fs::read(&file).unwrap_or_default().hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

fn walk(path: &Path, files: &mut Vec<PathBuf>) {
    match path.is_dir() {
        true if path.file_name().is_some_and(|name| name == "target") => {}
        true => fs::read_dir(path).into_iter().flatten().flatten().for_each(|entry| walk(&entry.path(), files)),
        false => files.extend(path.is_file().then(|| path.to_owned())),
    }
}

/// Copies a file to a new name, whole or not at all.
fn keep(built: &Path, file: &Path) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let mut copy = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempfile_in(folder)?;
    io::copy(&mut File::open(built)?, &mut copy)?;
    copy.persist(file)?;
    Ok(())
}

fn forget_old(kit: &Path) {
    let is_old = |folder: &Path| {
        let changed = folder.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        changed.elapsed().is_ok_and(|age| age > KEPT)
    };
    for entry in fs::read_dir(kit).into_iter().flatten().flatten().filter(|entry| is_old(&entry.path())) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), text).unwrap();
    }

    #[test]
    fn other_sources_have_another_fingerprint_wherever_they_are_and_whenever_they_were_written() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for folder in &folders {
            write(folder.path(), "preload/src/lib.rs", "1");
            write(folder.path(), "src/lib.rs", "2");
        }
        let [a, b] = folders.each_ref().map(|folder| fingerprint(folder.path()));
        assert_eq!(a, b);
        let path = folders[0].path();
        let modified = path.join("src/lib.rs").metadata().unwrap().modified().unwrap();
        write(path, "src/lib.rs", "3");
        File::options().append(true).open(path.join("src/lib.rs")).unwrap().set_modified(modified).unwrap();
        assert_ne!(fingerprint(path), a, "of the same time and length");
        write(path, "src/lib.rs", "2");
        write(path, "src/target/x", "what cargo built");
        assert_eq!(fingerprint(path), a);
        write(path, "core/src/new.rs", "");
        assert_ne!(fingerprint(path), a);
    }

    #[test]
    fn the_projects_flags_are_not_the_kits() {
        let mut command = Command::new("x");
        clear_of_the_project(&mut command, Path::new("/root-of-the-kit"));
        assert_eq!(command.get_current_dir(), Some(Path::new("/root-of-the-kit")));
        let kept: Vec<_> = command.get_envs().filter(|(_, value)| value.is_some()).collect();
        assert_eq!(kept, []);
    }
}
