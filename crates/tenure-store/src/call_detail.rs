//! What every store keeps of a call, cut to size: whoever called has cut it already, but a store
//! relies on nobody for how much it holds.

use tenure_core::webhook::{CallDetail, Reply};

/// So many bytes of an answer's headers are kept.
const HEADER_BYTES_MAX: usize = 8 * 1024;

/// What is kept of a reply; nothing, if there was none.
pub(crate) fn kept_detail(reply: Option<&Reply>) -> CallDetail {
    let Some(reply) = reply else {
        return CallDetail::default();
    };
    let mut detail = CallDetail::of(reply);
    if detail.body.len() > Reply::BODY_BYTES_MAX {
        let end = detail.body.floor_char_boundary(Reply::BODY_BYTES_MAX);
        detail.body.truncate(end);
        detail.is_cut = true;
    }
    let mut left = HEADER_BYTES_MAX;
    detail.headers.retain(|(name, value)| {
        let size = name.len() + value.len();
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    });
    detail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_cut_between_characters() {
        let mut reply = Reply::status(500);
        reply.body = "é".repeat(Reply::BODY_BYTES_MAX).into_bytes();
        reply.body.insert(0, b'a');
        let long = ("x".to_owned(), "y".repeat(HEADER_BYTES_MAX));
        reply.headers = vec![("a".to_owned(), "b".to_owned()), long];
        let detail = kept_detail(Some(&reply));
        assert!(detail.is_cut && detail.body.len() < Reply::BODY_BYTES_MAX);
        assert_eq!(detail.headers.len(), 1);
        assert_eq!(kept_detail(None), CallDetail::default());
    }
}
