//! The socket between a job's command and its worker: access to the socket, disconnects, repeated
//! claims, and cleaning up.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::kills::until;
use super::script::script;
use crate::program::{Place, Running, everywhere, finish, sqlite};

impl Place {
    /// The program with a temporary folder inside this place.
    fn with_tmp(&self, args: &[&str]) -> std::process::Command {
        let folder = self.path("tmp");
        fs::create_dir_all(&folder).expect("the place is writable");
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        command.env("TMPDIR", folder).args(args);
        command
    }

    fn left_in_tmp(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("tmp")).expect("it was made");
        let entries = entries.flatten().map(|entry| entry.file_name());
        let mut names: Vec<_> = entries.map(|name| name.display().to_string()).collect();
        names.sort();
        names
    }
}

#[test]
fn no_other_user_reaches_the_socket_whatever_the_umask() {
    let place = sqlite();
    place.job("import");
    let program = env!("CARGO_BIN_EXE_tenure");
    let mut shell = place.command(Path::new("/bin/sh"));
    shell.args([
        "-c",
        &format!(
            "umask 000; exec {program} jobs run --kind import --drain --exec \
             'stat -c %a $(dirname $TENURE_JOB_SOCKET) $TENURE_JOB_SOCKET > modes'"
        ),
    ]);
    finish(shell, b"").succeeded();
    let modes = fs::read_to_string(place.path("modes")).unwrap();
    assert_eq!(modes, "700\n600\n");
}

