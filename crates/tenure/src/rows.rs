//! A worker on the rows of an adopted table, for those who measure it.

use std::sync::Arc;

use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{LeaseTable, Settings};
use tenure_engine::{EngineConfig, Handler, LeaseRows, Parts, RowStore};
use tenure_store::Opened;

use crate::tenure::Tenure;
use crate::worker::{Worker, WorkerError, check, launch_on};

impl Tenure {
    /// Makes a lease table that is not there yet, and opens it.
    ///
    /// # Errors
    /// The store keeps no tables, or has one of this name.
    pub async fn new_rows(&self, table: LeaseTable) -> Result<Arc<dyn LeaseRows>, StoreError> {
        match self.opened() {
            Opened::Sqlite(store) => {
                store.create_table(&table).await?;
                Ok(Arc::new(store.rows(table).await?))
            }
            Opened::Postgres(store) => {
                store.create_table(&table).await?;
                Ok(Arc::new(store.rows(table).await?))
            }
            Opened::Memory(_) | _ => {
                let message = "this store keeps no tables";
                Err(StoreError::new("adopt", StoreErrorKind::Invalid, message))
            }
        }
    }

    /// Starts a worker on these rows.
    ///
    /// # Errors
    /// The settings do not fit together.
    pub fn row_worker(
        &self,
        rows: &Arc<dyn LeaseRows>,
        handler: Arc<dyn Handler>,
        settings: Settings,
    ) -> Result<Worker, WorkerError> {
        let config = EngineConfig {
            settings,
            ..EngineConfig::default()
        };
        check(self, &config, Vec::new())?;
        let invalid = |problem| WorkerError::Invalid(vec![problem]);
        let worker = self.worker_id_for("rows").map_err(invalid)?;
        let store = |house| Arc::new(RowStore::new(Arc::clone(rows), house));
        let parts = Parts {
            store: store(self.shared()),
            keeper_store: store(self.companion()),
            worker,
            handler,
            config,
            wrap: None,
        };
        launch_on(self, parts)
    }
}
