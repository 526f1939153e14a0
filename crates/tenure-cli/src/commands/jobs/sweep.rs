//! What workers left behind that could not tidy up: folders of sockets that nobody answers any
//! more.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use super::desk::{PREFIX, SOCKET};

/// A younger folder may be one whose worker is about to listen.
const YOUNG: Duration = Duration::from_secs(10);
/// Who does not answer at all within this time is there, if slow.
const ANSWER: Duration = Duration::from_secs(1);

/// Removes them. It is no trouble to anybody if some of them stay.
pub(super) async fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if is_old_and_ours(&entry).unwrap_or(false) && is_left(&path.join(SOCKET)).await {
            // The socket and the folder, and nothing that somebody else has put there.
            drop(fs::remove_file(path.join(SOCKET)));
            match fs::remove_dir(&path) {
                Ok(()) => tracing::debug!(path = %path.display(), "removed what a worker left"),
                Err(error) => tracing::debug!(path = %path.display(), %error, "was not removed"),
            }
        }
    }
}

fn is_old_and_ours(entry: &DirEntry) -> io::Result<bool> {
    let name = entry.file_name();
    if !name.to_str().is_some_and(|name| name.starts_with(PREFIX)) {
        return Ok(false);
    }
    // Of the entry itself: whoever made a link to something of ours is not followed.
    let found = entry.metadata()?;
    let age = found.modified()?.elapsed().unwrap_or_default();
    let ours = rustix::process::geteuid().as_raw();
    Ok(found.is_dir() && found.uid() == ours && age > YOUNG)
}

/// Whether nobody listens there.
async fn is_left(socket: &Path) -> bool {
    let answered = timeout(ANSWER, UnixStream::connect(socket)).await;
    matches!(
        answered.map(|connected| connected.map_err(|error| error.kind())),
        Ok(Err(
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
        ))
    )
}
