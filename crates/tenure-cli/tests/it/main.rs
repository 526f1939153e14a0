//! The tests of the program, and of the house it lives in.

mod tidy;
