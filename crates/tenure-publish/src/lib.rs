//! The publishers of Tenure, to come: webhooks first, then brokers, each behind a feature of its
//! own. It will be the only crate that sends anything to the outside. There is nothing here yet.
