//! Tests of the public API.

mod claim;
mod enqueue;
mod example;
mod handler;
mod jobs;
mod operate;
mod testing;
mod webhook;
mod work_lease;
mod worker;
