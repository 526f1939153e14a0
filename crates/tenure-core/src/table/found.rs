//! What a database says of a table that is to be adopted, in words that both databases share.

/// A table as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTable {
    /// What kind of thing has this name.
    pub kind: FoundKind,
    /// Its columns.
    pub columns: Vec<FoundColumn>,
    /// Its indexes.
    pub indexes: Vec<FoundIndex>,
    /// The names of the check constraints that its status has a part in, and that nobody can judge
    /// without a row.
    pub checks: Vec<String>,
    /// Check constraints that refuse a word of the status: the constraint, and the word.
    pub refused: Vec<(String, String)>,
    /// The schema that it is in, where there are several.
    pub schema: Option<String>,
    /// Names that its indexes and what numbers its rows would have, and that others have.
    pub taken: Vec<String>,
    /// The words of its status and how many rows have each, as far as was looked.
    pub words: Vec<(Option<String>, u64)>,
    /// It has rows.
    pub has_rows: bool,
    /// Rows of it lack the key that was added.
    pub has_unnumbered: bool,
}

/// What kind of thing has a table's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundKind {
    /// There is none.
    Missing,
    /// A table whose rows can be given columns.
    Table,
    /// A view.
    View,
    /// A table that is split into partitions.
    Partitioned,
    /// One of the partitions of another table.
    Partition,
    /// A table that other tables inherit from: their rows are seen as its own.
    Parent,
    /// A table without row numbers, as only SQLite has them.
    Rowless,
    /// Something else: a foreign table, a sequence.
    Other,
}

/// A column as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundColumn {
    /// Its name.
    pub name: String,
    /// Its type, in the database's own words.
    pub declared: String,
    /// What it can hold.
    pub holds: Holds,
    /// It may be null.
    pub is_nullable: bool,
    /// No two rows have the same in it.
    pub is_unique: bool,
    /// The database computes it: nobody can write it.
    pub is_generated: bool,
}

/// What a column can hold, as far as leases need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A moment.
    Moment,
    /// Text, at most so many characters.
    Text(Option<u32>),
    /// A number of 32 bits.
    Integer,
    /// A number of 64 bits.
    BigInteger,
    /// Any whole number, and so any moment in microseconds: SQLite has no other.
    Number,
    /// Something else.
    Other,
}

/// An index as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundIndex {
    /// Its name.
    pub name: String,
    /// It is whole: its making was not broken off.
    pub is_valid: bool,
}

impl FoundTable {
    /// Nothing has this name.
    ///
    /// ```
    /// use tenure_core::{FoundKind, FoundTable};
    ///
    /// assert_eq!(FoundTable::missing().kind, FoundKind::Missing);
    /// ```
    pub fn missing() -> Self {
        Self {
            kind: FoundKind::Missing,
            columns: Vec::new(),
            indexes: Vec::new(),
            checks: Vec::new(),
            refused: Vec::new(),
            schema: None,
            taken: Vec::new(),
            words: Vec::new(),
            has_rows: false,
            has_unnumbered: false,
        }
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&FoundColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The index of this name.
    pub fn index(&self, name: &str) -> Option<&FoundIndex> {
        self.indexes.iter().find(|index| index.name == name)
    }
}
