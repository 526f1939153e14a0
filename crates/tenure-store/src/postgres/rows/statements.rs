//! The statements of the row layout, rendered for one table.

use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::store::StoreError;
use tenure_core::{Identifier, LeaseTable};

use crate::postgres::statements::Statement;
use crate::render::{Edit, Names};

macro_rules! row_statements {
    ($($name:ident),* $(,)?) => {
        /// The statements of one lease table, named after their files.
        #[derive(Debug)]
        pub(super) struct RowStatements {
            /// The quoted table name.
            pub(super) table: String,
            /// Statements that create the table, in order.
            pub(super) create: Vec<Statement>,
            $(pub(super) $name: Statement,)*
            /// The claim that returns whole rows and names only the lease columns.
            claim_whole: Option<Statement>,
            /// Set when a column that the claim names no longer exists.
            is_changed: AtomicBool,
        }

        impl RowStatements {
            /// Renders the statements for this table; a claim returns whole rows.
            pub(super) fn new(
                table: &LeaseTable,
                schema: Option<&Identifier>,
                edit: Edit<'_>,
            ) -> Result<Self, StoreError> {
                let whole = WHOLE.to_owned();
                let names = Names::of(table, schema)?.with("content", whole);
                let rendered = |file, text| names.render(file, &edit(file, text));
                // Rendering has already qualified the names, so there is no schema to add.
                let statement = |file, text| -> Result<Statement, StoreError> {
                    Ok(Statement::new(&rendered(file, text)?, None))
                };
                let create = include_str!("../../../sql/postgres/rows/create.sql");
                let create = rendered("create", create)?;
                let parts = create.split_inclusive(";\n");
                Ok(Self {
                    table: names.render("table", "{table}")?.trim().to_owned(),
                    create: parts.map(|part| Statement::new(part, None)).collect(),
                    $($name: statement(
                        stringify!($name),
                        include_str!(concat!(
                            "../../../sql/postgres/rows/", stringify!($name), ".sql"
                        )),
                    )?,)*
                    claim_whole: None,
                    is_changed: AtomicBool::new(false),
                })
            }

            /// Makes the claim return only these columns, which costs the database less per row.
            pub(super) fn with_columns(
                mut self,
                columns: &[&str],
                (table, schema): (&LeaseTable, Option<&Identifier>),
                edit: Edit<'_>,
            ) -> Result<Self, StoreError> {
                let columns: Vec<String> = columns.iter().map(|name| format!("t.{name}")).collect();
                let content = PARTS.replace("{columns}", &columns.join(", "));
                let names = Names::of(table, schema)?.with("content", content);
                let text = include_str!("../../../sql/postgres/rows/claim.sql");
                let claim = Statement::new(&names.render("claim", &edit("claim", text))?, None);
                self.claim_whole = Some(std::mem::replace(&mut self.claim, claim));
                Ok(self)
            }

            /// All statements with their names, for tests that show, prepare and explain each.
            #[cfg(feature = "testing")]
            pub(super) fn all(&self) -> Vec<(&'static str, &Statement)> {
                let create = self.create.iter().map(|part| ("create", part));
                create.chain([$((stringify!($name), &self.$name),)*]).collect()
            }
        }
    };
}

/// A row as JSON.
const WHOLE: &str = "to_json(t)::text";
/// Some columns of a row as JSON.
const PARTS: &str = "(select to_json(own)::text from (select {columns}) as own)";

row_statements!(
    columns,
    claim,
    renew,
    settle,
    settle_done,
    look,
    reap,
    lapsed,
    replay,
    bury,
    find,
    page,
    count,
);

impl RowStatements {
    /// The claim that fits the current table.
    pub(super) fn claim(&self) -> &Statement {
        let whole = self.claim_whole.as_ref();
        let is_changed = self.is_changed.load(Ordering::Relaxed);
        whole.filter(|_| is_changed).unwrap_or(&self.claim)
    }

    /// Switches to whole rows after a column that the claim names was dropped. Returns true on the
    /// first switch.
    pub(super) fn take_whole_rows(&self) -> bool {
        self.claim_whole.is_some() && !self.is_changed.swap(true, Ordering::Relaxed)
    }
}
