//! Files that appear whole or not at all.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::error::Error;

/// Where a file goes, and what becomes of one that is there.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// A file that is there is replaced.
    Replaced(&'a Path),
    /// It is left as it is, and the place is taken.
    New(&'a Path),
}

impl<'a> Place<'a> {
    /// Where.
    pub fn path(self) -> &'a Path {
        let (Self::Replaced(path) | Self::New(path)) = self;
        path
    }

    /// Folders, devices and links are not replaced.
    fn is_taken(self) -> bool {
        let there = self.path().symlink_metadata();
        there.is_ok_and(|there| !there.is_file() || matches!(self, Self::New(_)))
    }
}

/// Writes a file: to a temporary name beside it, then renamed. A reader never sees half of it, and a failure leaves all
/// as it was. Compressed if it is called `.gz`.
///
/// # Errors
/// If it cannot be written, or the place is taken.
pub fn create<T>(place: Place<'_>, content: impl FnOnce(&mut dyn Write) -> Result<T, Error>) -> Result<T, Error> {
    let path = place.path();
    if place.is_taken() {
        return Err(Error::exists(path));
    }
    let output = |source| Error::output(path, source);
    let dir = folder_of(path);
    fs::create_dir_all(dir).map_err(output)?;
    let mut temporary = new_file(dir).map_err(output)?;
    let mut buffered = BufWriter::with_capacity(1 << 16, temporary.as_file_mut());
    let made = if path.extension().is_some_and(|extension| extension == "gz") {
        compressed(&mut buffered, content).map_err(|error| error.at(path))?
    } else {
        content(&mut buffered).map_err(|error| error.at(path))?
    };
    buffered.flush().map_err(output)?;
    drop(buffered);
    temporary.as_file().sync_data().map_err(output)?;
    let persisted = match place {
        Place::Replaced(path) => temporary.persist(path),
        Place::New(path) => temporary.persist_noclobber(path),
    };
    match persisted {
        Ok(_) => Ok(made),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(Error::exists(path)),
        Err(error) => Err(output(error.error)),
    }
}

#[cfg(feature = "gzip")]
fn compressed<T>(out: &mut dyn Write, content: impl FnOnce(&mut dyn Write) -> Result<T, Error>) -> Result<T, Error> {
    let mut compressed = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
    let made = content(&mut compressed)?;
    compressed.finish()?;
    Ok(made)
}

#[cfg(not(feature = "gzip"))]
fn compressed<T>(_: &mut dyn Write, _: impl FnOnce(&mut dyn Write) -> Result<T, Error>) -> Result<T, Error> {
    Err(io::Error::other("it ends in .gz; build memtrace with its feature `gzip`").into())
}

/// An error if no file can be made there, by a look at the innermost folder that there is. Leaves nothing behind.
///
/// # Errors
/// If no file can be made there.
pub fn can_be_made(path: &Path) -> Result<(), Error> {
    let there = folder_of(path).ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    new_file(there).map(drop).map_err(|source| Error::output(path, source))
}

/// Puts new content in a file's place, whole.
///
/// # Errors
/// If it cannot be written.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), Error> {
    let output = |source| Error::output(path, source);
    let dir = folder_of(path);
    let mut temporary = new_file(dir).map_err(output)?;
    temporary.write_all(content).map_err(output)?;
    temporary.as_file().sync_data().map_err(output)?;
    temporary.persist(path).map(drop).map_err(|error| output(error.error))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// With the permissions that a new file has, not the private ones of a temporary file.
fn new_file(dir: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".memtrace-").suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_file_appears_whole_and_in_a_new_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/file");
        create(Place::New(&path), |out| Ok(out.write_all(b"all of it")?)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"all of it");
        assert_eq!(names(path.parent().unwrap()), ["file"]);
    }

    #[test]
    fn an_existing_file_is_replaced_whole_or_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        fs::write(&path, "old").unwrap();
        let error = create(Place::New(&path), |out| Ok(out.write_all(b"new")?)).unwrap_err();
        assert!(error.is_already_exists() && text(&path) == "old", "{error}");
        let failed = create::<()>(Place::Replaced(&path), |_| Err(Error::from(io::Error::other("disk full"))));
        assert!(failed.is_err() && text(&path) == "old");
        create(Place::Replaced(&path), |out| Ok(out.write_all(b"new")?)).unwrap();
        assert_eq!((text(&path).as_str(), names(dir.path())), ("new", vec!["file".to_owned()]));
    }

    #[test]
    fn a_place_is_tried_without_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        can_be_made(&dir.path().join("a/b/file")).unwrap();
        assert_eq!(names(dir.path()), Vec::<String>::new());
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(can_be_made(&dir.path().join("file/below")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, link) = (dir.path().join("folder"), dir.path().join("link"));
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        for path in [folder, link] {
            assert!(create(Place::Replaced(&path), |_| Ok(())).unwrap_err().is_already_exists());
        }
    }

    #[test]
    fn a_failed_write_leaves_nothing_and_names_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let error = create::<()>(Place::New(&path), |out| {
            out.write_all(b"half")?;
            Err(Error::from(io::Error::other("disk full")))
        });
        let text = error.unwrap_err().to_string();
        assert!(text.contains("disk full") && text.contains("file"), "{text}");
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_cannot_be_is_a_clear_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = create(Place::New(&dir.path().join("file/below")), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
    }
}
