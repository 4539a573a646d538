//! The names of labels, as `datasets` writes them to the footer: of a column `a` of numbers
//! `{"info": {"features": {"a": {"_type": "ClassLabel", "names": […]}}}}`.
//!
//! They are taken from the JSON as it is read, without a tree of the whole JSON, which could take many times its
//! length. Imports fields and the schema.

use super::fields::{Field, FieldKind};
use super::schema::{Meaning, Schema};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

/// The most bytes of all names of labels.
const MAX_LABEL_BYTES: usize = 16 << 20;
/// Bytes of memory that a name takes besides its text.
const LABEL_BYTES: usize = 32;
/// The longest metadata of `datasets` that are read.
const MAX_METADATA_BYTES: usize = 16 << 20;

/// Names of the labels of a field.
type Labels = Vec<Vec<u8>>;

/// The names of each field's labels; an empty list for a field without labels.
pub(super) fn labels(schema: &Schema, fields: &[Field], json: Option<&[u8]>) -> Vec<Labels> {
    let nothing = || vec![Labels::new(); fields.len()];
    let Some(json) = json.filter(|json| json.len() <= MAX_METADATA_BYTES) else {
        return nothing();
    };
    let mut root = Wanted::default();
    for (number, field) in fields.iter().enumerate().filter(|(_, field)| is_integer(schema, field))
    {
        let path = [&b"info"[..], b"features"].into_iter();
        let path = path.chain(field.path.iter().map(Vec::as_slice));
        path.fold(&mut root, |at, part| at.below.entry(part).or_default()).fields.push(number);
    }
    let mut found = Found { labels: nothing(), left: MAX_LABEL_BYTES };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let part = Part { wanted: Some(&root), is_names: false, found: &mut found };
    match part.deserialize(&mut reader).and_then(|_| reader.end()) {
        Ok(()) => found.labels,
        Err(_) => nothing(),
    }
}

/// Whether a field has one integer a row.
fn is_integer(schema: &Schema, field: &Field) -> bool {
    let FieldKind::Value { leaf, name: None } = field.kind else { return false };
    let meaning = schema.leaves.get(leaf).map(|leaf| leaf.meaning);
    matches!(meaning, Some(Meaning::Number(descr, _)) if matches!(descr.get(1..2), Some("i" | "u")))
}

/// The keys that are looked for in an object.
#[derive(Default)]
struct Wanted<'a> {
    below: HashMap<&'a [u8], Wanted<'a>>,
    /// The fields whose labels the object gives.
    fields: Vec<usize>,
}

/// The labels that were found so far.
struct Found {
    labels: Vec<Labels>,
    /// Bytes that names may still have.
    left: usize,
}

/// A value in the JSON, which is searched.
struct Part<'a, 'b> {
    wanted: Option<&'a Wanted<'a>>,
    is_names: bool,
    found: &'b mut Found,
}

/// The kind of a value in the JSON.
enum Seen {
    Other,
    Text(String),
    /// Names of labels.
    Names(Labels),
}

fn taken(name: &[u8]) -> usize {
    name.len().saturating_add(LABEL_BYTES)
}

impl<'de> DeserializeSeed<'de> for Part<'_, '_> {
    type Value = Seen;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_, '_> {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_unit<E>(self) -> Result<Seen, E> {
        Ok(Seen::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Seen, E> {
        Ok(Seen::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Seen, A::Error> {
        if !self.is_names {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Seen::Other);
        }
        // `None` if the elements are not names, or are too many.
        let (mut names, mut left) = (Some(Labels::new()), self.found.left);
        loop {
            let name = Part { wanted: None, is_names: false, found: &mut *self.found };
            let Some(seen) = list.next_element_seed(name)? else { break };
            let text = match seen {
                Seen::Text(text) => Some(text.into_bytes()),
                Seen::Other | Seen::Names(_) => None,
            };
            let fewer = text.as_ref().and_then(|text| left.checked_sub(taken(text)));
            left = fewer.unwrap_or(0);
            names = match (names, text, fewer) {
                (Some(mut names), Some(text), Some(_)) => {
                    names.push(text);
                    Some(names)
                }
                _ => None,
            };
        }
        Ok(names.map_or(Seen::Other, Seen::Names))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Seen, A::Error> {
        let fields = self.wanted.map_or(&[][..], |wanted| &wanted.fields);
        let (mut is_label, mut labels) = (false, None);
        while let Some(key) = map.next_key::<String>()? {
            let below = self.wanted.and_then(|wanted| wanted.below.get(key.as_bytes()));
            let is_names = key == "names" && !fields.is_empty();
            if below.is_none() && !is_names && key != "_type" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            match map.next_value_seed(Part { wanted: below, is_names, found: &mut *self.found })? {
                Seen::Text(kind) if key == "_type" => is_label = kind == "ClassLabel",
                Seen::Names(names) => labels = Some(names),
                Seen::Text(_) | Seen::Other => (),
            }
        }
        for field in fields.iter().filter(|_| is_label) {
            let Some(names) = &labels else { continue };
            let bytes = names.iter().map(|name| taken(name)).sum();
            let left = self.found.left.checked_sub(bytes);
            let place = self.found.labels.get_mut(*field);
            if let Some((left, place)) = left.zip(place) {
                (self.found.left, *place) = (left, names.clone());
            }
        }
        Ok(Seen::Other)
    }
}
