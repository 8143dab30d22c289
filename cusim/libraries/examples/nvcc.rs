//! Stand-in for nvcc: compiles every kernel to an empty one with its signature, so that candle's feature `cuda` builds without
//! a toolkit. It knows what cudaforge, bindgen_cuda and cudarc ask of nvcc: its version, PTX, objects and archives. `--stub NAME`
//! makes a library of that name with the functions on the standard input, to link against.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs};

use memtrace_cusim_libraries::signatures;

/// cudarc reads the release from the fourth line.
const VERSION: &str = "memtrace's stand-in for nvcc\n\n\nCuda compilation tools, release 13.0, V13.0.0";
const ARCHITECTURES: &str = "sm_80\nsm_86\nsm_89\nsm_90";

/// As many headers may be missing.
const MOST_HEADERS: usize = 50;

#[derive(Default)]
struct Asked {
    mode: String,
    out: Option<PathBuf>,
    folder: PathBuf,
    source: PathBuf,
    objects: Vec<String>,
    /// What a stub calls itself.
    library: String,
    /// Macros and folders of headers.
    options: Vec<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stand-in nvcc: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let asked = Asked::of(env::args().skip(1));
    let name = asked.source.with_extension("ptx");
    let out = asked.out.clone().unwrap_or_else(|| asked.folder.join(name.file_name().unwrap_or_default()));
    match &*asked.mode {
        "--version" | "-V" => writeln!(io::stdout(), "{VERSION}"),
        "--list-gpu-code" => writeln!(io::stdout(), "{ARCHITECTURES}"),
        "--ptx" => fs::write(&out, signatures::ptx(&asked.preprocessed()?)),
        // The functions that the crate declares, whatever the source says.
        "-c" => {
            let declared = fs::read_to_string("src/ffi.rs").unwrap_or_default();
            compiled(&signatures::functions(&declared), &["-c"], &out)
        }
        "--stub" => {
            let names = io::read_to_string(io::stdin())?;
            let functions: String = names.lines().map(|name| format!("void {name}(void) {{}}\n")).collect();
            compiled(&functions, &["-shared", "-nostdlib", &format!("-Wl,-soname,{}", asked.library)], &out)
        }
        "--lib" => {
            let _ = fs::remove_file(&out);
            succeeds(Command::new("ar").arg("crs").arg(out).args(&asked.objects).status()?.success(), "ar")
        }
        _ => Err(io::Error::other("unknown arguments")),
    }
}

impl Asked {
    fn of(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut asked = Self::default();
        while let Some(argument) = arguments.next() {
            match &*argument {
                "--version" | "-V" | "--list-gpu-code" | "--ptx" | "--lib" | "-c" => asked.mode = argument,
                "--stub" => (asked.mode, asked.library) = (argument, arguments.next().unwrap_or_default()),
                "-o" => asked.out = arguments.next().map(PathBuf::from),
                "--output-directory" => asked.folder = arguments.next().unwrap_or_default().into(),
                "--default-stream" | "-Xcompiler" | "-ccbin" => drop(arguments.next()),
                _ if argument.starts_with("-D") || argument.starts_with("-I") => asked.options.push(argument),
                _ if argument.ends_with(".cu") => asked.source = argument.into(),
                _ if argument.ends_with(".o") => asked.objects.push(argument),
                _ => {}
            }
        }
        asked
    }

    /// The source with its macros expanded. Headers that are not there are empty.
    fn preprocessed(&self) -> io::Result<String> {
        let headers = env::temp_dir().join(format!("memtrace-nvcc-{}", std::process::id()));
        fs::create_dir_all(&headers)?;
        let text = self.preprocessed_with(&headers);
        fs::remove_dir_all(&headers)?;
        text
    }

    fn preprocessed_with(&self, headers: &Path) -> io::Result<String> {
        let mut text = String::new();
        for _ in 0..MOST_HEADERS {
            let ended = self.preprocessor(headers).output()?;
            text = String::from_utf8_lossy(&ended.stdout).into_owned();
            let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
            let missing = errors.split_once("fatal error: ").and_then(|(_, rest)| rest.split_once(": No such file"));
            let Some((missing, _)) = missing.filter(|_| !ended.status.success()) else { break };
            let header = headers.join(missing);
            fs::create_dir_all(header.parent().unwrap_or(headers))?;
            fs::write(header, "")?;
        }
        Ok(text)
    }

    fn preprocessor(&self, headers: &Path) -> Command {
        let mut command = compiler();
        command.args(["-E", "-P", "-w", "-x", "c++", "-I"]);
        command.arg(self.source.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")));
        command.arg("-idirafter").arg(headers).args(&self.options);
        command.args(["-D__CUDACC__", "-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=0"]);
        let cap = env::var("CUDA_COMPUTE_CAP").unwrap_or_else(|_| "90".to_owned());
        command.arg(format!("-D__CUDA_ARCH__={cap}0")).arg(&self.source);
        command
    }
}

/// The C compiler. `CC` may have arguments.
fn compiler() -> Command {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut words = compiler.split_whitespace().map(OsString::from);
    let mut command = Command::new(words.next().unwrap_or_else(|| "cc".into()));
    command.args(words);
    command
}

fn compiled(c: &str, options: &[&str], out: &Path) -> io::Result<()> {
    let mut command = compiler();
    command.args(["-x", "c", "-", "-w", "-fPIC"]).args(options).arg("-o").arg(out);
    let missing = |error| io::Error::other(format!("cannot run the C compiler, cc or what CC says: {error}"));
    let mut child = command.stdin(Stdio::piped()).spawn().map_err(missing)?;
    child.stdin.take().map_or(Ok(()), |mut input| input.write_all(c.as_bytes()))?;
    succeeds(child.wait()?.success(), "the C compiler")
}

fn succeeds(success: bool, what: &str) -> io::Result<()> {
    if success { Ok(()) } else { Err(io::Error::other(format!("{what} failed; its messages are above"))) }
}
