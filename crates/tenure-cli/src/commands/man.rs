//! `tenure man`: the pages of the manual, made from the same text as `--help`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _};

use super::Context;
use crate::args::Cli;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write the pages of all commands into this folder
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub(super) fn run(cx: &Context, args: &Man) -> Result<Exit, Stop> {
    if let Some(folder) = &args.dir {
        write_all(folder).map_err(|error| {
            let message = format!("cannot write the pages to {}", folder.display());
            Problem::new(Exit::Failed, message)
                .hint("is it a folder, and may you write there?")
                .cause(error)
        })?;
        cx.output
            .note(format_args!("wrote the pages to {}", folder.display()));
        return Ok(Exit::Done);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    cx.output.line(String::from_utf8_lossy(&page).trim_end())?;
    Ok(Exit::Done)
}

fn write_all(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
}
