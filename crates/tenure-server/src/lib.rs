//! The HTTP API and the dashboard of Tenure, to come: a router that a program of yours can mount.
//! It will be the only crate that knows HTTP status codes and JSON shapes, and it will reach the
//! store through the ports of `tenure-core` alone. There is nothing here yet.
