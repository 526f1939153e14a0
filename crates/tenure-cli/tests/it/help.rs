//! The `--help` of the commands.

use crate::program::sqlite;

/// Every command except `bench`, with its subcommands.
pub(crate) const COMMANDS: [&[&str]; 73] = [
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
    &["health"],
    &["demo"],
    &["completions"],
    &["man"],
    &["replay"],
    &["replay", "list"],
    &["replay", "follow"],
    &["replay", "cancel"],
    &["retry"],
    &["bury"],
    &["reap"],
    &["queues"],
    &["queues", "list"],
    &["queues", "add"],
    &["queues", "pause"],
    &["queues", "resume"],
    &["keys"],
    &["keys", "list"],
    &["keys", "show"],
    &["keys", "skip"],
    &["keys", "pause"],
    &["keys", "resume"],
    &["config"],
    &["config", "check"],
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
        let output = place.run(&args).succeeded();
        assert_eq!(output.err, "");
        let name = format!("help_{}", args.join("_").replace("_--help", ""));
        insta::assert_snapshot!(name.replace("--help", "tenure"), output.out);
    }
}

#[test]
fn without_arguments_the_program_prints_its_help() {
    let place = sqlite();
    let output = place.run(&[]).succeeded();
    assert_eq!(output.out, place.run(&["-h"]).succeeded().out);
    assert!(output.out.contains("Exit codes:"), "{output:?}");
    assert!(!place.file().exists());
}

#[test]
fn a_wrong_command_line_is_reported_with_exit_code_2() {
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
        &["health", "--listen", "here"],
        &["prune", "--dead", "soon"],
        &["completions", "tcsh"],
        &["enqueue", "--lines", "t", "1"],
        &["enqueue", "--lines", "--dedupe", "k"],
        &["enqueue", "t", "1", "--skip-bad"],
        &["enqueue", "t", "--skip-bad"],
        &["enqueue", "t", "1", "--from-line", "2"],
        &["enqueue", "--lines", "--from-line", "0"],
        &["queues", "add", "mail", "--term", "25h"],
        &["keys", "list", "--limit", "0"],
        &["keys", "list", "--limit", "1001"],
        &["keys", "show"],
        &["keys", "show", ""],
        &["keys", "pause", "a\nb"],
        &["keys", "skip", "customer-7"],
        &["keys", "skip", "customer-7", "--reason", ""],
        &["keys", "skip", "--reason", "test"],
        &["deliveries", "bury", "d1", "--reason", " "],
        &["endpoints", "disable", "billing", "--reason", " "],
    ] {
        let output = place.run(args).ended(2);
        assert_eq!(output.out, "", "{args:?}");
        assert!(output.err.starts_with("error: "), "{args:?}: {output:?}");
    }
    assert!(!place.file().exists());
}
