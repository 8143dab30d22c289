//! A second process that shares memory: this program, started as a child.
#![expect(unsafe_code, reason = "files of other processes are taken from the kernel")]

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use cudarc::driver::sys::{CUipcMemHandle, CUresult};

use crate::gpu::Gpu;
use crate::raw::{self, LEGACY, Outcome};
use crate::{calls, sharing};

/// The argument that makes this program the child.
pub(crate) const EXPORT: &str = "export";
/// The size of the shared classic block.
const SIZE: usize = 3 << 20;
/// The size of the shared block of the pool.
const OF_POOL: usize = 5000;
/// What the child prints for what it cannot share.
const NOTHING: &str = "-";

/// The child: prints what it shares in one line, and keeps it until its input ends.
pub(crate) fn export() -> Result<(), String> {
    let _gpu = Gpu::open()?;
    let classic = raw::alloc(SIZE).and_then(calls::ipc_handle).map(|handle| handle.reserved.map(|byte| byte as u8));
    let physical = calls::granularity().and_then(sharing::physical).and_then(sharing::export_physical);
    let (pool, pointer) = pool().unzip();
    let number = |file: Option<i32>| file.map_or(NOTHING.to_owned(), |file| file.to_string());
    println!("{} {} {} {}", hex(classic.ok()), number(physical.ok()), number(pool), hex(pointer));
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}

/// A pool as a file descriptor, and a block of it.
fn pool() -> Option<(i32, [u8; 64])> {
    let pool = sharing::pool().ok()?;
    let block = raw::alloc_from_pool(OF_POOL, pool, LEGACY).ok()?;
    raw::synchronise(LEGACY).ok()?;
    Some((sharing::export_pool(pool).ok()?, sharing::export_pointer(block).ok()?))
}

fn hex(bytes: Option<[u8; 64]>) -> String {
    bytes.map_or(NOTHING.to_owned(), |bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What the child printed; `None` is not supported.
struct Shared {
    classic: Outcome<[u8; 64]>,
    physical: Outcome<i32>,
    pool: Outcome<i32>,
    pointer: Outcome<[u8; 64]>,
}

impl Shared {
    fn parse(line: &str) -> Option<Self> {
        let [classic, physical, pool, pointer] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
        Some(Self { classic: bytes(classic), physical: number(physical), pool: number(pool), pointer: bytes(pointer) })
    }
}

fn number(text: &str) -> Outcome<i32> {
    text.parse().map_err(|_| CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

fn bytes(text: &str) -> Outcome<[u8; 64]> {
    let mut bytes = [0; 64];
    for (at, byte) in bytes.iter_mut().enumerate() {
        let digits = text.get(2 * at..2 * at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        *byte = digits.ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    }
    Ok(bytes)
}

/// The child process, which ends when this is dropped.
pub(crate) struct Exporter {
    child: Child,
    shared: Shared,
}

impl Exporter {
    pub(crate) fn start() -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        // The environment may request a recording; the child must not start one.
        command.arg(EXPORT).env("MEMTRACE", "0").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("it has no output")?;
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        if let Some(shared) = Shared::parse(&line) {
            return Ok(Self { child, shared });
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(format!("the second process said {line:?}"))
    }

    pub(crate) fn classic(&self) -> Outcome<CUipcMemHandle> {
        Ok(CUipcMemHandle { reserved: self.shared.classic?.map(|byte| byte as _) })
    }

    /// `None` if the kernel refuses to pass the descriptor.
    pub(crate) fn physical(&self) -> Outcome<Option<OwnedFd>> {
        self.shared.physical.map(|file| self.file(file))
    }

    /// The same, with a block of the pool.
    pub(crate) fn pool(&self) -> Outcome<(Option<OwnedFd>, [u8; 64])> {
        Ok((self.file(self.shared.pool?), self.shared.pointer?))
    }

    /// A descriptor of the child's, duplicated into this process.
    fn file(&self, number: i32) -> Option<OwnedFd> {
        // SAFETY: a system call with integer arguments.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, self.child.id(), 0) };
        // SAFETY: the kernel has just returned this descriptor, if it is valid.
        let process = (process >= 0).then(|| unsafe { OwnedFd::from_raw_fd(process as i32) })?;
        // SAFETY: as above.
        let file = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
        // SAFETY: as above.
        (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file as i32) })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
