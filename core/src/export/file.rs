//! Atomic file creation: writes a temporary file in the same folder, syncs it, and renames it.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::Format;
use crate::error::Error;

/// Writes a new file atomically: readers never see a part of it, and a failure leaves nothing behind. An existing file
/// is not changed; then the new file gets a number, `NAME-2.EXTENSION`. If the name ends in `.gz`, the content is
/// compressed. Returns the file's path and the result of `content`.
///
/// # Errors
/// If the file cannot be written, or if the path exists and is not a file.
pub fn create<T>(path: &Path, content: impl Fn(&mut dyn Write) -> Result<T, Error>) -> Result<(PathBuf, T), Error> {
    let is_taken = |error: &Error| error.is_already_exists() && path.is_file();
    first_free(path, is_taken, |path| new(path, &content).map(|made| (path.to_owned(), made)))
}

/// Makes a file with this name, or with the first of `NAME-2.EXTENSION`, `NAME-3.EXTENSION`, … that is free.
#[doc(hidden)]
pub fn first_free<T, E>(
    path: &Path,
    is_taken: impl Fn(&E) -> bool,
    mut make: impl FnMut(&Path) -> Result<T, E>,
) -> Result<T, E> {
    let mut number = 1u64;
    loop {
        match make(&numbered(path, number)) {
            Err(error) if is_taken(&error) => number += 1,
            made => return made,
        }
    }
}

fn numbered(path: &Path, number: u64) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    let stem = Format::stem(plain);
    path.with_file_name(format!("{stem}-{number}{}", &name[stem.len()..]))
}

fn new<T>(path: &Path, content: impl FnOnce(&mut dyn Write) -> Result<T, Error>) -> Result<T, Error> {
    if path.symlink_metadata().is_ok() {
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
    match temporary.persist_noclobber(path) {
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

/// Compresses the content. Without the feature `gzip`, writes it uncompressed.
///
/// # Errors
/// If `out` or `content` fails.
#[doc(hidden)]
pub fn compressed_or_plain<T>(
    out: &mut dyn Write,
    content: impl FnOnce(&mut dyn Write) -> Result<T, Error>,
) -> Result<T, Error> {
    if cfg!(feature = "gzip") { compressed(out, content) } else { content(out) }
}

/// Checks that a file can be created at `path`, by creating a temporary file in the innermost folder that exists.
///
/// # Errors
/// If no file can be created there.
pub fn can_be_made(path: &Path) -> Result<(), Error> {
    let there = folder_of(path).ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    new_file(there).map(drop).map_err(|source| Error::output(path, source))
}

/// Replaces a file's content atomically, or creates the file. Permissions stay as they are. If the path is a symbolic
/// link, its target is replaced.
///
/// # Errors
/// If the file cannot be written.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), Error> {
    let output = |source| Error::output(path, source);
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut temporary = new_file(folder_of(&target)).map_err(output)?;
    temporary.write_all(content).map_err(output)?;
    if let Ok(old) = target.metadata() {
        temporary.as_file().set_permissions(old.permissions()).map_err(output)?;
    }
    temporary.as_file().sync_data().map_err(output)?;
    temporary.persist(target).map(drop).map_err(|error| output(error.error))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary file with the permissions of an ordinary new file.
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
        create(&path, |out| Ok(out.write_all(b"all of it")?)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"all of it");
        assert_eq!(names(path.parent().unwrap()), ["file"]);
    }

    #[test]
    fn an_existing_file_is_left_as_it_is_and_the_new_one_has_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.trace.json");
        let made: Vec<PathBuf> = (0..3).map(|_| create(&path, |out| Ok(out.write_all(b"new")?)).unwrap().0).collect();
        let expected = ["a.trace.json", "a-2.trace.json", "a-3.trace.json"];
        assert_eq!(made, expected.map(|name| dir.path().join(name)));
        assert_eq!(numbered(Path::new("b/x.pickle.gz"), 2), Path::new("b/x-2.pickle.gz"));
        let failed = create::<()>(&path, |_| Err(Error::from(io::Error::other("disk full"))));
        assert!(failed.is_err() && names(dir.path()).len() == 3);
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
    fn what_is_no_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, link) = (dir.path().join("folder"), dir.path().join("link"));
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        for path in [folder, link] {
            assert!(create(&path, |_| Ok(())).unwrap_err().is_already_exists());
        }
    }

    #[test]
    fn a_failed_write_leaves_nothing_and_names_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let error = create::<()>(&path, |out| {
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
        let error = create(&dir.path().join("file/below"), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
    }
}
