//! What the workers say about the health of a cluster.

use std::collections::BTreeSet;

use tenure::{Finding, Presence, WorkerRecord};

use super::judge::Scene;

pub(super) fn workers(scene: &Scene) -> Finding {
    match scene.those(Presence::Here).len() {
        0 => Finding::warning(
            "workers",
            "none is here: nothing is worked on, and nothing that lapsed is reaped",
            "`tenure serve` or `tenure work` starts one",
        ),
        1 => Finding::good("workers", "1 is here"),
        number => Finding::good("workers", format!("{number} are here")),
    }
}

pub(super) fn silent(scene: &Scene) -> Option<Finding> {
    let names = names(&scene.those(Presence::Silent), |worker| {
        worker.report.worker.to_string()
    });
    (!names.is_empty()).then(|| {
        Finding::warning(
            "silence",
            format!("no longer reports: {names}"),
            "it hangs, was killed or cannot reach the database; what it held is given to others",
        )
    })
}

pub(super) fn versions(scene: &Scene) -> Option<Finding> {
    let here = scene.those(Presence::Here);
    let versions: BTreeSet<&str> = here
        .iter()
        .map(|worker| worker.report.version.as_str())
        .collect();
    let versions: Vec<&str> = versions.into_iter().collect();
    (versions.len() > 1).then(|| {
        Finding::warning(
            "versions",
            format!("the workers here run {}", versions.join(", ")),
            "bring all to the same one; during a deployment this is to be expected",
        )
    })
}

pub(super) fn settings(scene: &Scene) -> Option<Finding> {
    let mut late = scene.those(Presence::Here);
    late.retain(|worker| worker.report.settings_version < scene.settings_version);
    let names = names(&late, |worker| {
        format!(
            "{} ({})",
            worker.report.worker, worker.report.settings_version
        )
    });
    (!names.is_empty()).then(|| {
        Finding::warning(
            "settings",
            format!("older than version {} at: {names}", scene.settings_version),
            "they take it over by themselves within seconds; one that refused it says why in its \
             log: `refused the settings of the cluster`",
        )
    })
}

/// What `text` says of each, in a list.
fn names(workers: &[&WorkerRecord], text: impl Fn(&WorkerRecord) -> String) -> String {
    let all: Vec<String> = workers.iter().map(|worker| text(worker)).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::Verdict;

    use super::super::judge::scenes::{now, scene, verdict, worker};

    #[test]
    fn no_worker_is_a_warning_and_a_silent_one_is_named() {
        let mut scene = scene();
        scene.workers[0].seen_at = now().before(Duration::from_secs(16));
        assert_eq!(verdict(&scene, "workers"), Some(Verdict::Warning));
        assert_eq!(verdict(&scene, "silence"), Some(Verdict::Warning));
        scene.workers[0].left_at = Some(now());
        assert_eq!(verdict(&scene, "silence"), None);
        assert_eq!(verdict(&scene, "workers"), Some(Verdict::Warning));
    }

    #[test]
    fn workers_that_differ_are_told() {
        let mut scene = scene();
        scene.workers.push(worker("b"));
        assert_eq!(verdict(&scene, "versions"), None);
        assert_eq!(verdict(&scene, "settings"), None);
        scene.workers[1].report.version = "0.2.0".to_owned();
        scene.workers[1].report.settings_version = 2;
        assert_eq!(verdict(&scene, "versions"), Some(Verdict::Warning));
        assert_eq!(verdict(&scene, "settings"), Some(Verdict::Warning));
        // One that is gone does not count.
        scene.workers[1].left_at = Some(now());
        assert_eq!(verdict(&scene, "versions"), None);
        assert_eq!(verdict(&scene, "settings"), None);
    }
}
