//! The kinds of machine for which xtask builds programs.

use anyhow::{Error, Result};
use memtrace_runner::kit::Kit;
use xshell::Cmd;

use crate::lane::Run;

/// A target of Rust's compiler, with programs that make files for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) target: &'static str,
    pub(crate) compiler: &'static str,
    pub(crate) strip: &'static str,
}

/// This machine.
pub(crate) const HERE: Machine = Machine {
    target: match cfg!(target_arch = "aarch64") {
        true => AARCH64.target,
        false => "x86_64-unknown-linux-gnu",
    },
    compiler: "cc",
    strip: "strip",
};

/// A machine that QEMU emulates here.
pub(crate) const AARCH64: Machine = Machine {
    target: "aarch64-unknown-linux-gnu",
    compiler: "aarch64-linux-gnu-gcc",
    strip: "aarch64-linux-gnu-strip",
};

impl Machine {
    fn is_here(&self) -> bool {
        self.target == HERE.target
    }

    /// A build for this machine.
    pub(crate) fn builds<'a>(&self, build: Cmd<'a>) -> Cmd<'a> {
        if self.is_here() {
            return build;
        }
        let name = self.target.replace('-', "_");
        // Only programs for the other machine get its compiler, because build scripts are programs of this machine.
        build
            .args(["--target", self.target])
            .env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), self.compiler)
            .env(format!("CC_{name}"), self.compiler)
    }

    pub(crate) fn kit(&self, run: &Run) -> Result<Kit> {
        let kit = Kit::of(&run.root).map_err(Error::msg)?;
        Ok(if self.is_here() { kit } else { kit.built_for(self.target, self.compiler) })
    }
}
