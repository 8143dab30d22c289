//! A server that is recorded for long: its memory and the files of its stream stay within their bounds, and its figures exact.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::cmd;

use super::consumers::server_program;
use crate::checks::Checks;
use crate::lane::{Run, said};

/// Bytes of the stream's files. The server fills them in about two minutes.
const BUDGET: u64 = 4 << 20;
/// Records that the log in memory holds: few, so that it is full in less than a minute.
const RECORDS: u64 = 50_000;
/// Each request generates at most so many tokens.
const TOKENS: u64 = 48;
/// What memtrace's part of resident memory may grow by from the second quarter of the time to the last one.
const GROWTH_KIB: u64 = 1 << 10;

/// `MEMTRACE_TEST_HOURS` says for how long.
pub(crate) fn run(run: &Run) -> Result<String> {
    let hours: f64 = std::env::var("MEMTRACE_TEST_HOURS").map_or(Ok(0.1), |hours| hours.parse())?;
    let recording = run.scratch("soak")?.join("server.memtrace");
    let (mut server, mut plain) = (Server::start(run, Some(&recording))?, Server::start(run, None)?);
    let told = server.serve(&plain, Duration::from_secs_f64(3600.0 * hours), &recording)?;
    server.end()?;
    plain.end()?;
    let mut checks = Checks::default();
    let kib = told.highest_kib;
    let bounded = format!("memtrace's part of resident memory is flat; its maxima in the quarters are {kib:?} KiB");
    checks.that(&bounded, kib[3] <= kib[1] + GROWTH_KIB);
    let files = format!("the stream's files have at most {BUDGET} bytes; they had {}", told.most_bytes);
    checks.that(&files, told.most_bytes <= BUDGET);
    report(run, &recording, &told, &mut checks)?;
    let (requests, tokens) = (told.requests, told.tokens);
    Ok(format!(
        "{hours} hours, {requests} requests for {tokens} tokens, {kib:?} KiB resident more than unrecorded: {}",
        checks.end()?
    ))
}

/// What was seen from outside.
#[derive(Default)]
struct Told {
    requests: u64,
    tokens: u64,
    /// What is resident beyond the unrecorded server, the highest of each quarter of the time.
    highest_kib: [u64; 4],
    /// The stream's files together.
    most_bytes: u64,
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts it, recorded if there is a file to record to. What grows without one is the server's, or the simulated driver's, which
    /// keeps its log in memory.
    fn start(run: &Run, recording: Option<&Path>) -> Result<Self> {
        let mut command = Command::new(server_program(run)?);
        command.args(["--port", "0", "--gpu"]).envs(run.simulated_gpu()?.variables()).stdout(Stdio::piped());
        match recording {
            Some(path) => command
                .env("MEMTRACE_OUT", path)
                .env("MEMTRACE_STREAM_BUDGET", BUDGET.to_string())
                .env("MEMTRACE_MAX_ENTRIES", RECORDS.to_string()),
            None => command.env("MEMTRACE", "0"),
        };
        let mut child = command.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let address = line.trim().strip_prefix("http://").context("the server says no address")?.to_owned();
        Ok(Self { child, address })
    }

    /// One request after the other, each to the unrecorded server, too.
    fn serve(&self, plain: &Self, time: Duration, recording: &Path) -> Result<Told> {
        let (began, mut told) = (Instant::now(), Told::default());
        while began.elapsed() < time {
            let tokens = 1 + told.requests * 7 % TOKENS;
            self.request(tokens)?;
            plain.request(tokens)?;
            told.requests += 1;
            told.tokens += tokens;
            let quarter = (began.elapsed().as_secs_f64() / time.as_secs_f64() * 4.0).min(3.0) as usize;
            told.highest_kib[quarter] =
                told.highest_kib[quarter].max(self.resident_kib()?.saturating_sub(plain.resident_kib()?));
            told.most_bytes = told.most_bytes.max(bytes_beside(recording)?);
        }
        Ok(told)
    }

    fn request(&self, tokens: u64) -> Result<()> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(stream, "GET /generate/{tokens} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.contains(" 200 OK"), "{answer}");
        Ok(())
    }

    fn resident_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no resident memory")?;
        Ok(line.trim_end_matches("kB").trim().parse()?)
    }

    fn end(&mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        ensure!(Command::new("kill").args(["-INT", &pid]).status()?.success(), "the server had ended");
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

/// All files of the recording's folder. If one is created or deleted meanwhile, the lengths are of different moments, and
/// are read again.
fn bytes_beside(recording: &Path) -> Result<u64> {
    let folder = recording.parent().context("a file has a folder")?;
    let files =
        || -> Result<Vec<PathBuf>> { Ok(std::fs::read_dir(folder)?.flatten().map(|file| file.path()).collect()) };
    let before = files()?;
    let bytes = before.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    if before == files()? { Ok(bytes) } else { bytes_beside(recording) }
}

/// Each token has a longer cache, eight tensors of 4 KiB a token, while the last one is there.
fn report(run: &Run, recording: &Path, told: &Told, checks: &mut Checks) -> Result<()> {
    cmd!(run.shell, "cargo build --quiet --package cargo-memtrace").run()?;
    let program = run.target.join("debug/cargo-memtrace");
    let text = said(cmd!(run.shell, "{program} memtrace report {recording} --device cuda:0 --json"))?;
    let report: Value = serde_json::from_str(&text)?;
    let device = &report["devices"][0];
    let weights = 8 << 20;
    checks.equal("the peak", device["peak"]["total_bytes"].as_u64(), Some(weights + 8 * 4096 * (2 * TOKENS - 1)));
    checks.equal("live at the end", device["stats"]["allocated_bytes.all.current"].as_u64(), Some(0));
    checks.equal("allocations", device["stats"]["allocation.all.allocated"].as_u64(), Some(8 + 8 * told.tokens));
    checks.that("the log no longer has its beginning", device["records_overwritten"].as_u64() > Some(0));
    Ok(())
}
