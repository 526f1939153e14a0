//! The running of Tenure, to come: the worker loop that claims, handles and settles, the heartbeat
//! that renews what is held, the reaper, the relay and shutdown. It will know a store and a
//! publisher only as the ports of `tenure-core`, so that it can be simulated. There is nothing here
//! yet; until then the four verbs are called by hand through the crate `tenure`.
