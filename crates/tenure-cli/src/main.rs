//! The program `tenure`: parse, run, exit.

/// Payloads come and go by the batch on several threads: what the system has is slow at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod args;
mod assemble;
mod commands;
mod config;
mod confirm;
mod database;
mod env;
mod exit;
mod logs;
mod output;
mod problem;
mod progress;
mod record;
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
