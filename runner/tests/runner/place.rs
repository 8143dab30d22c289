//! A folder with drivers and programs, and the runner started there.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The code of `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: i32 = 100;

pub(crate) struct Place {
    _folder: TempDir,
    /// Its name has a space in it.
    pub(crate) path: PathBuf,
    /// What the loader finds: a driver that has no device, so that none of this machine's own is found.
    system: PathBuf,
}

impl Place {
    /// With a simulated driver in `simulated`.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a place");
        fs::create_dir(&path).unwrap();
        let place = Self { system: path.join("system"), _folder: folder, path };
        place.install_simulated("simulated");
        place.system_answers(NO_DEVICE, 0);
        place
    }

    pub(crate) fn install_simulated(&self, name: &str) -> PathBuf {
        let folder = self.path.join(name);
        fs::create_dir(&folder).unwrap();
        symlink(simulated_library(), folder.join("libcuda.so.1")).unwrap();
        symlink("libcuda.so.1", folder.join("libcuda.so")).unwrap();
        folder
    }

    /// Makes the driver that the loader finds one which is not the simulated one, and answers so.
    pub(crate) fn system_answers(&self, init: i32, count: i32) {
        fs::create_dir_all(&self.system).unwrap();
        let macros = [format!("-DINIT={init}"), format!("-DCOUNT={count}")];
        let library = self.system.join("libcuda.so.1");
        compile("driver.c", &library, macros.iter().map(OsStr::new).chain(["-shared", "-fPIC"].map(OsStr::new)));
    }

    /// A program called as cargo calls tests, that is linked against the driver.
    pub(crate) fn linked(&self) -> PathBuf {
        let program = self.path.join("linked-0123456789abcdef");
        compile("program.c", &program, [OsStr::new("-DLINKED"), simulated_library().as_os_str()]);
        program
    }

    /// One that is linked against this library, too, which lies beside it.
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

    /// The runner, with a simulated driver to find and nothing asked for.
    pub(crate) fn runner(&self) -> Command {
        let mut runner = self.bare_runner(Path::new(env!("CARGO_BIN_EXE_memtrace-runner")));
        runner.env("MEMTRACE_SIMULATED_GPU", self.path.join("simulated"));
        runner
    }

    /// One that has to look for the simulated driver.
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

/// Cargo built it for this test.
fn simulated_library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libmemtrace_cusim.so")
}

fn compile<'a>(source: &str, to: &Path, options: impl IntoIterator<Item = &'a OsStr>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runner").join(source);
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler).arg(source).arg("-o").arg(to).args(options).status().unwrap();
    assert!(status.success(), "{status}");
}

/// What it wrote, with its end.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) output: Output,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl Said {
    pub(crate) fn by(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let [out, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        Self { output, out, errors }
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// A line of the test program's.
    pub(crate) fn line(&self, name: &str) -> &str {
        let found = self.out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{name} in {self:?}"))
    }

    /// Ended well, and the runner said only this.
    #[track_caller]
    pub(crate) fn assert_runner_said(&self, text: &str) {
        assert_eq!(
            (self.code(), self.errors.as_str()),
            (Some(0), format!("memtrace-runner: {text}\n").as_str()),
            "{self:?}"
        );
    }

    /// Failed, and said all of these.
    #[track_caller]
    pub(crate) fn assert_refused(&self, texts: &[&str]) {
        assert_eq!((self.code(), self.out.as_str()), (Some(1), ""), "{self:?}");
        for text in texts {
            assert!(self.errors.contains(text), "{text} in {self:?}");
        }
    }
}
