//! The tests of the program, and of the house it lives in.

mod bad_input;
mod bury;
mod config;
mod crash;
mod database;
mod demo;
mod doctor;
mod enqueue;
mod events;
mod help;
mod lines;
mod manual;
mod migrate;
mod program;
mod prune;
mod queues;
mod reap;
mod replay;
mod serve;
mod settings;
mod show;
mod stats;
mod tidy;
mod why;
mod work;
mod workers;
