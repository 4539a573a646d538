//! What of a schema is shown as files: which columns, and how.
//!
//! Imports the schema.

use super::schema::{Kind, Meaning, Node, Physical, Schema};
use serde_json::Value as Json;

/// Names of labels have so many bytes in all.
const MAX_LABEL_BYTES: usize = 16 << 20;
/// What a name takes besides its bytes.
const LABEL_BYTES: usize = 32;
/// No longer metadata of `datasets` are looked at.
const MAX_METADATA_BYTES: usize = 16 << 20;

/// A column that is shown: a file a row, or several.
#[derive(Debug)]
pub(super) struct Field {
    /// Its path without an ending.
    pub(super) path: Vec<Vec<u8>>,
    pub(super) kind: FieldKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// One value: this leaf's. The leaf of a file's name tells the ending.
    Value { leaf: usize, name: Option<usize> },
    /// A list of numbers.
    Numbers { leaf: usize, there: u32 },
    /// A list of values that are files: a directory.
    Files { leaf: usize, name: Option<usize>, there: u32 },
    /// Anything else: the first leaf.
    Json { leaf: usize },
}

/// The columns of a schema that are shown.
pub(super) fn of(schema: &Schema) -> Vec<Field> {
    let mut fields = Vec::new();
    for node in &schema.columns {
        add(schema, node, &mut Vec::new(), &mut fields);
    }
    fields
}

fn add(schema: &Schema, node: &Node, path: &mut Vec<Vec<u8>>, fields: &mut Vec<Field>) {
    path.push(node.name.clone());
    let kind = match &node.kind {
        Kind::Leaf(leaf) => Some(FieldKind::Value { leaf: *leaf, name: None }),
        Kind::Struct(inner) => match file_in(schema, inner) {
            Some((leaf, name)) => Some(FieldKind::Value { leaf, name: Some(name) }),
            None => {
                inner.iter().for_each(|node| add(schema, node, path, fields));
                None
            }
        },
        Kind::List { there, item, .. } => Some(list(schema, *there, item)),
        Kind::Map { key, .. } => Some(FieldKind::Json { leaf: key.leaves().start }),
    };
    if let Some(kind) = kind {
        fields.push(Field { path: path.clone(), kind });
    }
    path.pop();
}

fn list(schema: &Schema, there: u32, item: &Node) -> FieldKind {
    let json = FieldKind::Json { leaf: item.leaves().start };
    match &item.kind {
        Kind::Leaf(leaf) => match schema.leaves.get(*leaf).map(|leaf| leaf.meaning) {
            Some(Meaning::Number(..)) => FieldKind::Numbers { leaf: *leaf, there },
            Some(Meaning::Bytes) => FieldKind::Files { leaf: *leaf, name: None, there },
            _ => json,
        },
        Kind::Struct(inner) => match file_in(schema, inner) {
            Some((leaf, name)) => FieldKind::Files { leaf, name: Some(name), there },
            None => json,
        },
        _ => json,
    }
}

/// What `datasets` makes of images and audio: `bytes` and `path`.
fn file_in(schema: &Schema, fields: &[Node]) -> Option<(usize, usize)> {
    let leaf = |name: &[u8]| {
        let node = fields.iter().find(|field| field.name == name)?;
        let Kind::Leaf(leaf) = node.kind else { return None };
        let found = schema.leaves.get(leaf)?;
        let is_bytes = found.physical == Physical::Bytes;
        (is_bytes && matches!(found.meaning, Meaning::Bytes | Meaning::Text)).then_some(leaf)
    };
    (fields.len() == 2).then(|| leaf(b"bytes").zip(leaf(b"path"))).flatten()
}

/// The names of each field's labels, as `datasets` writes them to the footer; none where it has none.
pub(super) fn labels(schema: &Schema, fields: &[Field], json: Option<&[u8]>) -> Vec<Vec<Vec<u8>>> {
    let json = json.filter(|json| json.len() <= MAX_METADATA_BYTES);
    let info: Option<Json> = json.and_then(|json| serde_json::from_slice(json).ok());
    let features = info.as_ref().and_then(|info| info.get("info")?.get("features"));
    let mut left = MAX_LABEL_BYTES;
    let names = |field: &Field| {
        let FieldKind::Value { leaf, name: None } = field.kind else { return None };
        let Meaning::Number(descr, _) = schema.leaves.get(leaf)?.meaning else { return None };
        let mut feature = features?;
        for part in &field.path {
            feature = feature.get(std::str::from_utf8(part).ok()?)?;
        }
        let is_label = feature.get("_type")?.as_str()? == "ClassLabel";
        let names = feature.get("names")?.as_array()?;
        let is_integer = matches!(descr.get(1..2), Some("i" | "u"));
        (is_label && is_integer).then_some(names)
    };
    let mut texts = |field: &Field| {
        let names = names(field)?;
        let taken = |name: &Json| name.as_str().map_or(0, str::len).saturating_add(LABEL_BYTES);
        left = left.checked_sub(names.iter().map(taken).sum())?;
        let names = names.iter().map(|name| Some(name.as_str()?.as_bytes().to_vec()));
        names.collect::<Option<Vec<Vec<u8>>>>()
    };
    fields.iter().map(|field| texts(field).unwrap_or_default()).collect()
}
