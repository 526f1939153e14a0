//! The statements of the queue layout, work leases, jobs and webhooks, each cut out of the file of
//! its operation.
//!
//! A file opens with the header that every `.sql` file has. A line `-- statement: <name>` begins a
//! statement, which ends at the next such line; the statements of a file are those of one
//! transaction. They are cut out at compile time, so the compiler also reports a missing one.

/// Defines the statements of a folder (constant, file, statement), and a list of all (file,
/// statement, text).
macro_rules! statements {
    ($folder:literal, $all:ident: $($name:ident = $file:literal, $statement:literal;)*) => {
        $(pub(super) const $name: &str = cut(
            include_str!(concat!("../../sql/sqlite/", $folder, "/", $file, ".sql")),
            $statement,
        );)*

        #[cfg(test)]
        pub(super) const $all: &[(&str, &str, &str)] = &[$(($file, $statement, $name),)*];
    };
}

statements! {
    "work_lease", WORK_LEASE:
    VIEW_SPACE = "view", "space";
    VIEW_DOMAIN = "view", "domain";
    VIEW_HEAD = "view", "head";
    VIEW_QUEUED = "view", "queued";
    VIEW_NEAR = "view", "near";
    CHANGE_DOMAIN_MADE = "change", "made";
    CHANGE_DOMAIN_MOVED = "change", "moved";
    CHANGE_DOMAIN_POPPED = "change", "popped";
    CHANGE_DOMAIN_PUSHED = "change", "pushed";
    CHANGE_DOMAIN_GONE = "change", "gone";
    CHANGE_DOMAIN_COME = "change", "come";
    OPEN_SPACE = "open_space", "open_space";
    ADVANCE = "advance", "advance";
    WATERMARK = "watermark", "watermark";
    PRUNE_RANGES_DUE = "prune", "due";
    PRUNE_RANGES_GONE = "prune", "gone";
    PRUNE_RANGES_EVICTED = "prune", "evicted";
    IDLE_WITH_BACKLOG = "idle_with_backlog", "idle_with_backlog";
    LAPSED = "lapsed", "lapsed";
}

statements! {
    "jobs", JOBS:
    ENQUEUE_JOBS_NEXT = "enqueue", "next";
    ENQUEUE_JOBS_JOB = "enqueue", "job";
    RETRIED = "retry", "retried";
    JOB = "job", "job";
    JOBS_OF_MATRIX = "page", "matrix";
    JOBS_OPEN = "page", "open";
    JOBS_FAILED = "page", "failed";
    JOBS_OF_KIND = "page", "kind";
    JOBS_ALL = "page", "all";
    CHUNKS = "chunks", "chunks";
    NOTABLE_CHUNKS = "notable_chunks", "notable_chunks";
    HELD_CHUNKS = "held_chunks", "held_chunks";
    KINDS = "kinds", "kinds";
    COUNT_JOBS = "count", "count";
    PROGRESS = "progress", "progress";
    PRUNE_JOBS_COMPLETED = "prune", "completed";
    PRUNE_JOBS_FAILED = "prune", "failed";
    PRUNE_JOBS_GONE = "prune", "gone";
    PRUNE_JOBS_FORGOTTEN = "prune", "forgotten";
}

