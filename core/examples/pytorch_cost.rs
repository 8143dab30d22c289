//! Time and peak memory of reading a PyTorch memory snapshot: `pytorch_cost FILE [--report]`.

use std::fs;
use std::time::Instant;

use memtrace_core::export::Text;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let file = arguments.first().ok_or("usage: pytorch_cost FILE [--report]")?;
    let begin = Instant::now();
    let data = memtrace_core::open(file)?;
    let seconds = begin.elapsed().as_secs_f64();
    let records: usize = data.devices.iter().map(|device| device.records.len()).sum();
    let length = fs::metadata(file)?.len();
    println!("{length} bytes, {records} records, {} stacks", data.stacks.len());
    println!("read in {seconds:.3} s; peak memory {} KiB", peak_kib().unwrap_or(0));
    if arguments.iter().any(|argument| argument == "--report") {
        println!("{}", Text::default().render(&data)?);
    }
    Ok(())
}

/// The high-water mark of this process's resident memory, as Linux has it.
fn peak_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
