//! Parts of the kit. Each lies in the cache under what its sources hash to, so that a part of other sources is never used, and one
//! in use is never replaced.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// All sources of all parts.
const ALL: [&str; 8] = ["Cargo.toml", "Cargo.lock", "core", "cusim", "preload", "runner", "src", "tests/gpu"];

/// Packages that cargo might take for fresh when sources of other times replace them.
const OURS: [&str; 7] = [
    "candle-memtrace",
    "memtrace-core",
    "memtrace-cusim",
    "memtrace-cusim-libraries",
    "memtrace-gpu-check",
    "memtrace-preload",
    "memtrace-runner",
];

/// A part that nobody has used for this time goes when another one is built.
const KEPT: Duration = Duration::from_hours(24 * 30);

/// A folder of files that cargo builds.
#[derive(Debug)]
pub struct KitPart {
    /// As messages call it.
    pub name: &'static str,
    pub(super) sources: &'static [&'static str],
    /// Arguments of `cargo build`.
    pub(super) cargo: &'static [&'static str],
    /// Where cargo leaves each file, and where it lies in the part's folder.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Adds the rest to a new folder.
    pub(super) finish: fn(&Kit, &Path) -> io::Result<()>,
}

/// Sources, and the cache for what is built from them.
#[derive(Clone, Debug)]
pub struct Kit {
    pub(super) root: PathBuf,
    cache: PathBuf,
}

impl Kit {
    /// The kit of these sources: memtrace's repository, or a folder with its layout.
    ///
    /// # Errors
    /// There is no folder for the cache.
    pub fn of(root: &Path) -> Result<Self, String> {
        Ok(Self { root: root.to_owned(), cache: cache()? })
    }

    /// The only file of a part, or the first one.
    ///
    /// # Errors
    /// As [`folder`](Self::folder).
    pub fn file(&self, part: &KitPart) -> Result<PathBuf, String> {
        Ok(self.folder(part)?.join(part.files[0].1))
    }

    /// The part's folder; it is built if it is not there.
    ///
    /// # Errors
    /// The part cannot be built. Cargo's messages are on the standard error.
    pub fn folder(&self, part: &KitPart) -> Result<PathBuf, String> {
        let folder = self.place(part);
        if !folder.is_dir() {
            let (name, cache) = (part.name, self.cache.display());
            self.make(part, &folder).map_err(|error| format!("the {name} could not be built in {cache}: {error}"))?;
        }
        // So that it counts as used.
        let _ = File::open(&folder).and_then(|folder| folder.set_modified(SystemTime::now()));
        Ok(folder)
    }

    /// Whether the part need not be built.
    pub fn has(&self, part: &KitPart) -> bool {
        self.place(part).is_dir()
    }

    pub(super) fn place(&self, part: &KitPart) -> PathBuf {
        let made_from =
            fingerprint(&self.root, part.sources, (part.cargo, part.files, include_str!("simulated_gpu.rs")));
        self.cache.join("kit").join(format!("{}-{made_from}", part.name.replace(' ', "-")))
    }

    /// Makes the folder, which appears whole or not at all.
    fn make(&self, part: &KitPart, folder: &Path) -> io::Result<()> {
        let (kit, target) = (self.cache.join("kit"), self.cache.join("kit-target"));
        fs::create_dir_all(&kit)?;
        fs::create_dir_all(&target)?;
        // Two at once would take each other's files.
        let lock = File::create(target.join(".memtrace-lock"))?;
        lock.lock()?;
        if folder.is_dir() {
            return Ok(());
        }
        // Nobody may be reading.
        let _ = writeln!(io::stderr(), "memtrace: building the {}; this happens once", part.name);
        let built = self.build(part, &target)?;
        let new = kit.join(".new");
        let _ = fs::remove_dir_all(&new);
        part.files.iter().try_for_each(|(from, to)| copy(&built.join(from), &new.join(to)))?;
        (part.finish)(self, &new)?;
        forget_unused(&kit);
        fs::rename(new, folder)
    }

    /// Has cargo build a part. Returns the folder with the files.
    fn build(&self, part: &KitPart, target: &Path) -> io::Result<PathBuf> {
        // Named, so that the files' folder is known whatever the user's own configuration says.
        let host = host(&mut self.command("rustc".as_ref()))?;
        let cargo = |command: &str| {
            let mut cargo = self.command(&cargo());
            cargo.args([command, "--release"]).env("CARGO_TARGET_DIR", target).env("CARGO_BUILD_TARGET", &host);
            cargo
        };
        self.forget_others(&mut cargo("clean"), target)?;
        let mut build = cargo("build");
        // On a terminal, cargo shows its progress.
        build.args(part.cargo).args((!io::stderr().is_terminal()).then_some("--quiet")).stdout(Stdio::null());
        let status = build.status().map_err(|error| io::Error::other(format!("cannot run cargo: {error}")))?;
        match status.success() {
            true => Ok(target.join(host).join("release")),
            false => Err(io::Error::other("cargo failed; its messages are above")),
        }
    }

