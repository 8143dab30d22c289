//! A temporary folder with drivers and programs, in which the runner starts.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The code of `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: i32 = 100;

pub(crate) struct Sandbox {
    _folder: TempDir,
    /// Its name contains a space.
    pub(crate) path: PathBuf,
    /// Folder of the driver that the loader finds: one without a device, which hides this machine's own driver.
    system: PathBuf,
}

impl Sandbox {
    /// Installs a simulated driver in the folder `simulated`.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a folder");
        fs::create_dir(&path).unwrap();
        let sandbox = Self { system: path.join("system"), _folder: folder, path };
        sandbox.install_simulated("simulated");
        sandbox.system_driver(NO_DEVICE, 0);
        sandbox
    }

    pub(crate) fn install_simulated(&self, name: &str) -> PathBuf {
        let folder = self.path.join(name);
        fs::create_dir(&folder).unwrap();
        symlink(simulated_library(), folder.join("libcuda.so.1")).unwrap();
        symlink("libcuda.so.1", folder.join("libcuda.so")).unwrap();
        folder
    }

    /// Replaces the driver that the loader finds by one that is not simulated and returns these values.
    pub(crate) fn system_driver(&self, init: i32, count: i32) {
        fs::create_dir_all(&self.system).unwrap();
        let macros = [format!("-DINIT={init}"), format!("-DCOUNT={count}")];
        let library = self.system.join("libcuda.so.1");
        compile("driver.c", &library, macros.iter().map(OsStr::new).chain(["-shared", "-fPIC"].map(OsStr::new)));
    }

    /// A program with the name of a cargo test, linked against the driver.
    pub(crate) fn linked(&self) -> PathBuf {
        let program = self.path.join("linked-0123456789abcdef");
        compile("program.c", &program, [OsStr::new("-DLINKED"), simulated_library().as_os_str()]);
        program
    }

    /// Such a program that is also linked against this library, in the same folder.
    pub(crate) fn linked_against(&self, name: &str) -> PathBuf {
        let library = self.path.join(name);
        let soname = format!("-Wl,-soname,{name}");
        compile("library.c", &library, ["-shared", "-fPIC", &soname].map(OsStr::new));
        let program = self.path.join("linked-fedcba9876543210");
        let options = ["-DLINKED", "-Wl,--no-as-needed"].map(OsStr::new);
        compile(
            "program.c",
            &program,
            options.into_iter().chain([simulated_library().as_os_str(), library.as_os_str()]),
        );
        program
    }

    pub(crate) fn plain(&self) -> PathBuf {
        let program = self.path.join("plain-0123456789abcdef");
        compile("program.c", &program, []);
        program
    }

    /// The runner with default settings and a simulated driver.
    pub(crate) fn runner(&self) -> Command {
        let mut runner = self.bare_runner(Path::new(env!("CARGO_BIN_EXE_memtrace-runner")));
        runner.env("MEMTRACE_SIMULATED_GPU", self.path.join("simulated"));
        runner
    }

    /// A runner that has to find the simulated driver.
    pub(crate) fn bare_runner(&self, runner: &Path) -> Command {
        let mut runner = Command::new(runner);
        for (name, _) in std::env::vars_os() {
            if ["MEMTRACE_", "NEXTEST", "CUDA_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                runner.env_remove(name);
            }
        }
        runner.env("LD_LIBRARY_PATH", &self.system).current_dir(&self.path);
        runner
    }
}

/// Cargo builds it as a dev-dependency.
fn simulated_library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libmemtrace_cusim.so")
}

fn compile<'a>(source: &str, to: &Path, options: impl IntoIterator<Item = &'a OsStr>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runner").join(source);
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler).arg(source).arg("-o").arg(to).args(options).status().unwrap();
    assert!(status.success(), "{status}");
}

#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) output: Output,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl CommandOutput {
    pub(crate) fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let [out, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        Self { output, out, errors }
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// The value that the test program printed as `name=value`.
    pub(crate) fn line(&self, name: &str) -> &str {
        let found = self.out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{name} in {self:?}"))
    }

    /// Asserts success, and that this is the runner's only message.
    #[track_caller]
    pub(crate) fn assert_runner_said(&self, text: &str) {
        assert_eq!(
            (self.code(), self.errors.as_str()),
            (Some(0), format!("memtrace-runner: {text}\n").as_str()),
            "{self:?}"
        );
    }

    /// Asserts failure with all these texts in the message.
    #[track_caller]
    pub(crate) fn assert_refused(&self, texts: &[&str]) {
        assert_eq!((self.code(), self.out.as_str()), (Some(1), ""), "{self:?}");
        for text in texts {
            assert!(self.errors.contains(text), "{text} in {self:?}");
        }
    }
}
