//! The columns of a schema that are shown as files, and how they are shown.
//!
//! Imports the schema.

use super::schema::{Kind, Meaning, Node, Physical, Schema};
use crate::format::counted;

/// The longest path of a column: no program opens a longer one, and each row passes the paths of its columns.
const MAX_PATH_BYTES: usize = 4000;
/// The most bytes of the paths of all columns: each column of a structure has the structure's name.
const MAX_PATHS_BYTES: usize = 64 << 20;

/// A column that is shown: a file a row, or several.
#[derive(Debug)]
pub(super) struct Field {
    /// The path of its files, without an ending.
    pub(super) path: Vec<Vec<u8>>,
    pub(super) kind: FieldKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// One value, of the leaf `leaf`. The leaf `name` has the file's name, which tells the ending.
    Value { leaf: usize, name: Option<usize> },
    /// A list of numbers.
    Numbers { leaf: usize, there: u32 },
    /// A list of values that are files: a directory.
    Files { leaf: usize, name: Option<usize>, there: u32 },
    /// Any other column, with its first leaf.
    Json { leaf: usize },
}

/// The columns of a schema that are shown.
///
/// # Errors
/// The paths are too long; the text says how long.
pub(super) fn of(schema: &Schema) -> Result<Vec<Field>, String> {
    let mut add = Add { schema, fields: Vec::new(), path: Vec::new(), left: MAX_PATHS_BYTES };
    schema.columns.iter().try_for_each(|node| add.node(node))?;
    Ok(add.fields)
}

/// Adds the columns of a schema.
struct Add<'a> {
    schema: &'a Schema,
    fields: Vec<Field>,
    path: Vec<Vec<u8>>,
    /// Bytes that paths may still have.
    left: usize,
}

impl Add<'_> {
    fn node(&mut self, node: &Node) -> Result<(), String> {
        self.path.push(node.name.clone());
        let kind = match &node.kind {
            Kind::Leaf(leaf) => Some(FieldKind::Value { leaf: *leaf, name: None }),
            Kind::Struct(inner) => match file_in(self.schema, inner) {
                Some((leaf, name)) => Some(FieldKind::Value { leaf, name: Some(name) }),
                None => {
                    inner.iter().try_for_each(|node| self.node(node))?;
                    None
                }
            },
            Kind::List { there, item, .. } => Some(list(self.schema, *there, item)),
            Kind::Map { key, .. } => Some(FieldKind::Json { leaf: key.leaves().start }),
        };
        if let Some(kind) = kind {
            self.take()?;
            self.fields.push(Field { path: self.path.clone(), kind });
        }
        self.path.pop();
        Ok(())
    }

    /// Takes the path from the bytes that paths may still have: its length, and the memory of each component.
    fn take(&mut self) -> Result<(), String> {
        let bytes: usize = self.path.iter().map(|part| part.len().saturating_add(1)).sum();
        if bytes > MAX_PATH_BYTES {
            let number = self.fields.len();
            return Err(format!("{} of column {number}", counted(bytes, "byte")));
        }
        let held = self.path.len().saturating_mul(size_of::<Vec<u8>>()).saturating_add(bytes);
        let left = self.left.checked_sub(held);
        self.left = left.ok_or("more in all")?;
        Ok(())
    }
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

/// Finds the leaves `bytes` and `path`, as which `datasets` stores images and audio.
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
