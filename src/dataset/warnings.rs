//! What is said of containers when they are opened: of many shards that are alike, once.

use crate::catalog::Dataset;
use crate::store::Part;
use std::collections::HashMap;
use std::sync::Arc;

/// So many of the others are named.
const MAX_NAMED: usize = 20;

/// Logs the warnings of all containers.
pub(super) fn warn_of(dataset: &Dataset, parts: &[Arc<Part>]) {
    let part_of = |number| parts.get(dataset.part_of(number)).map(|part| part.name().to_string());
    let containers = 0..dataset.containers().len();
    let containers: Vec<_> = containers
        .map(|number| (part_of(number).unwrap_or_default(), dataset.warnings_of(number)))
        .collect();
    for (_, text) in said_once(containers.iter().map(|(part, texts)| (&part[..], &texts[..]))) {
        tracing::warn!("{text}");
    }
}

/// The warnings of containers by their parts; what is said of several only once, of the first, with the names of others. Each
/// with the number of its container.
pub(crate) fn said_once<'a>(
    containers: impl Iterator<Item = (&'a str, &'a [String])>,
) -> Vec<(usize, String)> {
    let mut said: Vec<Said<'_>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (container, (part, warnings)) in containers.enumerate() {
        for warning in warnings {
            let text = warning.strip_prefix(part).unwrap_or(warning);
            let place = *places.entry(text).or_insert(said.len());
            match said.get_mut(place) {
                Some(said) => said.also(part),
                None => said.push(Said { container, warning, others: Vec::new(), more: 0 }),
            }
        }
    }
    let text = |Said { container, warning, others, more }| {
        let text = match (others.join(", "), more) {
            (others, 0) if others.is_empty() => warning.to_owned(),
            (others, 0) => format!("{warning} (the same in {others})"),
            (others, more) => format!("{warning} (the same in {others} and {more} more)"),
        };
        (container, text)
    };
    said.into_iter().map(text).collect()
}

/// A warning of a container, which others have, too.
struct Said<'a> {
    container: usize,
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
