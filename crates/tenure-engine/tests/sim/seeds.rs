//! Seeds that failed earlier, each with its cause. They always run first.

pub(crate) const FAILED_ONCE: &[(u64, &str)] = &[
    (
        49,
        "a claim was answered just before its deadline: the watchdog slept past it, the handler \
         worked on, and the claim loops polled endlessly for items they no longer settle",
    ),
    (
        6392,
        "a fault of the simulation itself: a process that a poison item had killed began one more \
         item in the same poll",
    ),
    (
        924,
        "the settle of an overdue item was never answered: its lease was renewed for ever",
    ),
];