#[tokio::test]
async fn a_second_claim_of_a_chunk_by_its_holder_is_refused_at_once() {
    for place in everywhere().await {
        let id = place.job("import");
        script(
            &place,
            "tenure jobs chunk claim a || exit 65
             tenure jobs chunk claim a 2> twice; echo $? > codes
             tenure jobs chunk claim a --no-wait 2> held; echo $? >> codes
             tenure jobs chunk done a --rows 1 || exit 65
             tenure jobs chunk claim a 2> done; echo $? >> codes",
        );
        place.drain("sh job.sh");
        assert_eq!(place.job_field(&id, "state"), r#""completed""#);
        let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
        assert_eq!(read("codes"), "4\n3\n3\n");
        let twice = read("twice");
        assert!(twice.contains("has claimed chunk a already"), "{twice}");
    }
}

/// Goal: the worker carries out a request even if the command does not wait for the reply. Method:
/// the test writes requests to the socket in place of the command and disconnects at once; then the
/// command exits.
#[tokio::test]
async fn a_chunk_is_settled_even_if_the_command_disconnects() {
    for place in everywhere().await {
        let id = place.job("import");
        script(
            &place,
            "for chunk in a b c d; do tenure jobs chunk claim $chunk || exit 65; done
             echo $TENURE_JOB_SOCKET > path; mv path socket
             until [ -e go ]; do sleep 0.05; done",
        );
        let args = ["jobs", "run", "--kind", "import", "--drain", "--exec"];
        let running = place.start(&[&args[..], &["sh job.sh"]].concat());
        until("the command runs", || place.path("socket").exists()).await;
        let path = fs::read_to_string(place.path("socket")).unwrap();
        for chunk in ["a", "b", "c", "d"] {
            let mut stream = UnixStream::connect(path.trim()).unwrap();
            let how = r#"{"how":"completed","rows":7}"#;
            writeln!(
                stream,
                r#"{{"request":"end","chunk":"{chunk}","how":{how}}}"#
            )
            .unwrap();
        }
        place.write("go", "");
        running.wait().succeeded();
        assert_eq!(place.job_field(&id, "state"), r#""completed""#);
        assert_eq!(place.job_field(&id, "progress.rows"), "28");
    }
}

#[tokio::test]
async fn a_note_is_written_whole_or_not_at_all() {
    for place in everywhere().await {
        let id = place.job("import");
        script(
            &place,
            "tenure jobs note --total 5 --cursor new --result 'no json' 2> why
             echo $? > code; exit 65",
        );
        place.drain("sh job.sh");
        assert_eq!(fs::read_to_string(place.path("code")).unwrap(), "1\n");
        let why = fs::read_to_string(place.path("why")).unwrap();
        assert!(why.contains("JSON"), "{why}");
        assert_eq!(place.job_field(&id, "cursor"), "null");
        assert_eq!(place.job_field(&id, "progress.chunks_total"), "null");
    }
}

#[test]
fn a_cursor_comes_back_byte_for_byte() {
    let place = sqlite();
    let id = place.job("import");
    let odd = "\u{1b}[31mred\u{1b}[0m\tx\u{7}\r\n\u{200b}{\"a\": \"ü\"}";
    place.write("odd", odd);
    script(
        &place,
        "tenure jobs chunk claim a || exit 65
         tenure jobs chunk note a --cursor \"$(cat odd)\" || exit 65
         tenure jobs chunk release a || exit 65
         tenure jobs chunk claim a > cursor || exit 65",
    );
    place.drain("sh job.sh");
    assert_eq!(place.job_field(&id, "state"), r#""completed""#);
    let cursor = fs::read_to_string(place.path("cursor")).unwrap();
    assert_eq!(cursor, format!("{odd}\n"));
}

/// Only the result is dropped: the work is done, and a repeat would print the same invalid result.
#[tokio::test]
async fn an_invalid_result_costs_only_the_result() {
    for place in everywhere().await {
        for (print, word) in [
            (
                "printf '[%.0s' $(seq 150); printf ']%.0s' $(seq 150); echo",
                "which is invalid",
            ),
            (
                "printf '\"'; head -c 1100000 /dev/zero | tr '\\0' x; echo '\"'",
                "exceeds 1 MiB",
            ),
        ] {
            let id = place.job("import");
            let ran = place.drain(print);
            assert_eq!(place.job_field(&id, "state"), r#""completed""#, "{ran:?}");
            assert_eq!(place.job_field(&id, "attempts"), "0", "no attempt failed");
            assert_eq!(place.job_field(&id, "result"), "null");
            assert!(ran.err.contains(word), "no {word:?} in {ran:?}");
        }
    }
}

/// Goal: a second signal ends the worker at once and leaves neither the command nor the folder of
/// its socket behind.
#[tokio::test]
async fn a_second_signal_kills_the_command_and_removes_its_folder() {
    let place = sqlite();
    place.job("import");
    script(
        &place,
        "trap '' TERM; echo $$ > pid; mv pid began; while :; do sleep 1; done",
    );
    let args = [
        "jobs",
        "run",
        "--kind",
        "import",
        "--exec",
        "sh job.sh",
        "--term",
        "5m",
    ];
    let mut running: Running = Place::start_command(place.with_tmp(&args));
    until("the command runs", || place.path("began").exists()).await;
    let pid = fs::read_to_string(place.path("began")).unwrap();
    let process = format!("/proc/{}", pid.trim());
    assert_eq!(place.left_in_tmp().len(), 1);
    running.terminate();
    running.line_with("stopped claiming");
    assert!(
        fs::exists(&process).unwrap(),
        "the first signal lets the command finish"
    );
    running.terminate();
    let output = running.wait().ended(1);
    assert!(output.err.contains("second signal"), "{output:?}");
    until("the command is gone", || !fs::exists(&process).unwrap()).await;
    assert_eq!(place.left_in_tmp(), Vec::<String>::new());
}

/// A worker does this at its start. Folders that are in use, are young or contain other files
/// stay.
#[test]
fn a_worker_removes_the_socket_folders_of_dead_workers() {
    let place = sqlite();
    place.run(&["migrate"]).succeeded();
    let args = [
        "jobs", "run", "--kind", "import", "--drain", "--exec", "true",
    ];
    let run = place.with_tmp(&args);
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
    let mut listeners = Vec::new();
    for name in [
        "other",
        "tenure-job-bare",
        "tenure-job-full",
        "tenure-job-left",
        "tenure-job-live",
        "tenure-job-young",
    ] {
        let folder = place.path("tmp").join(name);
        fs::create_dir(&folder).unwrap();
        if name != "tenure-job-bare" {
            listeners.push((name, UnixListener::bind(folder.join("socket")).unwrap()));
        }
        if name == "tenure-job-full" {
            fs::write(folder.join("mine"), "").unwrap();
        }
        if name != "tenure-job-young" {
            File::open(&folder).unwrap().set_modified(long_ago).unwrap();
        }
    }
    listeners.retain(|(name, _)| *name == "tenure-job-live");
    finish(run, b"").succeeded();
    assert_eq!(
        place.left_in_tmp(),
        [
            "other",
            "tenure-job-full",
            "tenure-job-live",
            "tenure-job-young"
        ]
    );
}
