//! The tests of the program, and of the house it lives in.

mod bury;
mod config;
mod database;
mod enqueue;
mod events;
mod help;
mod migrate;
mod program;
mod queues;
mod reap;
mod replay;
mod serve;
mod settings;
mod show;
mod stats;
mod tidy;
mod work;
