//! Work leases that survive a process: every store follows the model's contract step by step, and
//! on PostgreSQL many processes follow it together while some of them are killed.

mod contents;
mod guards;
mod model;
mod processes;
mod races;
mod restart;
mod script;
mod tables;
