//! Several containers as one list of samples, numbered on from one to the next.

use super::tree::{Duplicates, TreeBuilder};
use super::{NameError, Tree, count_files};
use crate::format::{Attributes, Container, Names, Result, Sample};

/// One or more containers, in order.
pub struct Dataset {
    parts: Vec<Box<dyn Container>>,
    /// The number of each part's first sample, and behind the last the number of all samples.
    starts: Vec<u64>,
}

/// A sample of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// Which container.
    pub part: usize,
    /// Its number there.
    pub index: u64,
    /// Where it lies there.
    pub sample: Sample,
}

/// What names the containers bring.
pub enum StoredNames {
    /// None: samples are numbered.
    None,
    /// None, and each record has so many fields.
    Fields(u64),
    /// A tree.
    Tree(Tree),
    /// Something like a tree that is not used: why.
    Unused(String),
}

impl Dataset {
    /// Joins containers in the given order.
    #[must_use]
    pub fn new(parts: Vec<Box<dyn Container>>) -> Self {
        let mut starts = vec![0];
        let mut next: u64 = 0;
        for part in &parts {
            next = next.saturating_add(part.len());
            starts.push(next);
        }
        Self { parts, starts }
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> u64 {
        *self.starts.last().unwrap_or(&0)
    }

    /// Whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of all samples together.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.data_bytes()))
    }

    /// The containers.
    #[must_use]
    pub fn parts(&self) -> &[Box<dyn Container>] {
        &self.parts
    }

    /// The part that sample `index` lies in, and its number there.
    #[must_use]
    pub fn part_of(&self, index: u64) -> Option<(usize, u64)> {
        if index >= self.len() {
            return None;
        }
        let part = match self.parts.len() {
            1 => 0,
            _ => self.starts.partition_point(|&start| start <= index) - 1,
        };
        Some((part, index - self.starts[part]))
    }

    /// Where sample `index` lies. `Ok(None)`: there is no such sample.
    ///
    /// # Errors
    /// The container was changed so that its index cannot be read.
    pub fn locate(&self, index: u64) -> Result<Option<Located>> {
        let Some((part, index)) = self.part_of(index) else { return Ok(None) };
        let sample = self.parts[part].sample(index)?;
        Ok(Some(Located { part, index, sample }))
    }

    /// What is known of a sample beside its bytes.
    ///
    /// # Errors
    /// As [`Dataset::locate`].
    pub fn attributes(&self, index: u64) -> Result<Attributes> {
        match self.part_of(index) {
            Some((part, index)) => self.parts[part].attributes(index),
            None => Ok(Attributes::default()),
        }
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// As [`Dataset::locate`].
    pub fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        match self.part_of(index) {
            Some((part, index)) => self.parts[part].link_target(index),
            None => Ok(Vec::new()),
        }
    }

    /// The name of a field in its record's folder.
    ///
    /// # Errors
    /// As [`Dataset::locate`].
    pub(super) fn field_name(&self, index: u64) -> Result<Vec<u8>> {
        match self.part_of(index) {
            Some((part, index)) => self.parts[part].field_name(index),
            None => Ok(Vec::new()),
        }
    }

    /// The names that the containers store, if they do.
    ///
    /// Either the last container's names are for the whole dataset (that is how the reference package
    /// reads a packed folder of several files), or every container names its own samples, and the
    /// result is their union. Archives are united, `duplicates` says what becomes of equal names.
    ///
    /// # Errors
    /// A container cannot be read, or its names fail their checksum.
    pub fn stored_names(&self, duplicates: Duplicates) -> Result<StoredNames> {
        let Some(last) = self.parts.last() else { return Ok(StoredNames::None) };
        if self.parts.len() == 1 {
            return Ok(match last.names(self.len().saturating_sub(1))? {
                Names::None => StoredNames::None,
                Names::Refused(why) => StoredNames::Unused(why),
                Names::Tree(folder) => tree_of(&[(folder, 0)]),
                Names::Fields(fields) => StoredNames::Fields(fields),
                Names::Members => self.members(duplicates)?,
            });
        }
        let all = self.len().saturating_sub(1);
        match last.names(all)? {
            Names::None => return Ok(StoredNames::None),
            Names::Refused(why) => return Ok(StoredNames::Unused(why)),
            Names::Fields(fields) => return self.fields(fields),
            Names::Members => return self.members(duplicates),
            Names::Tree(folder) if count_files(&folder) == all => {
                return Ok(tree_of(&[(folder, 0)]));
            }
            Names::Tree(_) => {}
        }
        let mut trees = Vec::new();
        for (part, &start) in self.parts.iter().zip(&self.starts) {
            match part.names(part.len().saturating_sub(1))? {
                Names::Tree(folder) => trees.push((folder, start)),
                _ => {
                    return Ok(StoredNames::Unused(
                        "they are neither for all files of the dataset nor stored in each of them"
                            .to_owned(),
                    ));
                }
            }
        }
        Ok(tree_of(&trees))
    }

    /// All containers must have the same number of fields.
    fn fields(&self, fields: u64) -> Result<StoredNames> {
        for part in &self.parts {
            if part.names(part.len())? != Names::Fields(fields) {
                return Ok(StoredNames::Unused(
                    "not all containers have records of the same fields".to_owned(),
                ));
            }
        }
        Ok(StoredNames::Fields(fields))
    }

    /// The union of all members of archives.
    fn members(&self, duplicates: Duplicates) -> Result<StoredNames> {
        let mut builder = TreeBuilder::default();
        builder.duplicates(duplicates);
        let mut wrong = None;
        for (part, &start) in self.parts.iter().zip(&self.starts) {
            part.members(&mut |member| {
                if let Err(why) = builder.add_member(b"", &member, start) {
                    wrong.get_or_insert(why);
                }
                Ok(())
            })?;
        }
        Ok(match wrong.map_or_else(|| builder.build(), Err) {
            Ok(tree) => StoredNames::Tree(tree),
            Err(why) => StoredNames::Unused(why.to_string()),
        })
    }
}

fn tree_of(folders: &[(crate::format::Folder, u64)]) -> StoredNames {
    let build = || -> Result<Tree, NameError> {
        let mut builder = TreeBuilder::default();
        for (folder, first_sample) in folders {
            builder.add_folder(folder, *first_sample)?;
        }
        builder.build()
    };
    match build() {
        Ok(tree) => StoredNames::Tree(tree),
        Err(why) => StoredNames::Unused(why.to_string()),
    }
}
