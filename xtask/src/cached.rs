//! Third-party files that lanes need, kept only in the cache.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use xshell::cmd;

use crate::lane::{Run, output};

/// A folder of the cache, which appears complete or not at all. `None` if `fetch` finds that it is not available.
pub(crate) fn cached(run: &Run, name: &Path, fetch: impl FnOnce(&Path) -> Result<bool>) -> Result<Option<PathBuf>> {
    let folder = run.cache()?.join(name);
    if folder.is_dir() {
        return Ok(Some(folder));
    }
    let new = folder.with_extension("new");
    run.shell.remove_path(&new)?;
    run.shell.create_dir(&new)?;
    if !fetch(&new)? {
        run.shell.remove_path(&new)?;
        return Ok(None);
    }
    if let Err(error) = std::fs::rename(&new, &folder) {
        bail!("{} cannot be kept: {error}", folder.display());
    }
    Ok(Some(folder))
}

/// Unpacks a package of Debian's pool; false if there is no network.
pub(crate) fn debian(run: &Run, package: &str, sha256: &str, into: &Path) -> Result<bool> {
    let (file, url) = (into.join("package.deb"), format!("https://deb.debian.org/debian/pool/{package}"));
    let fetched = output(cmd!(run.shell, "curl --silent --fail --location --max-time 300 --output {file} {url}"))?;
    if !fetched.status.success() {
        return Ok(false);
    }
    let sum = cmd!(run.shell, "sha256sum {file}").quiet().read()?;
    ensure!(sum.starts_with(sha256), "{url} is another file than it was");
    cmd!(run.shell, "dpkg-deb --extract {file} {into}").quiet().run()?;
    run.shell.remove_path(file)?;
    Ok(true)
}

/// The `bin` folder of a Python environment with the packages in `xtask/NAME/requirements.txt`.
pub(crate) fn python_environment(run: &Run, name: &str) -> Result<PathBuf> {
    let (shell, folder) = (&run.shell, run.cache()?.join(name));
    let requirements = run.root.join("xtask").join(name).join("requirements.txt");
    let (programs, ready, content) = (folder.join("bin"), folder.join("ready"), shell.read_file(&requirements)?);
    if shell.read_file(&ready).is_ok_and(|known| known == content) {
        return Ok(programs);
    }
    cmd!(shell, "python3 -m venv --clear {folder}").run()?;
    cmd!(
        shell,
        "{programs}/python -m pip install --quiet --no-deps --only-binary=:all: --require-hashes -r {requirements}"
    )
    .run()?;
    shell.write_file(ready, content)?;
    Ok(programs)
}
