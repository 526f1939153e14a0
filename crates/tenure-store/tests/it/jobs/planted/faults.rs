//! Faults: each removes one guard from a statement.

use crate::faults::Planted;

/// Returns each line of a file that is a condition, with a replacement that removes the condition
/// but still binds its parameters.
pub(super) fn faults_of_lines(text: &str) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let mut words = ["where ", "and ", "on "].into_iter();
        let guard = words.find_map(|word| Some((word, trimmed.strip_prefix(word)?)));
        let Some((word, guard)) = guard else { continue };
        if guard.matches('(').count() != guard.matches(')').count() || guard.contains(',') {
            continue;
        }
        let indent = " ".repeat(line.len() - trimmed.len());
        faults.push((
            format!("\n{line}\n"),
            format!("\n{indent}{word}({guard} or true)\n"),
        ));
    }
    faults
}

/// Conditions within a line, marked by square brackets.
const WITHIN: [(&str, &str, &[&str]); 6] = [
    (
        "sqlite",
        "look_chunk",
        &[
            "ifnull([t.lease_token = :token] and",
            "and [t.locked_by = :holder]\n   ",
            "and [t.completed_at is null] and",
            "and [t.failed_at is null], false",
            "when [substr(t.settled_token, 1, length(:token) + 1) = :token || ' ']",
        ],
    ),
    (
        "sqlite",
        "note",
        &[
            "([t.lease_token = :token] and",
            "and [t.locked_by = :holder], false",
            "tenure_jobs t\nwhere [t.id = :id]",
            "where [t.id = :id]\n  and",
        ],
    ),
    (
        "postgres",
        "look_chunk",
        &[
            "coalesce([t.lease_token = $4::text] and",
            "and [t.locked_by = $5::text]\n",
            "and [t.completed_at is null] and",
            "and [t.failed_at is null], false",
            "when [starts_with(t.settled_token, $4 || ' ')]",
            "on [t.matrix_id = $2::text] and",
            "and [t.chunk_hash = $3::text]\n",
        ],
    ),
    (
        "postgres",
        "note",
        &[
            "([t.lease_token = $3] and",
            "and [t.locked_by = $4], false",
            "left join tenure_jobs t on [t.id = $2]",
        ],
    ),
    (
        "postgres",
        "renew_chunks",
        &["and [t.locked_until > coalesce($1::timestamptz, statement_timestamp())]\n"],
    ),
    (
        "postgres",
        "make_chunk",
        &["where [t.matrix_id = $2] and [t.chunk_hash = $3]"],
    ),
];

pub(super) fn faults_within(database: &str, file: &str) -> Vec<(String, String)> {
    let here = WITHIN.iter().filter(|of| (of.0, of.1) == (database, file));
    let marked = here.flat_map(|(_, _, marked)| *marked);
    marked
        .map(|marked| {
            let sound = marked.replace(['[', ']'], "");
            (sound, marked.replace('[', "(").replace(']', " or true)"))
        })
        .collect()
}

/// Faults that let a renewal shorten a lease.
const SHORTENS: [(&str, &str, &str); 2] = [
    (
        "sqlite",
        "set locked_until = max(t.locked_until, :until)",
        "set locked_until = :until",
    ),
    (
        "postgres",
        "set locked_until = greatest(\n        t.locked_until, ",
        "set locked_until = (",
    ),
];

pub(super) fn other_faults(database: &str, file: &str) -> Vec<(String, String)> {
    let here = SHORTENS.iter().filter(|fault| fault.0 == database);
    let here = here.filter(|_| file == "renew_chunks");
    here.map(|(_, from, to)| ((*from).to_owned(), (*to).to_owned()))
        .collect()
}

/// Makes the claim ignore that a chunk is held or finished.
pub(super) const BLIND: Planted = Planted {
    file: "jobs_look_chunk",
    from: "select t.locked_until, t.locked_by, t.completed_at, t.failed_at, t.last_synced_at,",
    to: "select null, null, null, null, null,",
};
