//! Standard input of a command: complete before the command starts.
//!
//! A worker that feeds a pipe while the command runs can be killed half-way, and the command cannot
//! tell a cut-off input from a whole one. So nothing is left to feed: a small input is already in
//! the pipe, and a larger one is in a file that has no name any more.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;

use tenure_core::PublishError;

/// Largest input in a pipe. A pipe has room for one page at least, so the write never waits.
const PIPE_BYTES_MAX: usize = 4096;
/// Attempts to find a free name for a file.
const NAMES_MAX: u32 = 16;

/// Prepares `bytes` as the standard input of a command.
pub(super) async fn prepared(bytes: Vec<u8>) -> Result<Stdio, PublishError> {
    let length = bytes.len();
    if length <= PIPE_BYTES_MAX {
        let reader = filled_pipe(&bytes).map_err(|cause| {
            PublishError::away(format!("cannot make a pipe for the input: {cause}"))
        })?;
        return Ok(reader.into());
    }
    let folder = std::env::temp_dir();
    let place = folder.display().to_string();
    // The disk may be slow.
    let written = tokio::task::spawn_blocking(move || nameless_file(&folder, &bytes)).await;
    let written = written.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    written.map(Stdio::from).map_err(|cause| {
        // The event is not to blame, so it must not become dead because of it.
        PublishError::away(format!(
            "cannot put the input of {length} bytes into a temporary file in {place}: {cause}; \
             make room there, or set TMPDIR to another folder"
        ))
    })
}

fn filled_pipe(bytes: &[u8]) -> io::Result<io::PipeReader> {
    let (reader, mut writer) = io::pipe()?;
    writer.write_all(bytes)?;
    Ok(reader)
}

/// Writes `bytes` to a file that only this process can open. The name is gone before the first byte
/// is written, so a kill leaves at most an empty file behind.
fn nameless_file(folder: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = new_file(folder)?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

fn new_file(folder: &Path) -> io::Result<File> {
    let names = RandomState::new();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
    for attempt in 0..NAMES_MAX {
        let path = folder.join(format!("tenure-input-{:016x}", names.hash_one(attempt)));
        match options.open(&path) {
            Ok(file) => return fs::remove_file(&path).map(|()| file),
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => taken = cause,
            Err(cause) => return Err(cause),
        }
    }
    Err(taken)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_file_for_an_input_has_no_name_and_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = vec![7; 300_000];
        let mut file = nameless_file(folder.path(), &bytes).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (0, 0o600));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert!(read == bytes, "the command starts to read at the beginning");
    }
}