    /// Has cargo forget what it built from other sources: it compares times only.
    fn forget_others(&self, clean: &mut Command, target: &Path) -> io::Result<()> {
        let (stamp, made_from) = (target.join(".made-from"), fingerprint(&self.root, &ALL, ()));
        if fs::read_to_string(&stamp).is_ok_and(|last| last != made_from) {
            let packages = OURS.map(|name| format!("--package={name}"));
            // What cannot be cleaned is built again anyway, unless times of files mislead cargo.
            let _ = clean.arg("--quiet").args(packages).status();
        }
        fs::write(stamp, made_from)
    }

    /// A command that works on the sources, without the configuration of the project: its flags and targets are not the kit's.
    fn command(&self, program: &OsStr) -> Command {
        const PROJECTS: [&str; 7] = [
            "CARGO_BUILD_",
            "CARGO_PROFILE_",
            "CARGO_TARGET_",
            "CARGO_UNSTABLE_",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTFLAGS",
            "RUSTC",
        ];
        let mut command = Command::new(program);
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(|name| PROJECTS.iter().any(|start| name.starts_with(start))) {
                command.env_remove(name);
            }
        }
        command.current_dir(&self.root);
        command
    }
}

/// `$XDG_CACHE_HOME/memtrace`, or `.cache/memtrace` in the user's home: the folder for what is built or fetched once.
///
/// # Errors
/// There is no home.
pub fn cache() -> Result<PathBuf, String> {
    let set = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set.or_else(|| Some(env::home_dir().filter(|home| home.is_absolute())?.join(".cache")));
    let cache = cache.ok_or("no folder for what is built once: set HOME or XDG_CACHE_HOME")?;
    Ok(cache.join("memtrace"))
}

/// The cargo that runs this program, or the one on the path.
pub fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The kind of machine that this compiler builds for.
///
/// # Errors
/// The compiler does not run, or does not say it.
pub fn host(rustc: &mut Command) -> io::Result<String> {
    let output = rustc.arg("-vV").output().map_err(|error| io::Error::other(format!("cannot run rustc: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| io::Error::other("rustc does not say for which machine it builds"))
}

/// A hash of sources, of what makes a part from them, and of the kind of machine: homes may be shared.
fn fingerprint(root: &Path, sources: &[&str], made_by: impl Hash) -> String {
    let mut files = Vec::new();
    sources.iter().for_each(|source| walk(&root.join(source), &mut files));
    files.sort_unstable();
    let mut hasher = DefaultHasher::new();
    (env::consts::ARCH, env!("CARGO_PKG_VERSION"), made_by).hash(&mut hasher);
    for file in files {
        file.strip_prefix(root).unwrap_or(&file).hash(&mut hasher);
        fs::read(&file).unwrap_or_default().hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

fn walk(path: &Path, files: &mut Vec<PathBuf>) {
    match path.is_dir() {
        true if path.file_name().is_some_and(|name| name == "target") => {}
        true => entries(path).for_each(|path| walk(&path, files)),
        false => files.extend(path.is_file().then(|| path.to_owned())),
    }
}

pub(super) fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).map(drop)
}

fn forget_unused(kit: &Path) {
    let used = |folder: &Path| folder.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    for folder in entries(kit).filter(|folder| used(folder).elapsed().is_ok_and(|age| age > KEPT)) {
        let _ = fs::remove_dir_all(folder);
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
        let fingerprint = |root: &Path| fingerprint(root, &["core", "src", "preload"], ());
        let [a, b] = folders.each_ref().map(|folder| fingerprint(folder.path()));
        assert_eq!(a, b);
        let path = folders[0].path();
        let modified = path.join("src/lib.rs").metadata().unwrap().modified().unwrap();
        write(path, "src/lib.rs", "3");
        File::options().append(true).open(path.join("src/lib.rs")).unwrap().set_modified(modified).unwrap();
        assert_ne!(fingerprint(path), a, "of the same time and length");
        write(path, "src/lib.rs", "2");
        write(path, "src/target/x", "what cargo built");
        write(path, "cusim/src/lib.rs", "of another part");
        assert_eq!(fingerprint(path), a);
        write(path, "core/src/new.rs", "");
        assert_ne!(fingerprint(path), a);
    }

    #[test]
    fn the_projects_flags_are_not_the_kits() {
        let kit = Kit { root: "/root-of-the-kit".into(), cache: "/cache".into() };
        let command = kit.command("x".as_ref());
        assert_eq!(command.get_current_dir(), Some(Path::new("/root-of-the-kit")));
        let kept: Vec<_> = command.get_envs().filter(|(_, value)| value.is_some()).collect();
        assert_eq!(kept, []);
    }
}
