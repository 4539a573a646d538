//! What is said of containers when they are opened: of many shards that are alike, once.

use crate::catalog::Dataset;
use crate::format::counted;
use crate::store::Part;
use std::collections::HashMap;
use std::sync::Arc;

/// Logs the warnings of all containers; what is said of several only once, of the first.
pub(super) fn warn_of(dataset: &Dataset, parts: &[Arc<Part>]) {
    let mut said: Vec<(&str, u64)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (number, container) in dataset.containers().iter().enumerate() {
        let part = parts.get(dataset.part_of(number)).map(|part| part.name().to_string());
        for warning in container.warnings() {
            let text = part.as_ref().and_then(|part| warning.strip_prefix(part.as_str()));
            let place = *places.entry(text.unwrap_or(warning)).or_insert(said.len());
            match said.get_mut(place) {
                Some((_, more)) => *more += 1,
                None => said.push((warning, 0)),
            }
        }
    }
    for (warning, more) in said {
        match more {
            0 => tracing::warn!("{warning}"),
            _ => tracing::warn!("{warning} (so it is in {})", counted(more, "more container")),
        }
    }
}
