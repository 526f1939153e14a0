//! The statements of the row layout, filled for one table.

use tenure_core::store::StoreError;
use tenure_core::{Identifier, LeaseTable};

use crate::postgres::statements::Statement;
use crate::render::{Edit, Names};

macro_rules! row_statements {
    ($($name:ident),* $(,)?) => {
        /// The statements of one lease table, by the names of their files.
        #[derive(Debug)]
        pub(super) struct RowStatements {
            /// The table's name as the statements write it.
            pub(super) table: String,
            /// What makes the table, one after the other.
            pub(super) create: Vec<Statement>,
            $(pub(super) $name: Statement,)*
        }

        impl RowStatements {
            pub(super) fn new(
                table: &LeaseTable,
                schema: Option<&Identifier>,
                edit: Edit<'_>,
            ) -> Result<Self, StoreError> {
                let names = Names::of(table, schema)?;
                let rendered = |file, text| names.render(file, &edit(file, text));
                // The names are all filled in: nothing is left for a schema to be written before.
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
                })
            }

            /// All of them with their names, for the tests that show, prepare and explain each.
            #[cfg(feature = "testing")]
            pub(super) fn all(&self) -> Vec<(&'static str, &Statement)> {
                let create = self.create.iter().map(|part| ("create", part));
                create.chain([$((stringify!($name), &self.$name),)*]).collect()
            }
        }
    };
}

row_statements!(
    columns, claim, renew, settle, look, reap, replay, bury, find, page, count,
);
