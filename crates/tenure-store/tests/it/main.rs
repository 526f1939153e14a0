//! The tests of the stores, in one binary.

#[cfg(test)]
mod rows_sql;
