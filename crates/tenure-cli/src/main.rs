//! The program `tenure`.

/// Replaces the system's allocator, which is slow for batches of payloads on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod args;
mod assemble;
mod command_path;
mod commands;
mod config;
mod confirm;
mod database;
mod env;
mod event_view;
mod exit;
mod logs;
mod output;
mod parse;
mod problem;
mod progress;
mod spans;
mod team;
mod time;
mod webhook;

use std::process::ExitCode;

fn main() -> ExitCode {
    match args::parse() {
        Ok((cli, command)) => commands::run(cli, command).into(),
        Err(exit) => exit.into(),
    }
}
