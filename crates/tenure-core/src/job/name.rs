//! Names of job kinds, matrices and chunks.

use crate::invalid::Invalid;

/// Maximum length of a name, in bytes.
const BYTES_MAX: usize = 200;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);
        as_text!($name);

        impl $name {
            /// Accepts a name of 1 to 200 bytes without control characters.
            ///
            /// # Errors
            /// The name is empty, too long or contains control characters.
            pub fn new(name: &str) -> Result<Self, Invalid> {
                let is_name = (1..=BYTES_MAX).contains(&name.len())
                    && !name.chars().any(char::is_control);
                if is_name {
                    return Ok(Self(name.to_owned()));
                }
                let start: String = name.chars().take(40).collect();
                let expected = "1 to 200 bytes without control characters";
                Err(Invalid::new($what, format!("{start:?}"), expected))
            }
        }
    };
}

name!(
    /// Kind of work of a job; it selects the handler.
    ///
    /// ```
    /// assert!(tenure_core::job::JobKind::new("import.orders").is_ok());
    /// assert!(tenure_core::job::JobKind::new("").is_err());
    /// ```
    JobKind,
    "kind of a job"
);
impl JobKind {
    /// Reads the kind from the row of a claimed job, a JSON object; `None` if it has no valid kind.
    ///
    /// ```
    /// use tenure_core::job::JobKind;
    ///
    /// let kind = JobKind::of_row(r#"{"id": 7, "kind": "import.orders"}"#);
    /// assert_eq!(kind, Some(JobKind::new("import.orders")?));
    /// assert_eq!(JobKind::of_row("[]"), None);
    /// # Ok::<(), tenure_core::Invalid>(())
    /// ```
    pub fn of_row(row: &str) -> Option<Self> {
        let row: serde_json::Value = serde_json::from_str(row).ok()?;
        Self::new(row.get("kind")?.as_str()?).ok()
    }
}

name!(
    /// Name of a set of chunks.
    ///
    /// ```
    /// assert!(tenure_core::job::MatrixName::new("orders-2026").is_ok());
    /// ```
    MatrixName,
    "name of a matrix"
);
name!(
    /// Name of a chunk; the same name in another matrix is another chunk.
    ///
    /// ```
    /// assert!(tenure_core::job::ChunkName::new("2026-11").is_ok());
    /// ```
    ChunkName,
    "name of a chunk"
);
