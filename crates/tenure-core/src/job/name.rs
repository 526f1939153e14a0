//! Names of kinds of jobs, of matrices and of chunks.

use std::fmt;

use crate::invalid::Invalid;

/// No name is longer.
const BYTES_MAX: usize = 200;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// A name of 1 to 200 bytes without control characters.
            ///
            /// # Errors
            /// Anything else.
            pub fn new(name: &str) -> Result<Self, Invalid> {
                let is_name = (1..=BYTES_MAX).contains(&name.len())
                    && !name.chars().any(char::is_control);
                if is_name {
                    return Ok(Self(name.to_owned()));
                }
                let shown: String = name.chars().take(40).collect();
                let expected = "1 to 200 bytes without control characters";
                Err(Invalid::new($what, format!("{shown:?}"), expected))
            }

            /// The bare name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

name!(
    /// What is to be done; it chooses the handler.
    ///
    /// ```
    /// assert!(tenure_core::job::JobKind::new("import.orders").is_ok());
    /// assert!(tenure_core::job::JobKind::new("").is_err());
    /// ```
    JobKind,
    "kind of a job"
);
impl JobKind {
    /// The kind of a job, from its row as a claim brings it: a JSON object.
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
    /// What is worked through, chunk by chunk.
    ///
    /// ```
    /// assert!(tenure_core::job::MatrixName::new("orders-2026").is_ok());
    /// ```
    MatrixName,
    "name of a matrix"
);
name!(
    /// A chunk of a matrix; the same name in another matrix is another chunk.
    ///
    /// ```
    /// assert!(tenure_core::job::ChunkName::new("2026-11").is_ok());
    /// ```
    ChunkName,
    "name of a chunk"
);
