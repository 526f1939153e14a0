//! Planted faults for the SQL: a statement that differs from its file in one place, to prove
//! that the suite would notice.

use std::borrow::Cow;

/// A place in the text of a statement, and what stands there instead.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// The file, such as `settle`.
    pub file: &'static str,
    /// What it says.
    pub from: &'static str,
    /// What it is made to say.
    pub to: &'static str,
}

/// The text of a file with the faults that are planted in it.
///
/// # Panics
/// A fault is to stand where the file does not say what it replaces: it would prove nothing.
pub(crate) fn plant(
    faults: &[Planted],
    file: &'static str,
    text: &'static str,
) -> Cow<'static, str> {
    let mut text = Cow::Borrowed(text);
    for fault in faults.iter().filter(|fault| fault.file == file) {
        assert!(
            text.contains(fault.from),
            "{file}.sql does not say {:?}",
            fault.from
        );
        text = Cow::Owned(text.replace(fault.from, fault.to));
    }
    text
}
