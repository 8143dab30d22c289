//! Profiles of a running session for servers.

use std::io::{self, Read, Write};

use crate::support::{MIB, Raw, alone, record_large};

/// Fails after some bytes.
struct Closed(usize);

impl Write for Closed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_live_session_writes_profiles_again_and_again_that_are_those_of_files() {
    let _alone = alone();
    let session = record_large();
    let folder = tempfile::tempdir().unwrap();
    let mut blocks = Vec::new();
    for call in 0..3 {
        blocks.push(Raw::new(MIB));
        let snapshot = session.snapshot();
        let mut body = Vec::new();
        snapshot.write_pprof(&mut body).unwrap();
        let mut profile = Vec::new();
        flate2::read::GzDecoder::new(&*body).read_to_end(&mut profile).unwrap();
        let file = snapshot.write(folder.path().join(format!("{call}.pb"))).unwrap();
        assert!(profile == std::fs::read(file).unwrap(), "profile {call} is not the file");
    }
}

#[test]
fn a_writer_that_fails_is_an_error() {
    let _alone = alone();
    let session = record_large();
    let block = Raw::new(MIB);
    let error = session.snapshot().write_pprof(Closed(10)).unwrap_err();
    assert!(error.to_string().contains("broken pipe"), "{error}");
    drop(block);
}
