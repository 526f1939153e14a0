//! `tenure completions` and `tenure man`: shell completions and manual pages are well-formed.

use std::process::Command;

use crate::help::COMMANDS;
use crate::program::{Finished, finish, sqlite};

#[test]
fn bash_can_read_its_completions() {
    let place = sqlite();
    let script = place.run(&["completions", "bash"]).succeeded();
    let mut bash = Command::new("bash");
    bash.arg("-n");
    let read: Finished = finish(bash, script.out.as_bytes());
    assert_eq!(
        (read.succeeded().err, script.err.as_str()),
        (String::new(), "")
    );
    assert!(!place.file().exists());
}

/// Goal: the completions work. Method: the test runs bash's own completion.
#[test]
fn bash_completes_our_commands() {
    let place = sqlite();
    let script = place.run(&["completions", "bash"]).succeeded();
    let query = "\nCOMP_WORDS=(tenure wh); COMP_CWORD=1; _tenure tenure wh tenure; \
               echo \"${COMPREPLY[@]}\"\n";
    let bash = Command::new("bash");
    let read = finish(bash, format!("{}{query}", script.out).as_bytes()).succeeded();
    assert_eq!(read.out, "why\n");
}

#[test]
fn every_shell_has_completions_of_the_commands() {
    let place = sqlite();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).succeeded().out;
        for word in COMMANDS.concat().into_iter().chain(["bench"]) {
            assert!(script.contains(word), "no {word} for {shell}");
        }
    }
}

#[test]
fn commands_have_manual_pages() {
    let place = sqlite();
    place.run(&["man", "--dir", "pages/man1"]).succeeded();
    let folder = place.file().with_file_name("pages").join("man1");
    for command in COMMANDS.into_iter().chain([&["bench"][..]]) {
        let page = [&["tenure"][..], command].concat().join("-");
        let text = std::fs::read_to_string(folder.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".SH NAME"), "{page}: {text}");
    }
    assert!(!place.file().exists());
}

#[test]
fn the_manual_shows_no_address_of_the_environment() {
    let place = sqlite();
    let mut program = place.command(env!("CARGO_BIN_EXE_tenure").as_ref());
    program
        .env("TENURE_DATABASE", "postgres://app:canary@h/db")
        .arg("man");
    let page = finish(program, b"").succeeded().out;
    assert!(page.contains("TENURE_DATABASE"), "{page}");
    assert!(page.contains("Exit codes:"), "{page}");
    assert!(!page.contains("canary"), "{page}");
}

#[test]
fn a_file_in_place_of_a_folder_is_reported() {
    let place = sqlite();
    std::fs::write(place.file(), "not a folder").unwrap();
    let args = ["man", "--dir", "tenure.db"];
    let output = place.run(&args);
    output.failed(1, "cannot write the pages to tenure.db", "a folder");
}