/// Defines the statements of a folder as a value, so that tests can change them (field, file,
/// statement), and the same list of all.
macro_rules! guarded {
    ($(#[$doc:meta])* $set:ident, $folder:literal, $all:ident:
     $($name:ident = $file:literal, $statement:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $set {
            $(pub(super) $name: &'static str,)*
        }

        impl $set {
            /// The unchanged statements.
            pub(super) const WRITTEN: Self = Self {
                $($name: cut(
                    include_str!(concat!("../../sql/sqlite/", $folder, "/", $file, ".sql")),
                    $statement,
                ),)*
            };

            /// The statements of changed files. Leaks their text: for tests only.
            #[cfg(feature = "testing")]
            pub(super) fn edited(edit: crate::render::Edit<'_>) -> &'static Self {
                Box::leak(Box::new(Self {
                    $($name: cut(
                        edit(
                            concat!($folder, "_", $file),
                            include_str!(concat!("../../sql/sqlite/", $folder, "/", $file, ".sql")),
                        ).into_owned().leak(),
                        $statement,
                    ),)*
                }))
            }
        }

        #[cfg(test)]
        pub(super) const $all: &[(&str, &str, &str)] =
            &[$(($file, $statement, $set::WRITTEN.$name),)*];
    };
}

guarded! {
    /// The statements that check the leases of jobs and chunks.
    HoldStatements, "jobs", HOLDS:
    note = "note", "note";
    note_look = "note", "look";
    fence = "claim_chunk", "fence";
    claim_chunk = "claim_chunk", "claimed";
    make_chunk = "claim_chunk", "made";
    look_job = "look_chunk", "job";
    look_chunk = "look_chunk", "chunk";
    end_chunk = "end_chunk", "end_chunk";
    renew_chunks = "renew_chunks", "renew_chunks";
}

statements! {
    "queue", ALL:
    SEPARATE = "separate", "separate";
    SET_ASIDE_LANES = "set_aside", "lanes";
    SET_ASIDE_READY = "set_aside", "ready";
    SEPARATE_TOPICS = "separate_topics", "separate_topics";
    DUE_TOPICS = "due_topics", "due_topics";
    CLAIM_QUEUES = "claim", "queues";
    CLAIM_ENDPOINTS = "claim", "endpoints";
    CLAIM_USED = "claim", "used";
    CLAIM_DUE = "claim", "due";
    CLAIM_TAKEN = "claim", "taken";
    CLAIM_TAKEN_SOME = "claim", "taken_some";
    CLAIM_FOLLOWERS = "claim", "followers";
    CLAIM_FOLLOWED = "claim", "followed";
    CLAIM_FENCE = "claim", "fence";
    CLAIM_LEASE = "claim", "lease";
    RENEW_KEPT = "renew", "kept";
    RENEW_LAPSED = "renew", "lapsed";
    SETTLE_LEASE = "settle", "lease";
    SETTLE_END_LEASE = "settle", "end_lease";
    SETTLE_KEEP_LEASE = "settle", "keep_lease";
    SETTLE_JOURNAL = "settle", "journal";
    SETTLE_SETBACKS = "settle", "setbacks";
    SETTLE_READY = "settle", "ready";
    SETTLE_DEAD = "settle", "dead";
    SETTLE_BEHIND = "settle", "behind";
    SETTLE_NEXT = "settle", "next";
    SETTLE_PROMOTED = "settle", "promoted";
    SETTLE_HEADS = "settle", "heads";
    SETTLE_IDLE = "settle", "idle";
    REAP_LAPSED = "reap", "lapsed";
    REAP_END_LEASES = "reap", "end_leases";
    REAP_COUNTERS = "reap", "counters";
    LOOK_PLACE = "look", "place";
    LOOK_SAID = "look", "said";
    ENQUEUE_NUMBER = "enqueue", "number";
    ENQUEUE_LAST = "enqueue", "last";
    ENQUEUE_GIVEN = "enqueue", "given";
    ENQUEUE_EVENT = "enqueue", "event";
    ENQUEUE_HEADS = "enqueue", "heads";
    ENQUEUE_READY = "enqueue", "ready";
    ENQUEUE_BEHIND = "enqueue", "behind";
    WRITTEN_HERE = "written_here", "events";
    ENQUEUE_CALL = "enqueue_call", "event";
    ENQUEUE_CALL_ID = "enqueue_call", "id";
    ENQUEUE_UNIQUE_THERE = "enqueue_unique", "there";
    ENQUEUE_UNIQUE_WON = "enqueue_unique", "won";
    REPLAY_OPENED = "replay", "opened";
    REPLAY_RAISED = "replay", "raised";
    REPLAY_KEYS = "replay", "keys";
    REPLAY_DRAWN = "replay", "drawn";
    REPLAY_TURNS = "replay", "turns";
    START_REPLAY_GONE = "start_replay", "gone";
    START_REPLAY = "start_replay", "started";
    REPLAYS = "replays", "replays";
    NEXT_REPLAY = "next_replay", "due";
    NEXT_REPLAY_OTHERS = "next_replay", "others";
    REPLAY_DEAD_BOUND = "replay_dead", "bound";
    REPLAY_DEAD = "replay_dead", "page";
    REPLAY_DONE_BOUND = "replay_done", "bound";
    REPLAY_DONE = "replay_done", "page";
    MOVE_REPLAY = "move_replay", "moved";
    CANCEL_REPLAY = "cancel_replay", "cancelled";
    DELAYED = "delayed", "delayed";
    RETRY_NOW_ANSWERS = "retry_now", "answers";
    RETRY_NOW_SETBACKS = "retry_now", "setbacks";
    BURY_TAKEN = "bury", "taken";
    BURY_LEFT = "bury", "left";
    BURY_KEY = "bury", "key";
    BURY_LEASE = "bury", "lease";
    PRUNE_ENTRIES = "prune", "entries";
    PRUNE_DEAD = "prune", "dead";
    PRUNE_SETTLED = "prune", "settled";
    PRUNE_SOURCES = "prune", "sources";
    PRUNE_EVENTS = "prune", "events";
    PRUNE_SETBACKS = "prune", "setbacks";
    PRUNE_BURIED = "prune", "buried";
    PRUNE_DEDUPE_KEYS = "prune", "dedupe_keys";
    PRUNE_COUNTED = "prune", "counted";
    PRUNE_ATTEMPTS = "prune", "attempts";
    PRUNE_KEPT = "prune", "kept";
    PRUNE_ENDED = "prune", "ended";
    PRUNE_PRUNED = "prune", "pruned";
    PRUNE_OTHERS = "prune", "others";
    FIND = "find", "find";
    TIMELINE = "timeline", "timeline";
    PAGE_ALL = "page_all", "page_all";
    PAGE_OF_KEY = "page_all", "of_key";
    PAGE_PENDING = "page_pending", "page_pending";
    PAGE_CLAIMED = "page_claimed", "page_claimed";
    PAGE_DONE = "page_done", "page_done";
    PAGE_DEAD = "page_dead", "page_dead";
    COUNT_QUEUES = "count", "queues";
    COUNT_ENDPOINTS = "count", "endpoints";
    COUNT_WAITING = "count", "waiting";
    COUNT_BEHIND = "count", "behind";
    COUNT_HELD = "count", "held";
    COUNT_SETTLED = "count", "settled";
    COUNT_RETRIED = "count", "retried";
    QUEUES = "queues", "queues";
    ADD_QUEUE = "add_queue", "add_queue";
    PAUSE_QUEUE = "pause_queue", "pause_queue";
    KEYS = "keys", "keys";
    KEYS_ONE = "keys", "one";
    PAUSE_KEY = "pause_key", "paused";
    PAUSE_KEY_HELD_BACK = "pause_key", "held_back";
    RESUME_KEY_PAUSED = "resume_key", "paused";
    RESUME_KEY = "resume_key", "resumed";
    BLOCKED_KEYS = "blocked_keys", "blocked_keys";
    SKIP_BLOCKED = "skip_blocked", "skip_blocked";
    SETTINGS = "settings", "settings";
    CHANGE_MOVED = "change_settings", "moved";
    CHANGE_TAKEN_OUT = "change_settings", "taken_out";
    CHANGE_WRITTEN = "change_settings", "written";
    REPORT = "report", "report";
    LEAVE = "leave", "leave";
    PRUNE_WORKERS = "prune_workers", "prune_workers";
    WORKERS = "workers", "workers";
    EXAMINE_FILE = "examine", "file";
    EXAMINE_SYNCHRONOUS = "examine", "synchronous";
    EXAMINE_INTEGRITY = "examine", "integrity";
}

statements! {
    "webhook", WEBHOOK:
    ADD_ENDPOINT = "add_endpoint", "added";
    ADD_ENDPOINT_MOVED = "add_endpoint", "moved";
    ENDPOINTS = "endpoints", "endpoints";
    ENDPOINT = "endpoint", "endpoint";
    CHANGE_ENDPOINT = "change_endpoint", "changed";
    KEEP_HEALTH = "keep_health", "kept";
    KEEP_HEALTH_MOVED = "keep_health", "moved";
    DUE_VERSION = "due_deliveries", "version";
    DUE_LANES = "due_deliveries", "lanes";
    SUBSCRIPTIONS = "subscriptions", "subscriptions";
    FAN_OUT = "fan_out", "fan_out";
    SOURCES = "sources", "sources";
    PAGE_SOURCE = "page_source", "page_source";
    RECORD_CALLS = "record_calls", "record_calls";
    CALLS = "calls", "calls";
}

const MARK: &str = "-- statement: ";

/// Cuts the statement `name` out of a file.
#[expect(
    clippy::panic,
    reason = "it runs at compile time, and the compiler reports the panic"
)]
const fn cut(file: &'static str, name: &str) -> &'static str {
    let (whole, mark) = (file.as_bytes(), MARK.as_bytes());
    let mut at = 0;
    while at < whole.len() {
        let start = at + mark.len() + name.len();
        if has(whole, at, mark)
            && has(whole, at + mark.len(), name.as_bytes())
            && has(whole, start, b"\n")
        {
            let mut end = start;
            while end < whole.len() && !has(whole, end, mark) {
                end += 1;
            }
            let (front, _) = file.split_at(end);
            let (_, statement) = front.split_at(start);
            return statement;
        }
        at += 1;
    }
    panic!("the file has no statement of this name")
}

/// Returns true if `part` occurs at `at`.
#[expect(
    clippy::indexing_slicing,
    reason = "both indexes are compared with the lengths"
)]
const fn has(whole: &[u8], at: usize, part: &[u8]) -> bool {
    let mut n = 0;
    while n < part.len() {
        if at + n >= whole.len() || whole[at + n] != part[n] {
            return false;
        }
        n += 1;
    }
    true
}
