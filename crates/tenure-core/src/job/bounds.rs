//! Limits of the stored values of a job, checked in one place for every store.

use super::{NewJob, Note};
use crate::event::Event;
use crate::invalid::Invalid;
use crate::store::{ChunkEnd, EndChunk};

/// Maximum size of a cursor in bytes. A job's command gets the cursor in an environment variable,
/// which Linux limits to 128 KiB.
pub const CURSOR_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of rows or chunks: the largest integer that every JSON reader represents exactly.
pub const COUNT_MAX: u64 = (1 << 53) - 1;

/// Prefix of the name of a job's own matrix; the number of the job follows.
const OWN_PREFIX: &str = "job-";

impl NewJob {
    /// Checks that the job may be written. A matrix called `job-` and a number belongs to the job
    /// with that number. Its chunks are pruned with that job, so only a retry may use it.
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
    /// The matrix belongs to another job, and this job is not a retry.
    pub fn check(&self) -> Result<(), Invalid> {
        let name = self.matrix.as_ref().map(super::MatrixName::as_str);
        let number = name.and_then(|name| name.strip_prefix(OWN_PREFIX));
        let is_own = number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        if is_own && self.retry_of.is_none() {
            let found = format!("{:?}", name.unwrap_or_default());
            let expected = "another name: `job-` and a number is reserved for a job's own matrix";
            return Err(Invalid::new("name of a matrix", found, expected));
        }
        Ok(())
    }
}

impl Note {
    /// Checks every value; if one is invalid, none may be written.
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
    /// not JSON or above 1 MiB.
    pub fn check(&self) -> Result<(), Invalid> {
        check_cursor(self.cursor.as_deref())?;
        check_count("number of chunks", self.chunks_total)?;
        if let Some(result) = &self.result {
            // A result has the limits of an event's payload.
            Event::from_json("job", result.clone())?;
        }
        Ok(())
    }
}

impl EndChunk {
    /// Checks the cursor and the number of rows.
    ///
    /// # Errors
    /// A cursor that [`Note::check`] refuses, or more than 2^53 - 1 rows.
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
        return Err(Invalid::new("the cursor", "a text with a NUL", expected));
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
