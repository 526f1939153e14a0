//! Tests of the core's pure rules, many of them with random input.

#[cfg(test)]
mod event;
#[cfg(test)]
mod guard;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod ranges;
#[cfg(test)]
mod replays;
#[cfg(test)]
mod retry;
#[cfg(test)]
mod states_doc;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod table;
#[cfg(test)]
mod time;
#[cfg(test)]
mod token;
#[cfg(test)]
mod webhook;
#[cfg(test)]
mod why;
#[cfg(test)]
mod work_lease;
