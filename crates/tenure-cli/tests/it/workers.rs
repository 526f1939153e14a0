//! `tenure workers`: who is here.

use crate::program::{everywhere, sqlite};

#[tokio::test]
async fn without_a_worker_it_ends_with_3() {
    for place in everywhere().await {
        for args in [&["workers"][..], &["workers", "--all"]] {
            let said = place.run(args).ended(3);
            assert_eq!(said.out, "");
            assert!(said.err.starts_with("no workers: "), "{said:?}");
        }
        let said = place.run(&["workers", "--json"]).ended(3);
        assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));
    }
}

#[test]
fn without_a_database_it_says_so_and_makes_none() {
    let place = sqlite();
    place
        .run(&["workers"])
        .failed(3, "there is no database", "");
    assert!(!place.file().exists());
}
