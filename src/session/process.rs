//! Identity of this process in snapshots, and file names made from it.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use memtrace_core::snapshot::{HostMemory, Launcher, Process, Thread, ThreadId};

use super::apart;
use super::files::is_number;
use crate::executable::executable;
use crate::record::thread;

/// For each launcher of distributed jobs: the variable with the process's rank, the variable with the number of ranks,
/// and the variables whose values together identify the job. The launchers are torchrun, Open MPI, PMIx (which has no
/// variable for the number of ranks), Hydra (of MPICH and Intel MPI) and srun. For srun these are the variables of a
/// step, because Slurm's job, in which srun runs, may have more processes than one program has ranks.
const LAUNCHERS: [(&str, Option<&str>, &[&str]); 5] = [
    ("RANK", Some("WORLD_SIZE"), &["TORCHELASTIC_RUN_ID"]),
    ("OMPI_COMM_WORLD_RANK", Some("OMPI_COMM_WORLD_SIZE"), &["PMIX_NAMESPACE"]),
    ("PMIX_RANK", None, &["PMIX_NAMESPACE"]),
    ("PMI_RANK", Some("PMI_SIZE"), &[]),
    ("SLURM_PROCID", Some("SLURM_STEP_NUM_TASKS"), &["SLURM_JOB_ID", "SLURM_STEP_ID"]),
];

/// torchrun's name for a job without an id.
const NO_JOB: &str = "none";

/// The rank that the first matching launcher gave to this process, and what the launcher says about the job. Launchers
/// nest, for instance torchrun below srun: then srun's numbers are those of torchrun's process, not of this one.
fn launched(variable: impl Fn(&str) -> Option<String>) -> (Option<u32>, Launcher) {
    let number = |name: &str| variable(name)?.parse::<u32>().ok();
    let found = LAUNCHERS.iter().find_map(|(rank, size, job)| Some((number(rank)?, size, job)));
    let Some((rank, size, job)) = found else { return (None, Launcher::default()) };
    let ids: Option<Vec<String>> = job.iter().map(|name| variable(name)).collect();
    let job = ids.map(|ids| ids.join(".")).filter(|job| !job.is_empty() && job != NO_JOB);
    let world_size = size.and_then(number).filter(|size| *size > rank);
    (Some(rank), Launcher { world_size, job })
}

pub(super) fn this_process() -> Process {
    let dir = std::env::current_dir().map(|dir| dir.display().to_string());
    let (rank, launcher) = launched(|name| std::env::var(name).ok());
    Process {
        program: program(),
        host: host(),
        pid: std::process::id(),
        rank,
        launcher,
        working_dir: dir.unwrap_or_default(),
        threads: threads(),
        ..Process::default()
    }
}

/// The folder of memtrace's sources, with a slash at its end, as it appears in the debug information of this program.
pub(super) fn own_folder() -> &'static str {
    let as_compiled = file!().strip_suffix("src/session/process.rs");
    // Cargo compiles packages of a workspace with relative paths.
    as_compiled.filter(|folder| folder.starts_with('/')).unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/"))
}

/// Physical memory of this process. `None` where the kernel has no `/proc`.
pub(super) fn host_memory(time_ns: u64) -> Option<HostMemory> {
    apart::read("/proc/self/status", 4 << 10, |status| host_memory_of(status, time_ns))
}

fn host_memory_of(status: &str, time_ns: u64) -> Option<HostMemory> {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let (resident, files) = (bytes("VmRSS")?, bytes("RssFile").unwrap_or(0));
    let resident_high = bytes("VmHWM").unwrap_or(0).max(resident);
    Some(HostMemory {
        time_ns,
        resident,
        resident_high,
        files,
        files_high: files,
        swapped: bytes("VmSwap").unwrap_or(0),
    })
}

fn host() -> String {
    let kernels = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernels.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}

/// Name of the executable file, without the remark ` (deleted)` that the kernel adds if the file was replaced since.
fn program() -> String {
    let path = executable();
    let name = path.as_deref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_default().trim_end_matches(" (deleted)").to_owned()
}

/// A thread's name. For an ended thread, it is the name that was kept at its end, because the system may have reused
/// the thread's id.
fn name(number: ThreadId, os_id: u32) -> String {
    let [first, last] = thread::kept_names(number);
    let now = || apart::read(&format!("/proc/self/task/{os_id}/comm"), 64, |name| Some(name.trim_end().to_owned()));
    last.or_else(now).or(first).unwrap_or_default()
}

pub(super) fn threads() -> Vec<Thread> {
    let thread = |(number, os_id)| Thread { number, os_id, name: name(number, os_id) };
    thread::seen().map(thread).collect()
}

/// Expands a file name pattern: `%e` program, `%h` host, `%p` pid, `%r` rank (0 if there is none), `%t` seconds since
/// 1970, `%%` a percent sign. Other characters after `%` stay.
pub(super) fn expand(pattern: &str, process: &Process) -> PathBuf {
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('e') => out.push_str(&process.program),
            Some('h') => out.push_str(&process.host),
            Some('p') => out.push_str(&process.pid.to_string()),
            Some('r') => out.push_str(&process.rank.unwrap_or(0).to_string()),
            Some('t') => out.push_str(&seconds_now().to_string()),
            Some('%') | None => out.push('%'),
            Some(other) => out.extend(['%', other]),
        }
    }
    out.into()
}

