//! The packages for the registry. Each is packaged, and built from its `.crate` in an empty folder, after its
//! dependencies.

use anyhow::Result;
use xshell::cmd;

use super::files::ReleaseFolder;
use super::versions;
use crate::checks::Checks;
use crate::lane::Run;
use crate::lanes::packaged_source;

pub(super) fn package_and_build(run: &Run, release: &ReleaseFolder, checks: &mut Checks) -> Result<()> {
    let (shell, home) = (&run.shell, run.scratch("crates")?);
    packaged_source(run, &home.join("vendor"), &home.join(".cargo"))?;
    let _home = shell.push_env("CARGO_HOME", home.join(".cargo"));
    let _target = shell.push_env("CARGO_TARGET_DIR", home.join("target"));
    // Without debug information the build takes less time and space, with the same result.
    let _debug = shell.push_env("CARGO_PROFILE_DEV_DEBUG", "0");
    for name in versions::in_order(run)? {
        let file = format!("{name}-{}.crate", release.version);
        let package = run.target.join("package").join(&file);
        let folder = shell.create_dir(home.join("built"))?;
        cmd!(shell, "tar --extract --gzip --file {package} --directory {folder}").quiet().run()?;
        let _here = shell.push_dir(folder.join(file.trim_end_matches(".crate")));
        let built = cmd!(shell, "cargo build --quiet").quiet().run();
        checks.result(&file, built.map(|()| "builds from its file".to_owned()).map_err(Into::into));
        shell.copy_file(package, release.path())?;
    }
    Ok(())
}
