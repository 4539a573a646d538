//! Writes MDS: shards with the columns that the first sample has, and the list of shards.
//!
//! Offsets stand before the samples: room is left for them, and they are written in the end.

use super::encoding::Encoding;
use crate::format::write::{Field, Gather, RecordWriter, in_order, invalid};
use crate::format::{
    Holds, Input, MemberWriter, NewMember, Outline, Output, WriteFormat, WriteList,
};
use serde_json::{Value, json};
use std::io::{self, Read, Seek, SeekFrom};

/// Bytes of the offset and size of a value.
const VALUE_BYTES: u64 = 8;
/// The bytes of a shard: the package's own default.
const SHARD_BYTES: u64 = 1 << 26;

/// Writes MDS.
#[derive(Debug)]
pub struct WriteMds;

impl WriteFormat for WriteMds {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["mds"]
    }

    fn holds(&self) -> Holds {
        Holds::FIELDS
    }

    fn member_bytes(&self, member: &NewMember) -> u64 {
        member.data_bytes().saturating_add(VALUE_BYTES)
    }

    fn listed(&self) -> Option<&dyn WriteList> {
        Some(self)
    }

    fn begin<'a>(
        &self,
        out: Box<dyn Output + 'a>,
        outline: &Outline,
    ) -> io::Result<Box<dyn MemberWriter + 'a>> {
        let shard = Shard {
            out,
            samples: outline.records,
            columns: Vec::new(),
            offsets: Vec::new(),
            end: 0,
            sample: Vec::new(),
        };
        Ok(Box::new(Gather::new(shard, outline.grouping)))
    }
}

impl WriteList for WriteMds {
    fn container_name(&self, number: usize) -> String {
        format!("shard.{number:05}.mds")
    }

    fn container_bytes(&self) -> u64 {
        SHARD_BYTES
    }

    fn list_name(&self) -> &'static str {
        super::LIST_NAME
    }

    fn list(
        &self,
        containers: &mut dyn Iterator<Item = io::Result<Box<dyn Input>>>,
    ) -> io::Result<Vec<u8>> {
        let mut shards = Vec::new();
        for (number, shard) in containers.enumerate() {
            shards.push(entry(&self.container_name(number), shard?.as_mut())?);
        }
        Ok(json!({ "shards": shards, "version": 2 }).to_string().into_bytes())
    }
}

/// The entry of a shard in the list: its columns, as they stand in the shard, its length and the number of its samples.
fn entry(name: &str, shard: &mut dyn Input) -> io::Result<Value> {
    let mut head = [0; super::HEAD_BYTES as usize];
    shard.read_exact(&mut head)?;
    let wrong = || io::Error::other("a shard that is no shard");
    let (json_at, samples_at) = super::json_range(&head).ok_or_else(wrong)?;
    shard.seek(SeekFrom::Start(json_at))?;
    let mut columns = Vec::new();
    shard.take(samples_at.saturating_sub(json_at)).read_to_end(&mut columns)?;
    let bytes = shard.seek(SeekFrom::End(0))?;
    let mut entry: Value = serde_json::from_slice(&columns)?;
    let fields = entry.as_object_mut().ok_or_else(wrong)?;
    let samples = (json_at / 4).saturating_sub(2);
    fields.insert("raw_data".into(), json!({ "basename": name, "bytes": bytes, "hashes": {} }));
    fields.insert("samples".into(), json!(samples));
    fields.insert("zip_data".into(), Value::Null);
    Ok(entry)
}

/// A shard that is being written.
struct Shard<'a> {
    out: Box<dyn Output + 'a>,
    /// The number of samples that are to be written.
    samples: u64,
    /// The columns of the first sample, by name.
    columns: Vec<(String, Encoding)>,
    offsets: Vec<u32>,
    /// The offset of the end of the last sample.
    end: u64,
    sample: Vec<u8>,
}

impl Shard<'_> {
    /// Writes the JSON before the samples, for columns that are the fields of the first one.
    fn head(&mut self, fields: &[Field]) -> io::Result<()> {
        let columns = fields.iter().map(|field| (field.name.to_owned(), Encoding::of(field)));
        self.columns = columns.collect();
        self.columns.sort_by(|first, second| first.0.cmp(&second.0));
        let of = |value: fn(&Encoding) -> Value| -> Vec<Value> {
            self.columns.iter().map(|(_, encoding)| value(encoding)).collect()
        };
        let names: Vec<_> = self.columns.iter().map(|(name, _)| name).collect();
        let json = json!({
            "column_encodings": of(|encoding| json!(encoding.name())),
            "column_names": names,
            "column_sizes": of(|encoding| json!(encoding.size())),
            "compression": null,
            "format": "mds",
            "hashes": [],
            "size_limit": null,
            "version": 2,
        })
        .to_string();
        let offsets = self.samples.saturating_add(1).saturating_mul(4);
        let json_at = offsets.saturating_add(4);
        self.out.seek(SeekFrom::Start(json_at))?;
        self.out.write_all(json.as_bytes())?;
        self.end = json_at.saturating_add(json.len() as u64);
        self.mark_end()
    }

    /// Notes that a sample ends, and the next one begins, behind the bytes that were written.
    fn mark_end(&mut self) -> io::Result<()> {
        let end = u32::try_from(self.end);
        self.offsets.push(end.map_err(|_| invalid("a shard of over 4 GiB (--shard-size 64M)"))?);
        Ok(())
    }
}

impl RecordWriter for Shard<'_> {
    fn record(&mut self, fields: &[Field]) -> io::Result<()> {
        if self.offsets.is_empty() {
            self.head(fields)?;
        }
        let mut values = Vec::with_capacity(self.columns.len());
        self.sample.clear();
        let fields = in_order(fields, self.columns.iter().map(|(name, _)| name.as_str()))?;
        for (field, (_, encoding)) in fields.into_iter().zip(&self.columns) {
            let value = encoding.encode(field).map_err(|why| field.invalid(why))?;
            if encoding.size().is_none() {
                let length = u32::try_from(value.len());
                let length = length.map_err(|_| field.invalid("a value of over 4 GiB"))?;
                self.sample.extend_from_slice(&length.to_le_bytes());
            }
            values.push(value);
        }
        values.iter().for_each(|value| self.sample.extend_from_slice(value));
        self.out.write_all(&self.sample)?;
        self.end = self.end.saturating_add(self.sample.len() as u64);
        self.mark_end()
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.offsets.is_empty() {
            return Err(invalid("MDS holds no shard without samples"));
        }
        let count = self.samples;
        if self.offsets.len() as u64 != count.saturating_add(1) {
            return Err(io::Error::other("fewer or more samples than announced"));
        }
        let count = u32::try_from(count).map_err(|_| invalid("over 2³² samples"))?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&count.to_le_bytes())?;
        for offset in &self.offsets {
            self.out.write_all(&offset.to_le_bytes())?;
        }
        self.out.flush()
    }
}