/// `host_program_pid_rank0_1790000000.EXTENSION`, the rank only where there is one.
pub(super) fn default_name(process: &Process, extension: &str) -> String {
    let rank = process.rank.map_or(String::new(), |rank| format!("_rank{rank}"));
    // A capture from another machine may contain any name; a separator would turn the name into a path.
    let name = |name: &str| name.replace(['/', '\\', '\0'], "-");
    let (host, program, pid) = (name(&process.host), name(&process.program), process.pid);
    let (started, below) = (process.started_unix_us / 1_000_000, process.started_unix_us % 1_000_000);
    let time = started + (below * 1000 + process.duration_ns) / 1_000_000_000;
    format!("{host}_{program}_{pid}{rank}_{time}.{extension}")
}

/// Whether this could be the [default name](default_name) of a pickle of any process with the same host and program. It
/// may end in the number that a second file of one name gets.
pub(super) fn is_default_name(file: &str, process: &Process) -> bool {
    let this = default_name(&Process { pid: 0, rank: None, ..process.clone() }, "pickle");
    let Some((program, _)) = this.rsplit_once("_0_") else { return false };
    let Some(rest) = file.strip_prefix(program).and_then(|rest| rest.strip_prefix('_')?.strip_suffix(".pickle")) else {
        return false;
    };
    let parts: Vec<&str> = rest.split('_').collect();
    let (pid, rank, time) = match *parts {
        [pid, time] => (pid, "rank0", time),
        [pid, rank, time] => (pid, rank, time),
        _ => return false,
    };
    let is_time = time.split_once('-').map_or(is_number(time), |(time, second)| is_number(time) && is_number(second));
    is_number(pid) && rank.strip_prefix("rank").is_some_and(is_number) && is_time
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_filled_in() {
        let process = Process { program: "net".into(), host: "box".into(), pid: 7, ..Process::default() };
        let fixed = expand("out/%e-%h-%p-%r-100%%-%x%", &process);
        assert_eq!(fixed.to_str(), Some("out/net-box-7-0-100%-%x%"));
        let ranked = Process { rank: Some(3), ..process.clone() };
        assert_eq!(expand("%r", &ranked).to_str(), Some("3"));
        assert!(expand("%t", &process).to_str().unwrap().parse::<u64>().unwrap() >= seconds_now() - 1);
    }

    #[test]
    fn the_innermost_launcher_says_which_rank_of_how_many_a_process_is() {
        let says = |variables: &[(&str, &str)]| {
            launched(|name| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned()))
        };
        let told =
            |rank, world_size, job: Option<&str>| (Some(rank), Launcher { world_size, job: job.map(str::to_owned) });
        let srun = [
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_NTASKS", "9"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "0"),
        ];
        assert_eq!(says(&srun), told(1, Some(2), Some("77.0")));
        let torchrun = [("RANK", "6"), ("WORLD_SIZE", "8"), ("TORCHELASTIC_RUN_ID", "abc")];
        assert_eq!(says(&[&srun[..], &torchrun].concat()), told(6, Some(8), Some("abc")));
        assert_eq!(
            says(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("TORCHELASTIC_RUN_ID", "none")]),
            told(0, Some(2), None)
        );
        let mpirun = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_NAMESPACE", "a@1")];
        assert_eq!(says(&[&mpirun[..], &[("PMIX_RANK", "3")]].concat()), told(3, Some(4), Some("a@1")));
        assert_eq!(says(&[("PMIX_RANK", "3"), ("SLURM_STEP_NUM_TASKS", "2")]), told(3, None, None));
        assert_eq!(says(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]), told(1, Some(2), None));
        // A number of ranks that is not larger than the rank is wrong. An allocation alone is no job.
        assert_eq!(says(&[("PMI_RANK", "1"), ("PMI_SIZE", "1")]), told(1, None, None));
        assert_eq!(says(&srun[3..]), (None, Launcher::default()));
    }

    #[test]
    fn dumps_of_another_program_are_not_taken_for_this_ones() {
        let process = Process { program: "train".into(), host: "box".into(), pid: 7, ..Process::default() };
        let is_ours = |name: &&str| is_default_name(name, &process);
        let ours = ["box_train_7_179.pickle", "box_train_8_rank12_179.pickle", "box_train_8_179-2.pickle"];
        assert!(ours.iter().all(is_ours));
        let others = [
            "box_train_big_7_179.pickle",
            "box_train_7_179.trace.json",
            "box_train_notes.pickle",
            "box_train_7_final.pickle",
            "box_train_7_rank_179.pickle",
            "box_train_7_.pickle",
            "box_trainer_7_179.pickle",
        ];
        assert!(!others.iter().any(is_ours));
    }

    #[test]
    fn resident_memory_grows_with_touched_pages() {
        let before = host_memory(1).unwrap();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = host_memory(2).unwrap();
        // For each thread, the kernel counts in batches of pages.
        assert!(after.resident >= before.resident + (48 << 20), "{before:?} {after:?}");
        assert!(after.files > 0 && after.resident_high >= after.resident && after.time_ns == 2, "{after:?}");
        drop(touched);
    }

    #[test]
    fn default_names_carry_host_program_pid_rank_and_time() {
        let process = Process {
            program: "net".into(),
            host: "box".into(),
            pid: 7,
            started_unix_us: 1_790_000_000_999_999,
            duration_ns: 1_000_001_000,
            ..Process::default()
        };
        assert_eq!(default_name(&process, "pickle"), "box_net_7_1790000002.pickle");
        let elsewhere = Process { host: "../..".into(), started_unix_us: 1 << 62, ..process.clone() };
        assert_eq!(default_name(&elsewhere, "pickle"), "..-.._net_7_4611686018428.pickle");
        let ranked = Process { rank: Some(0), ..process };
        assert_eq!(default_name(&ranked, "json.gz"), "box_net_7_rank0_1790000002.json.gz");
    }
}
