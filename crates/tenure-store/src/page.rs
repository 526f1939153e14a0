//! Pages of a list: one id more than the limit is read, which shows whether there is a next page.

use tenure_core::ItemId;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_core::Record;
use tenure_core::store::Filter;

/// Caps the requested size of a page at [`Filter::PAGE_MAX`].
pub(crate) fn page_limit(asked: u32) -> u32 {
    asked.min(Filter::PAGE_MAX)
}

/// The ids of a page; and the last of them, if there is a next page.
pub(crate) fn cut(mut ids: Vec<ItemId>, limit: u32) -> (Vec<ItemId>, Option<ItemId>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = ids.len() > limit;
    ids.truncate(limit);
    let next = ids.last().copied().filter(|_| has_more);
    (ids, next)
}

/// Records in the order of `ids`; missing ones are left out.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn in_order(ids: &[ItemId], found: Vec<Record>) -> Vec<Record> {
    let found: std::collections::HashMap<ItemId, Record> = found
        .into_iter()
        .map(|record| (record.id, record))
        .collect();
    ids.iter().filter_map(|id| found.get(id).cloned()).collect()
}
