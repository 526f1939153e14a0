//! What `--help` prints, for every command.

use crate::program::sqlite;

/// Every command, by its words.
const COMMANDS: [&[&str]; 69] = [
    &[],
    &["serve"],
    &["work"],
    &["migrate"],
    &["enqueue"],
    &["events"],
    &["show"],
    &["why"],
    &["stats"],
    &["prune"],
    &["workers"],
    &["doctor"],
    &["demo"],
    &["completions"],
    &["man"],
    &["replay"],
    &["replay", "list"],
    &["replay", "follow"],
    &["replay", "cancel"],
    &["bury"],
    &["reap"],
    &["queues"],
    &["queues", "list"],
    &["queues", "add"],
    &["queues", "pause"],
    &["queues", "resume"],
    &["domains"],
    &["domains", "list"],
    &["domains", "show"],
    &["domains", "skip"],
    &["domains", "pause"],
    &["domains", "resume"],
    &["settings"],
    &["settings", "get"],
    &["settings", "set"],
    &["endpoints"],
    &["endpoints", "add"],
    &["endpoints", "list"],
    &["endpoints", "show"],
    &["endpoints", "edit"],
    &["endpoints", "rotate"],
    &["endpoints", "enable"],
    &["endpoints", "disable"],
    &["endpoints", "remove"],
    &["endpoints", "test"],
    &["deliveries"],
    &["deliveries", "list"],
    &["deliveries", "show"],
    &["deliveries", "replay"],
    &["deliveries", "bury"],
    &["listen"],
    &["verify"],
    &["adopt"],
    &["adopt", "list"],
    &["jobs"],
    &["jobs", "enqueue"],
    &["jobs", "list"],
    &["jobs", "show"],
    &["jobs", "why"],
    &["jobs", "cancel"],
    &["jobs", "retry"],
    &["jobs", "run"],
    &["jobs", "note"],
    &["jobs", "chunk"],
    &["jobs", "chunk", "claim"],
    &["jobs", "chunk", "done"],
    &["jobs", "chunk", "fail"],
    &["jobs", "chunk", "note"],
    &["jobs", "chunk", "release"],
];

#[test]
fn every_command_has_its_help() {
    let place = sqlite();
    for command in COMMANDS {
        let args = [command, &["--help"]].concat();
        let said = place.run(&args).succeeded();
        assert_eq!(said.err, "");
        let name = format!("help_{}", args.join("_").replace("_--help", ""));
        insta::assert_snapshot!(name.replace("--help", "tenure"), said.out);
    }
}

#[test]
fn the_program_alone_prints_its_help() {
    let place = sqlite();
    let said = place.run(&[]).succeeded();
    assert_eq!(said.out, place.run(&["-h"]).succeeded().out);
    assert!(said.out.contains("Exit codes:"), "{said:?}");
    assert!(!place.file().exists());
}

#[test]
fn a_wrong_command_line_is_told_and_ends_with_2() {
    let place = sqlite();
    for args in [
        &["explode"][..],
        &["events", "--state", "broken"],
        &["events", "--limit", "0"],
        &["events", "--limit", "1001"],
        &["events", "--since", "yesterday"],
        &["show"],
        &["show", "seven"],
        &["bury", "1"],
        &["replay", "--state", "pending"],
        &["replay", "1", "--rate", "50"],
        &["why", "seven"],
        &["prune", "--dead", "soon"],
        &["completions", "tcsh"],
        &["enqueue", "--lines", "t", "1"],
        &["enqueue", "--lines", "--dedupe", "k"],
        &["enqueue", "t", "1", "--skip-bad"],
        &["enqueue", "t", "--skip-bad"],
        &["enqueue", "t", "1", "--from-line", "2"],
        &["enqueue", "--lines", "--from-line", "0"],
        &["queues", "add", "mail", "--term", "25h"],
        &["domains", "list", "--limit", "0"],
        &["domains", "list", "--limit", "1001"],
        &["domains", "show"],
        &["domains", "show", ""],
        &["domains", "pause", "a\nb"],
        &["domains", "skip", "customer-7"],
        &["domains", "skip", "customer-7", "--reason", ""],
        &["domains", "skip", "--reason", "test"],
    ] {
        let said = place.run(args).ended(2);
        assert_eq!(said.out, "", "{args:?}");
        assert!(said.err.starts_with("error: "), "{args:?}: {said:?}");
    }
    assert!(!place.file().exists());
}
