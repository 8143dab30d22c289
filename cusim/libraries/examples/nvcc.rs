//! Stand-in for nvcc: compiles every kernel to an empty one with its signature, so that candle's feature `cuda` builds without
//! a toolkit. It knows what cudaforge, bindgen_cuda and cudarc ask of nvcc: its version, PTX, objects and archives. `--stub NAME`
//! makes a library of that name with the functions on the standard input, to link against.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::{env, fs};

use memtrace_cusim_libraries::signatures;

/// cudarc reads the release from the fourth line.
const VERSION: &str = "memtrace's stand-in for nvcc\n\n\nCuda compilation tools, release 13.0, V13.0.0";
const ARCHITECTURES: &str = "sm_80\nsm_86\nsm_89\nsm_90";

/// The most headers that may be missing.
const MOST_HEADERS: usize = 50;

fn main() -> ExitCode {
    match run(&env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stand-in nvcc: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> io::Result<()> {
    let is_asked = |name: &str| arguments.iter().any(|argument| argument == name);
    let after = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let source = Path::new(arguments.iter().rfind(|argument| argument.ends_with(".cu")).map_or("", |source| source));
    let folder = Path::new(after("--output-directory").map_or("", |folder| folder));
    let ptx = || folder.join(source.with_extension("ptx").file_name().unwrap_or_default());
    let out = after("-o").map_or_else(ptx, PathBuf::from);
    if is_asked("--version") || is_asked("-V") {
        writeln!(io::stdout(), "{VERSION}")
    } else if is_asked("--list-gpu-code") {
        writeln!(io::stdout(), "{ARCHITECTURES}")
    } else if is_asked("--ptx") {
        let source = preprocessed(source, arguments, &out.with_extension("headers"))?;
        fs::write(out, signatures::ptx(&source))
    } else if is_asked("-c") {
        // The functions that the crate declares, whatever the source says.
        let declared = fs::read_to_string("src/ffi.rs").unwrap_or_default();
        compile(&signatures::functions(&declared), &["-c"], &out)
    } else if let Some(name) = after("--stub") {
        let functions = io::read_to_string(io::stdin())?;
        let functions: String = functions.lines().map(|name| format!("void {name}(void) {{}}\n")).collect();
        compile(&functions, &["-shared", "-nostdlib", &format!("-Wl,-soname,{name}")], &out)
    } else if is_asked("--lib") {
        let _ = fs::remove_file(&out);
        let objects = arguments.iter().filter(|argument| argument.ends_with(".o"));
        succeeded("ar", Command::new("ar").arg("crs").arg(out).args(objects).status()?)
    } else {
        Err(io::Error::other("unknown arguments"))
    }
}

/// A source with its macros expanded. For each missing header, an empty one is put into the new folder `headers`.
fn preprocessed(source: &Path, arguments: &[String], headers: &Path) -> io::Result<String> {
    fs::create_dir_all(headers)?;
    let cap = env::var("CUDA_COMPUTE_CAP").unwrap_or_else(|_| "90".to_owned());
    let mut command = compiler();
    command.args([
        "-E",
        "-P",
        "-w",
        "-x",
        "c++",
        "-D__CUDACC__",
        "-D__CUDACC_VER_MAJOR__=13",
        "-D__CUDACC_VER_MINOR__=0",
    ]);
    command.args(arguments.iter().filter(|argument| argument.starts_with("-D") || argument.starts_with("-I")));
    command.arg("-I").arg(Path::new(".").join(source.parent().unwrap_or(source))).arg("-idirafter").arg(headers);
    command.arg(format!("-D__CUDA_ARCH__={cap}0")).arg(source);
    let mut text = String::new();
    for _ in 0..MOST_HEADERS {
        let ended = command.output()?;
        text = String::from_utf8_lossy(&ended.stdout).into_owned();
        let errors = String::from_utf8_lossy(&ended.stderr);
        let missing = errors.split_once("fatal error: ").and_then(|(_, rest)| rest.split_once(": No such file"));
        let Some((missing, _)) = missing.filter(|_| !ended.status.success()) else { break };
        let header = headers.join(missing);
        fs::create_dir_all(header.parent().unwrap_or(headers))?;
        fs::write(header, "")?;
    }
    fs::remove_dir_all(headers)?;
    Ok(text)
}

/// The C compiler. `CC` may have arguments.
fn compiler() -> Command {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words);
    command
}

fn compile(c: &str, options: &[&str], out: &Path) -> io::Result<()> {
    let mut command = compiler();
    command.args(["-x", "c", "-", "-w", "-fPIC"]).args(options).arg("-o").arg(out);
    let missing = |error| io::Error::other(format!("cannot run the C compiler, cc or what CC says: {error}"));
    let mut child = command.stdin(Stdio::piped()).spawn().map_err(missing)?;
    child.stdin.take().map_or(Ok(()), |mut input| input.write_all(c.as_bytes()))?;
    succeeded("the C compiler", child.wait()?)
}

fn succeeded(what: &str, status: ExitStatus) -> io::Result<()> {
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{what} failed; its messages are above"))) }
}
