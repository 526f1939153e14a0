//! The contract of every store, in one suite that runs on all of them and in both layouts.
//!
//! A check is a function of a [`World`]. The macro `on_every_store!` makes a test of it for each
//! store, named `conformance::<file>::<store>::<check>`, and lists it for the planted faults.

use crate::world::{Soon, World};

/// A check, for the planted faults.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a dyn World) -> Soon<'a, ()>,
}

/// Makes a test of each check for each store. The row layout runs with two presets: `outbox` has a
/// status column, `sync_jobs` derives the status. The other presets differ in names and order,
/// which the rendered statements show (`rows_sql::text`); `twins` compares them with these two.
macro_rules! on_every_store {
    ($($check:ident),* $(,)?) => {
        on_stores!(
            [
                memory,
                sqlite_queue,
                sqlite_outbox,
                sqlite_sync_jobs,
                postgres_queue,
                postgres_outbox,
                postgres_sync_jobs
            ];
            $($check),*
        );
        list!($($check),*);
    };
}

/// Makes a test of each check for each store in the queue layout.
macro_rules! on_every_queue {
    ($($check:ident),* $(,)?) => {
        on_stores!([memory, sqlite_queue, postgres_queue]; $($check),*);
        list!($($check),*);
    };
}

/// Makes a test of each check for each store with endpoints.
macro_rules! on_every_keeper_of_webhooks {
    ($($check:ident),* $(,)?) => {
        on_stores!(
            [
                memory,
                sqlite_queue,
                postgres_queue,
            ];
            $($check),*
        );
        list!($($check),*);
    };
}

macro_rules! on_stores {
    ([$($store:ident),* $(,)?]; $($check:ident),*) => {
        on_stores!(@each [$($store),*] ($($check),*));
    };
    (@each [$($store:ident),*] $checks:tt) => {
        $(on_stores!(@one $store $checks);)*
    };
    (@one $store:ident ($($check:ident),*)) => {
        mod $store {
            $(
                #[tokio::test]
                async fn $check() {
                    let world = crate::world::$store().await;
                    super::$check(&*world).await;
                }
            )*
        }
    };
}

macro_rules! list {
    ($($check:ident),*) => {
        pub(crate) const CHECKS: &[crate::conformance::Check] = &[
            $(crate::conformance::Check {
                name: stringify!($check),
                run: |world| Box::pin($check(world)),
            }),*
        ];
    };
}

mod claim;
mod cluster;
mod delays;
mod guard;
mod intake;
mod keys;
mod laws;
mod lost_answers;
mod operate;
mod prune;
mod reap;
mod renew;
mod settle;
mod time;
mod topics;
mod transitions;
mod turns;
mod webhooks;
mod work_lease;

/// All checks, for the planted faults.
pub(crate) fn all() -> impl Iterator<Item = Check> {
    [
        laws::CHECKS,
        claim::CHECKS,
        renew::CHECKS,
        settle::CHECKS,
        reap::CHECKS,
        guard::CHECKS,
        transitions::CHECKS,
        intake::CHECKS,
        operate::CHECKS,
        cluster::CHECKS,
        turns::CHECKS,
        keys::CHECKS,
        delays::CHECKS,
        prune::CHECKS,
        time::CHECKS,
        topics::CHECKS,
        lost_answers::CHECKS,
        work_lease::added::CHECKS,
        work_lease::bounds::CHECKS,
        work_lease::contract::CHECKS,
        work_lease::watermark::CHECKS,
    ]
    .into_iter()
    .chain(webhooks::CHECKS)
    .flatten()
    .copied()
}
