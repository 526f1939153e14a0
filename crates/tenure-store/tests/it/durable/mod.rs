//! Work leases that outlive a process: every store keeps the model's contract step by step, and on
//! PostgreSQL many processes, some of them killed, keep it together.

mod contents;
mod guards;
mod model;
mod processes;
mod races;
mod restart;
mod script;
mod tables;
