//! Memory of another process: this program once more, as a child that shares what it allocates.
#![expect(unsafe_code, reason = "files of other processes are taken from the kernel")]

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUipcMemHandle, CUpointer_attribute, CUresult};
use memtrace::Device;

use crate::calls;
use crate::gpu::{needs, pointer_attribute};
use crate::raw::{self, Outcome};
use crate::table::Table;
use crate::watch::{Did, came_and_went, watch};

/// The argument that makes this program the child.
pub(crate) const EXPORT: &str = "export";
const SIZE: usize = 3 << 20;
/// The only flag there is; it must be given.
pub(crate) const LAZY_PEER_ACCESS: u32 = 1;

/// The child: says what it shares in one line, and keeps it until its input ends.
pub(crate) fn export() -> Result<(), String> {
    let _context = CudaContext::new(0).map_err(|error| error.to_string())?;
    let address = raw::alloc(SIZE).map_err(|code| format!("{code:?}"))?;
    let handle = calls::ipc_handle(address).map(|handle| handle.reserved.map(|byte| byte as u8));
    let file = calls::granularity().and_then(calls::physical_to_share).and_then(calls::export_physical);
    let hex: String = handle.unwrap_or([0; 64]).iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{hex} {} {}", handle.err().map_or(0, |code| code as u32), file.unwrap_or(-1));
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}

/// The child, and what it said.
pub(crate) struct Exporter {
    child: Child,
    pub(crate) handle: Outcome<CUipcMemHandle>,
    file: i32,
}

impl Exporter {
    pub(crate) fn start() -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        // The child's own recording, if the environment asks for one, is not wanted.
        let mut command = Command::new(program);
        command.arg(EXPORT).env("MEMTRACE", "0").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("it has no output")?;
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let Some((handle, file)) = parse(&line) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("the other process says {line:?}"));
        };
        Ok(Self { child, handle, file })
    }

    /// A file of the child's as one of ours. The kernel may forbid it.
    fn file(&self) -> Option<OwnedFd> {
        // SAFETY: system calls that take numbers.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, self.child.id(), 0) };
        // SAFETY: the kernel made it just now, if it is one.
        let process = (process >= 0).then(|| unsafe { OwnedFd::from_raw_fd(process as i32) })?;
        // SAFETY: as above.
        let file = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), self.file, 0) };
        // SAFETY: as above.
        (self.file >= 0 && file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file as i32) })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn parse(line: &str) -> Option<(Outcome<CUipcMemHandle>, i32)> {
    let [hex, code, file] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    let byte = |at: usize| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok();
    let mut reserved = [0; 64];
    for (at, place) in reserved.iter_mut().enumerate() {
        *place = byte(at)? as _;
    }
    let handle = if code == "0" { Ok(CUipcMemHandle { reserved }) } else { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) };
    Some((handle, file.parse().ok()?))
}

/// Closes a file's number.
pub(crate) fn close(file: i32) {
    // SAFETY: the callers were given the number by the driver, for them alone.
    drop(unsafe { OwnedFd::from_raw_fd(file) });
}

pub(crate) fn rows(table: &mut Table) -> Outcome<()> {
    let exporter = match Exporter::start() {
        Ok(exporter) => exporter,
        Err(reason) => {
            table.info("memory of another process", format!("not tried: {reason}"));
            return Ok(());
        }
    };
    watch(table, "cuIpcOpenMemHandle_v2, …CloseMemHandle", || opened(&exporter));
    match exporter.file() {
        Some(file) => watch(table, "cuMemImportFromShareableHandle, mapped", || mapped(&file)),
        None => table.info("cuMemImportFromShareableHandle, mapped", "not tried: the kernel does not hand files over"),
    }
    Ok(())
}

/// Opened twice, it is there once. Its size is what the driver says.
fn opened(exporter: &Exporter) -> Outcome<Did> {
    let handle = exporter.handle?;
    let address = calls::ipc_open(handle, LAZY_PEER_ACCESS)?;
    let again = calls::ipc_open(handle, LAZY_PEER_ACCESS)?;
    let (code, size) = pointer_attribute(address, CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE);
    calls::ipc_close(again)?;
    calls::ipc_close(address)?;
    let size = if code == CUresult::CUDA_SUCCESS { size } else { 0 };
    let opened = if again == address { 1 } else { 2 };
    let came = (0..opened).map(|_| size as i64);
    Ok(came.clone().chain(came.map(|size| -size)).map(|size| (Device::Imported, size)).collect())
}

/// Physical memory of the other process, mapped here.
fn mapped(file: &OwnedFd) -> Outcome<Did> {
    needs(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?;
    let size = calls::granularity()?;
    let handle = raw::import_physical(file.as_raw_fd())?;
    let address = raw::reserve(size, 0, 0, 0)?;
    raw::map(address, size, 0, handle, 0)?;
    raw::release_physical(handle)?;
    raw::unmap(address, size)?;
    calls::free_addresses(address, size)?;
    came_and_went(Device::Imported, size as i64)
}
