//! Every environment variable that the program reads, once. `NO_COLOR` and its kin are read by the
//! library that writes colours.

/// The address of the database, when `--database` is not given.
pub(crate) const DATABASE: &str = "TENURE_DATABASE";
