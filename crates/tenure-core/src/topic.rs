//! `TopicPattern`: the topics that a handler, a route or an endpoint takes; `TopicSet`: those of a
//! worker.

use std::fmt;
use std::sync::Arc;

use crate::event::NAME_BYTES_MAX;
use crate::invalid::Invalid;

/// A topic, or one with `*` in place of whole segments. Within a pattern `*` matches exactly one
/// segment, at the end one or more; alone it matches every topic.
///
/// ```
/// use tenure_core::TopicPattern;
///
/// let orders = TopicPattern::new("order.*")?;
/// assert!(orders.matches("order.paid") && orders.matches("order.line.added"));
/// assert!(!orders.matches("order") && !orders.matches("orders.paid"));
/// assert!(TopicPattern::new("*.paid")?.matches("order.paid"));
/// assert!(TopicPattern::new("ord*").is_err());
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopicPattern(Box<str>);
as_text!(TopicPattern);

const ANY: &str = "*";

impl TopicPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The text is empty, too long or has control characters, or a `*` is only a part of a segment.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        let is_partial = |segment: &str| segment.contains(ANY) && segment != ANY;
        let is_bad = text.is_empty()
            || text.len() > NAME_BYTES_MAX
            || text.chars().any(char::is_control)
            || text.split('.').any(is_partial);
        if is_bad {
            let expected = "a topic such as order.paid, or order.* or *";
            return Err(Invalid::new("topic pattern", format!("{text:?}"), expected));
        }
        Ok(Self(text.into()))
    }

    /// The pattern that every topic matches.
    pub fn any() -> Self {
        Self(ANY.into())
    }

    /// Returns true if the topic matches.
    pub fn matches(&self, topic: &str) -> bool {
        if &*self.0 == ANY {
            return true;
        }
        let mut pattern = self.0.split('.').peekable();
        let mut segments = topic.split('.');
        while let Some(segment) = pattern.next() {
            let Some(next) = segments.next() else {
                return false;
            };
            if segment == ANY && pattern.peek().is_none() {
                return true;
            }
            if segment != ANY && segment != next {
                return false;
            }
        }
        segments.next().is_none()
    }
}

/// The topics that a claim takes: those that match one of its patterns. Cheap to clone.
///
/// ```
/// use tenure_core::{TopicPattern, TopicSet};
///
/// let topics = TopicSet::from_iter([TopicPattern::new("order.*")?]);
/// assert!(topics.takes("order.paid") && !topics.takes("mail.send"));
/// assert!(TopicSet::any().takes("mail.send"));
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSet(Arc<[TopicPattern]>);

impl TopicSet {
    /// All topics.
    pub fn any() -> Self {
        Self::from_iter([TopicPattern::any()])
    }

    /// The patterns, each once.
    pub fn patterns(&self) -> &[TopicPattern] {
        &self.0
    }

    /// Returns true if the set has no pattern: it takes no topic.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if one of the patterns takes every topic.
    pub fn is_any(&self) -> bool {
        self.0.iter().any(|pattern| &*pattern.0 == ANY)
    }

    /// Returns true if one of the patterns takes this topic.
    pub fn takes(&self, topic: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(topic))
    }

    /// Reads the text of [`Display`](fmt::Display); parts that are not patterns are left out.
    pub fn parse(text: &str) -> Self {
        let parts = text.split(", ").map(|part| part.replace("%2C", ","));
        let parts = parts.map(|part| part.replace("%25", "%"));
        parts
            .filter_map(|part| TopicPattern::new(&part).ok())
            .collect()
    }
}

impl FromIterator<TopicPattern> for TopicSet {
    fn from_iter<I: IntoIterator<Item = TopicPattern>>(patterns: I) -> Self {
        let mut all: Vec<TopicPattern> = Vec::new();
        for pattern in patterns {
            if !all.contains(&pattern) {
                all.push(pattern);
            }
        }
        Self(all.into())
    }
}

/// The patterns, separated by commas; a comma within a pattern is escaped.
impl fmt::Display for TopicSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, pattern) in self.0.iter().enumerate() {
            let text = pattern.0.replace('%', "%25").replace(',', "%2C");
            write!(f, "{}{text}", if nth == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_survives_its_text() {
        for patterns in [&[][..], &["*"], &["order.*", "a, b%2C", "mail.send"]] {
            let patterns = patterns.iter().map(|text| TopicPattern::new(text).unwrap());
            let set: TopicSet = patterns.collect();
            assert_eq!(TopicSet::parse(&set.to_string()), set);
        }
    }

    #[test]
    fn a_star_stands_for_whole_segments() {
        for (pattern, topic, is_taken) in [
            ("*", "anything at all", true),
            ("order.paid", "order.paid", true),
            ("order.paid", "order.paid.late", false),
            ("order.*", "order", false),
            ("order.*", "order.", true),
            ("*.*", "order", false),
            ("*.*", "order.paid", true),
            ("*.*", "order.line.added", true),
            ("*.line.added", "order.line.added", true),
            ("*.line.added", "a.b.line.added", false),
            ("order.*.added", "order.line.added", true),
            ("order.*.added", "order.added", false),
        ] {
            let pattern = TopicPattern::new(pattern).unwrap();
            assert_eq!(pattern.matches(topic), is_taken, "{pattern} and {topic}");
        }
        for bad in ["", "a*", "a.b*", "**", "a\n"] {
            assert!(TopicPattern::new(bad).is_err(), "{bad:?}");
        }
    }
}
