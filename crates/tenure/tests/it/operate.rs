//! Operators' calls on ordering keys.

use tenure::operate::Pause;
use tenure::{StoreErrorKind, Tenure};

/// An invalid key is refused before the store is called, and nothing is stored.
#[tokio::test]
async fn an_invalid_key_is_refused() {
    let tenure = Tenure::open("memory:").await.unwrap();
    let long = "k".repeat(256);
    for (key, message) in [
        ("", "ordering key is empty"),
        (&long, "ordering key is 256 bytes long"),
        ("a\u{7}b", "bytes without control characters"),
    ] {
        let errors = [
            tenure.key(key).await.unwrap_err(),
            tenure.pause_key(key, Pause::Begin).await.unwrap_err(),
            tenure.skip(key, None, "a test").await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), StoreErrorKind::Invalid);
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.hint().is_some());
        }
    }
    let known = tenure
        .keys(tenure::operate::KeyFilter::Open, 9)
        .await
        .unwrap();
    assert_eq!(known, []);
}
