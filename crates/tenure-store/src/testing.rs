//! What tests of this and other crates need.
