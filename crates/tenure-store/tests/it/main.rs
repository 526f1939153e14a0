//! The tests of the stores, in one binary.

mod rows_sql;
