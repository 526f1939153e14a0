//! Facts about a table to adopt, in terms that both databases share.

/// Facts about a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// Kind of the object with this name.
    pub kind: TableKind,
    /// Columns in the database's order.
    pub columns: Vec<ColumnFacts>,
    /// Indexes by name.
    pub indexes: Vec<IndexFacts>,
    /// Names of check constraints that involve the status and cannot be evaluated without a row.
    pub checks: Vec<String>,
    /// Check constraints that refuse a status word: the constraint, and the word.
    pub refused: Vec<(String, String)>,
    /// Schema of the table, on PostgreSQL.
    pub schema: Option<String>,
    /// Names that Tenure's index, sequence or trigger would need and that other objects have.
    pub taken: Vec<String>,
    /// Status words and their row counts, as far as rows were read.
    pub words: Vec<(Option<String>, u64)>,
    /// The table has at least one row.
    pub has_rows: bool,
    /// Some rows have no number in the added key column yet.
    pub has_unnumbered: bool,
}

/// Kind of the object that has a table's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Nothing has this name.
    Missing,
    /// A table to which columns can be added.
    Table,
    /// A view.
    View,
    /// A partitioned table.
    Partitioned,
    /// A partition of another table.
    Partition,
    /// A table that other tables inherit from; queries on it return their rows, too.
    Parent,
    /// A table without rowid (SQLite only).
    Rowless,
    /// Another object, such as a foreign table or a sequence.
    Other,
}

/// Facts about a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnFacts {
    /// Name of the column.
    pub name: String,
    /// Type as declared in the database.
    pub declared: String,
    /// Class of values that it can hold.
    pub holds: Holds,
    /// Null is allowed.
    pub is_nullable: bool,
    /// Values are unique.
    pub is_unique: bool,
    /// The database computes its value, so it cannot be written.
    pub is_generated: bool,
}

/// Class of values that a column can hold, as far as leases need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A timestamp.
    Moment,
    /// Text, with its maximum length in characters.
    Text(Option<u32>),
    /// A 32-bit integer.
    Integer,
    /// A 64-bit integer.
    BigInteger,
    /// Any integer, including timestamps in microseconds (SQLite has no other type).
    Number,
    /// Something else.
    Other,
}

/// Facts about an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexFacts {
    /// Name of the index.
    pub name: String,
    /// The creation of the index was completed.
    pub is_valid: bool,
}

impl TableFacts {
    /// Facts for a name that does not exist.
    ///
    /// ```
    /// use tenure_core::{TableKind, TableFacts};
    ///
    /// assert_eq!(TableFacts::missing().kind, TableKind::Missing);
    /// ```
    pub fn missing() -> Self {
        Self {
            kind: TableKind::Missing,
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

    /// Facts about the column of this name.
    pub fn column(&self, name: &str) -> Option<&ColumnFacts> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Facts about the index of this name.
    pub fn index(&self, name: &str) -> Option<&IndexFacts> {
        self.indexes.iter().find(|index| index.name == name)
    }
}
