//! Examine: the only finding is that nothing outlives the process.

use tenure_core::store::{Answer, Examine, Finding};

use super::MemoryStore;

impl Examine for MemoryStore {
    fn examine(&self) -> Answer<'_, Vec<Finding>> {
        Box::pin(async {
            let found = "everything is in memory and ends with the process";
            let hint = "to keep it, use sqlite://FILE or postgres://USER@HOST/DATABASE";
            Ok(vec![Finding::warning("store", found, hint)])
        })
    }
}
