//! The tests of the server, over real sockets.

mod client;
mod connections;
mod health;
mod metrics;
mod problems;
mod stats;
