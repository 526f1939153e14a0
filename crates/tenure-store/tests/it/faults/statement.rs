//! Planted faults in SQL: a statement that differs from its file in one place, to prove that the
//! suite notices.

use std::borrow::Cow;

use tenure_store::postgres::PostgresStore;
use tenure_store::sqlite::SqliteStore;

/// A part of a statement, and its replacement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted {
    /// The file, such as `settle`.
    pub(crate) file: &'static str,
    /// The original text.
    pub(crate) from: &'static str,
    /// The replacement.
    pub(crate) to: &'static str,
}

/// The text of a file with its planted faults.
///
/// # Panics
///
/// The file does not contain the text to replace, so the fault would prove nothing.
pub(crate) fn plant(
    faults: &[Planted],
    file: &'static str,
    text: &'static str,
) -> Cow<'static, str> {
    let mut text = Cow::Borrowed(text);
    for fault in faults.iter().filter(|fault| fault.file == file) {
        assert!(
            text.contains(fault.from),
            "{file}.sql does not contain {:?}",
            fault.from
        );
        text = Cow::Owned(text.replace(fault.from, fault.to));
    }
    text
}

/// A store in whose statements faults can be planted.
pub(crate) trait Plant {
    fn planted(self, faults: &[Planted]) -> Self;
}

impl Plant for PostgresStore {
    fn planted(self, faults: &[Planted]) -> Self {
        self.edited(&|file, text| plant(faults, file, text))
    }
}

impl Plant for SqliteStore {
    fn planted(self, faults: &[Planted]) -> Self {
        self.edited(&|file, text| plant(faults, file, text))
    }
}
