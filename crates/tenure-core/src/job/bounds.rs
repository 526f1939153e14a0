//! What is too large or too odd to be kept of a job, judged in one place for every store.

use super::{NewJob, Note};
use crate::event::Event;
use crate::invalid::Invalid;
use crate::store::{ChunkEnd, EndChunk};

/// No cursor is longer: it also stands in the environment of a job's command, whose system takes
/// no variable above 128 KiB.
pub const CURSOR_BYTES_MAX: usize = 64 * 1024;

/// No count of rows or chunks is larger: what every reader of JSON can tell from its neighbours.
pub const COUNT_MAX: u64 = (1 << 53) - 1;

/// How the own matrix of a job begins; its number follows.
const OWN: &str = "job-";

impl NewJob {
    /// Whether it may be written. `job-` and a number is the own matrix of the job with that
    /// number: its chunks are pruned with it, so only a repeat of a job may name one.
    ///
    /// ```
    /// use tenure_core::job::{MatrixName, NewJob};
    ///
    /// let job = NewJob::new("import.orders", "{}")?;
    /// assert!(job.clone().matrix(MatrixName::new("orders")?).check().is_ok());
    /// assert!(job.matrix(MatrixName::new("job-17")?).check().is_err());
    /// # Ok::<(), tenure_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// It names the own matrix of a job, and repeats none.
    pub fn check(&self) -> Result<(), Invalid> {
        let name = self.matrix.as_ref().map(super::MatrixName::as_str);
        let number = name.and_then(|name| name.strip_prefix(OWN));
        let is_own = number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        if is_own && self.retry_of.is_none() {
            let found = format!("{:?}", name.unwrap_or_default());
            let expected = "another one: `job-` and a number is a job's own";
            return Err(Invalid::new("name of a matrix", found, expected));
        }
        Ok(())
    }
}

impl Note {
    /// Whether all of it may be written; nothing of it is, otherwise.
    ///
    /// ```
    /// use tenure_core::job::Note;
    ///
    /// let mut note = Note { cursor: Some("row 500".to_owned()), ..Note::default() };
    /// assert!(note.check().is_ok());
    /// note.result = Some("no json".to_owned());
    /// assert!(note.check().is_err());
    /// ```
    ///
    /// # Errors
    /// A cursor above 64 KiB or with a NUL character, a total above 2^53 - 1, or a result that is
    /// no JSON or above 1 MiB.
    pub fn check(&self) -> Result<(), Invalid> {
        check_cursor(self.cursor.as_deref())?;
        check_count("number of chunks", self.chunks_total)?;
        if let Some(result) = &self.result {
            // What an event's payload may be, a result may be.
            Event::from_json("job", result.clone())?;
        }
        Ok(())
    }
}

impl EndChunk {
    /// Whether it may be written.
    ///
    /// # Errors
    /// A cursor as [`Note::check`] refuses it, or more than 2^53 - 1 rows.
    pub fn check(&self) -> Result<(), Invalid> {
        check_cursor(self.cursor.as_deref())?;
        let rows = match &self.end {
            Some(ChunkEnd::Synced { row_count } | ChunkEnd::Completed { row_count }) => {
                Some(*row_count)
            }
            Some(ChunkEnd::Failed { .. } | ChunkEnd::Dead { .. } | ChunkEnd::Released) | None => {
                None
            }
        };
        check_count("number of rows", rows)
    }
}

fn check_cursor(cursor: Option<&str>) -> Result<(), Invalid> {
    let Some(cursor) = cursor else {
        return Ok(());
    };
    let expected = "at most 64 KiB without NUL characters";
    if cursor.len() > CURSOR_BYTES_MAX {
        let found = format!("{} bytes long", cursor.len());
        return Err(Invalid::new("the cursor", found, expected));
    }
    if cursor.contains('\0') {
        return Err(Invalid::new("the cursor", "one with a NUL", expected));
    }
    Ok(())
}

fn check_count(what: &'static str, count: Option<u64>) -> Result<(), Invalid> {
    match count {
        Some(count) if count > COUNT_MAX => {
            let expected = "at most 9007199254740991";
            Err(Invalid::new(what, count.to_string(), expected))
        }
        _ => Ok(()),
    }
}
