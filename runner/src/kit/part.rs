//! Parts of the kit. The name of a part's folder in the cache contains a hash of the part's sources. So a part built
//! from other sources is never used, and a part in use is never replaced.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// A folder that nobody has used for this time is removed when a part is built.
const KEPT: Duration = Duration::from_hours(24 * 30);

/// A folder of files that cargo builds.
#[derive(Debug)]
pub struct KitPart {
    /// The part's name in messages.
    pub name: &'static str,
    pub(super) sources: &'static [&'static str],
    /// Arguments of `cargo build`.
    pub(super) cargo: &'static [&'static str],
    /// Where cargo puts each file, and the file's path in the part's folder.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Adds the remaining files to the part's new folder.
    pub(super) finish: fn(&Kit, &Path) -> io::Result<()>,
}

impl KitPart {
    /// The name of the part's folder in an installation. In the cache, the folder's name begins with this name.
    pub fn folder_name(&self) -> String {
        self.name.replace(' ', "-")
    }

    /// The only file, or the first one.
    pub fn file_name(&self) -> &'static str {
        self.files[0].1
    }
}

/// Sources, and the cache for parts that are built from them.
#[derive(Clone, Debug)]
pub struct Kit {
    pub(super) root: PathBuf,
    cache: PathBuf,
    is_quiet: bool,
    /// Another kind of machine to build for, and a C compiler for it.
    pub(super) other: Option<(&'static str, &'static str)>,
}

impl Kit {
    /// The kit of these sources: memtrace's repository, or a folder with its layout.
    ///
    /// # Errors
    /// There is no folder for the cache.
    pub fn of(root: &Path) -> Result<Self, String> {
        Ok(Self { root: root.to_owned(), cache: cache()?, is_quiet: false, other: None })
    }

    /// Does not show cargo's progress, because another cargo shows its own at the same time.
    pub fn quiet(self) -> Self {
        Self { is_quiet: true, ..self }
    }

    /// Builds for another kind of machine with this C compiler. This machine must be able to run its programs.
    pub fn built_for(self, target: &'static str, compiler: &'static str) -> Self {
        Self { other: Some((target, compiler)), ..self }
    }

    /// The only file of a part, or the first one.
    ///
    /// # Errors
    /// Those of [`folder`](Self::folder).
    pub fn file(&self, part: &KitPart) -> Result<PathBuf, String> {
        Ok(self.folder(part)?.join(part.file_name()))
    }

    /// The part's folder, which is built if it does not exist.
    ///
    /// # Errors
    /// The part cannot be built. Cargo's messages are on standard error.
    pub fn folder(&self, part: &KitPart) -> Result<PathBuf, String> {
        let folder = self.place(part);
        if !folder.is_dir() {
            let (name, cache) = (part.name, self.cache.display());
            self.make(part, &folder).map_err(|error| format!("the {name} could not be built in {cache}: {error}"))?;
        }
        use_now(&folder);
        Ok(folder)
    }

    /// Whether the part is in the cache, and need not be built.
    pub fn has(&self, part: &KitPart) -> bool {
        self.place(part).is_dir()
    }

    pub(super) fn place(&self, part: &KitPart) -> PathBuf {
        let mut files = Vec::new();
        part.sources.iter().for_each(|source| walk(&self.root.join(source), &mut files));
        files.sort_unstable();
        let content = |file: &PathBuf| Some((file.strip_prefix(&self.root).ok()?.to_owned(), fs::read(file).ok()?));
        let sources: Vec<_> = files.iter().map(content).collect();
        // Machines of several kinds may share a home.
        let made_by = (self.other, env::consts::ARCH, env!("CARGO_PKG_VERSION"), include_str!("simulated_gpu.rs"));
        let hash = hash((part.cargo, part.files, made_by, sources));
        self.cache.join("kit").join(format!("{}-{hash}", part.folder_name()))
    }

    /// Makes the folder, which appears complete or not at all.
    fn make(&self, part: &KitPart, folder: &Path) -> io::Result<()> {
        let [kit, targets] = ["kit", "kit-target"].map(|name| self.cache.join(name));
        fs::create_dir_all(&kit)?;
        // Two builds at once would take each other's files.
        let lock = File::create(self.cache.join("kit.lock"))?;
        lock.lock()?;
        if folder.is_dir() {
            return Ok(());
        }
        // Writing the message may fail, because nobody may be reading.
        let _ = writeln!(io::stderr(), "memtrace: building the {}; this happens once", part.name);
        // The folder for cargo's output depends on the sources' path. Cargo only compares times, so it would consider
        // files from other, older sources to be fresh.
        let target = targets.join(hash(&self.root));
        let built = self.build(part, &target)?;
        let new = folder.with_extension("new");
        let _ = fs::remove_dir_all(&new);
        part.files.iter().try_for_each(|(from, to)| copy(&built.join(from), &new.join(to)))?;
        (part.finish)(self, &new)?;
        use_now(&target);
        [kit, targets].iter().for_each(|folder| forget_unused(folder));
        fs::rename(new, folder)
    }

    /// Lets cargo build a part. Returns the folder with the files.
    fn build(&self, part: &KitPart, target: &Path) -> io::Result<PathBuf> {
        let mut command = self.command(&cargo());
        // The kind of machine is always named, so that the files' folder is known whatever the user's configuration
        // says.
        let kind = match self.other {
            Some((target, compiler)) => {
                let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
                command.env(linker, compiler);
                target.to_owned()
            }
            None => host(&mut self.command("rustc".as_ref()))?,
        };
        command.env("CARGO_TARGET_DIR", target).env("CARGO_BUILD_TARGET", &kind).stdout(Stdio::null());
        // Cargo shows its progress only on a terminal.
        let is_quiet = self.is_quiet || !io::stderr().is_terminal();
        command.args(["build", "--release"]).args(part.cargo).args(is_quiet.then_some("--quiet"));
        let status = command.status().map_err(|error| io::Error::other(format!("cannot run cargo: {error}")))?;
        match status.success() {
            true => Ok(target.join(kind).join("release")),
            false => Err(io::Error::other("cargo failed; its messages are above")),
        }
    }

    /// A command that works on the sources. It gets none of the variables that configure cargo for the user's
    /// project, because the project's flags and targets are not the kit's.
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

/// The kind of machine for which this compiler builds.
///
/// # Errors
/// The compiler does not run, or does not report the kind of machine.
pub fn host(rustc: &mut Command) -> io::Result<String> {
    let output = rustc.arg("-vV").output().map_err(|error| io::Error::other(format!("cannot run rustc: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| io::Error::other("rustc does not say for which machine it builds"))
}

fn hash(value: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
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

/// Marks the folder as used now.
fn use_now(folder: &Path) {
    let _ = File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
}

fn forget_unused(folders: &Path) {
    let used = |folder: &Path| folder.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    for folder in entries(folders).filter(|folder| used(folder).elapsed().is_ok_and(|age| age > KEPT)) {
        let _ = fs::remove_dir_all(folder);
    }
}
