//! The engine over the memory store, with time paused: each part does its one thing.

mod basics;
mod world;
