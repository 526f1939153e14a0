//! Removes the socket folders of workers that died before they could clean up.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use super::session::{PREFIX, SOCKET};

/// Minimum age of a removed folder: the worker of a younger one may be about to listen.
const AGE_MIN: Duration = Duration::from_secs(10);
/// Timeout of a connection attempt; a worker that exceeds it is slow, not dead.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Removes stale folders. Folders that remain do no harm.
pub(super) async fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if is_old_and_ours(&entry).unwrap_or(false) && is_unused(&path.join(SOCKET)).await {
            // Only the socket and the folder; other contents keep the folder.
            drop(fs::remove_file(path.join(SOCKET)));
            match fs::remove_dir(&path) {
                Ok(()) => tracing::debug!(path = %path.display(), "removed a stale folder"),
                Err(error) => {
                    tracing::debug!(path = %path.display(), %error, "cannot remove a stale folder");
                }
            }
        }
    }
}

fn is_old_and_ours(entry: &DirEntry) -> io::Result<bool> {
    let name = entry.file_name();
    if !name.to_str().is_some_and(|name| name.starts_with(PREFIX)) {
        return Ok(false);
    }
    // Metadata of the entry itself: symbolic links are not followed.
    let metadata = entry.metadata()?;
    let age = metadata.modified()?.elapsed().unwrap_or_default();
    let ours = rustix::process::geteuid().as_raw();
    Ok(metadata.is_dir() && metadata.uid() == ours && age > AGE_MIN)
}

/// Returns true if no process listens on the socket.
async fn is_unused(socket: &Path) -> bool {
    let answered = timeout(CONNECT_TIMEOUT, UnixStream::connect(socket)).await;
    matches!(
        answered.map(|connected| connected.map_err(|error| error.kind())),
        Ok(Err(
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        ))
    )
}
