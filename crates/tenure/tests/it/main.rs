//! The front door, tried from outside.

mod claim;
mod enqueue;
mod example;
mod jobs;
mod operate;
mod webhook;
mod work_lease;
mod worker;
