//! What is said of containers when they are opened: of many shards that are alike, once.

use crate::catalog::Dataset;
use crate::store::Part;
use std::collections::HashMap;
use std::sync::Arc;

/// So many of the others are named.
const MAX_NAMED: usize = 20;

/// Logs the warnings of all containers; what is said of several only once, of the first, with the names of others.
pub(super) fn warn_of(dataset: &Dataset, parts: &[Arc<Part>]) {
    let mut said: Vec<Said<'_>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (number, container) in dataset.containers().iter().enumerate() {
        let part = parts.get(dataset.part_of(number)).map(|part| part.name().to_string());
        for warning in container.warnings() {
            let text = part.as_ref().and_then(|part| warning.strip_prefix(part.as_str()));
            let place = *places.entry(text.unwrap_or(warning)).or_insert(said.len());
            match said.get_mut(place) {
                Some(said) => said.also(part.as_deref().unwrap_or_default()),
                None => said.push(Said { warning, others: Vec::new(), more: 0 }),
            }
        }
    }
    for Said { warning, others, more } in said {
        match (others.join(", "), more) {
            (others, 0) if others.is_empty() => tracing::warn!("{warning}"),
            (others, 0) => tracing::warn!("{warning} (so it is in {others})"),
            (others, more) => tracing::warn!("{warning} (so it is in {others} and {more} more)"),
        }
    }
}

/// A warning of a container, which others have, too.
struct Said<'a> {
    warning: &'a str,
    others: Vec<String>,
    more: u64,
}

impl Said<'_> {
    fn also(&mut self, part: &str) {
        match self.others.len() < MAX_NAMED {
            // Several members of one part may have it.
            true if self.others.iter().any(|named| named == part) => (),
            true => self.others.push(part.to_owned()),
            false => self.more += 1,
        }
    }
}
