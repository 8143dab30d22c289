//! A Slurm cluster on this machine, until it is dropped.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use xshell::cmd;

use crate::lane::Run;

pub(super) struct Slurm([Child; 2]);

impl Slurm {
    /// Starts a controller and a node.
    pub(super) fn started(run: &Run, folder: &Path) -> Result<Self> {
        let file = folder.join("slurm.conf");
        let configuration = run.shell.read_file("xtask/launchers/slurm.conf")?;
        let host = run.shell.read_file("/proc/sys/kernel/hostname")?;
        let configuration = configuration.replace("FOLDER", &folder.to_string_lossy()).replace("HOST", host.trim());
        run.shell.write_file(&file, configuration)?;
        run.shell.set_var("SLURM_CONF", &file);
        let daemon = |program: &str| {
            let mut command = Command::new(program);
            command.arg("-D").arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        let cluster = Self([daemon("slurmctld")?, daemon("slurmd")?]);
        for _ in 0..100 {
            if cmd!(run.shell, "sinfo --noheader --format %T")
                .quiet()
                .ignore_stderr()
                .read()
                .is_ok_and(|it| it == "idle")
            {
                return Ok(cluster);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        bail!("Slurm's node is not idle after 20 s");
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in &mut self.0 {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
