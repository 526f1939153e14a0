//! The operator's verbs on ordering keys.

use tenure::{Pause, StoreErrorKind, Tenure};

/// What no event can have as its key is told before the store is asked, and nothing is remembered.
#[tokio::test]
async fn a_key_that_cannot_be_one_is_refused() {
    let tenure = Tenure::open("memory:").await.unwrap();
    let long = "k".repeat(256);
    for (key, message) in [
        ("", "ordering key is empty"),
        (&long, "ordering key is 256 bytes long"),
        ("a\u{7}b", "bytes without control characters"),
    ] {
        let errors = [
            tenure.domain(key).await.unwrap_err(),
            tenure.pause_domain(key, Pause::Begin).await.unwrap_err(),
            tenure.skip(key, None, "a test").await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), StoreErrorKind::Invalid);
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.advice().is_some());
        }
    }
    let known = tenure.domains(tenure::DomainFilter::Open, 9).await.unwrap();
    assert_eq!(known, []);
}
