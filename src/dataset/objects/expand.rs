//! Expands a URL to objects: a single one, those below a prefix, those that match a pattern. A listing gives the length
//! and version of each, and the files beside it.

use super::neighbours::{Presence, neighbour};
use super::{Asked, Place};
use crate::dataset::beside::{self, leave_out_copies};
use crate::failure::{Exit, Failure};
use crate::format;
use crate::store::remote::{ErrorKind, Location, Object, Scheme, StoreError};
use glob::{MatchOptions, Pattern};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Lists the objects whose keys begin with that of a location.
pub(super) type Listing<'a> = &'a dyn Fn(&Location) -> Result<Vec<Object>, StoreError>;

/// Up to this many objects of a brace list are looked up one by one; more by a listing.
const FEW: usize = 8;

const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

pub(super) fn expand(texts: &[String], start: &str, list: Listing) -> Result<Vec<Place>, Failure> {
    let mut places = Vec::new();
    let listed = listed_at_once(texts, start, list)?;
    for text in texts {
        let fixed = &text[..pattern_start(text)];
        if fixed.len() < text.len() {
            places.extend(matches_of(text, fixed, list)?);
            continue;
        }
        let location = location(text)?;
        if location.is_prefix() {
            places.extend(containers_below(&location, list)?);
        } else {
            places.push(match &listed {
                None => Place::unasked(location),
                Some(objects) => objects.place(&location).ok_or_else(|| missing(&location))?,
            });
        }
    }
    Ok(places)
}

impl Place {
    fn unasked(location: Location) -> Self {
        let (index, sums) = (Presence::Unknown, Presence::Unknown);
        Self { object: Asked::Not(location), index, sums }
    }
}

/// The objects of a listing.
struct Listed(HashMap<String, Object>);

impl Listed {
    fn place(&self, location: &Location) -> Option<Place> {
        let object = Asked::Listed(self.0.get(&location.key)?.clone());
        let presence = |ending| match self.0.contains_key(&neighbour(location, ending).key) {
            true => Presence::Yes,
            false => Presence::No,
        };
        Some(Place { object, index: presence(beside::INDEX), sums: presence(beside::SIDECAR) })
    }
}

impl From<Vec<Object>> for Listed {
    fn from(objects: Vec<Object>) -> Self {
        let by_key = objects.into_iter().map(|object| (object.location.key.clone(), object));
        Self(by_key.collect())
    }
}

/// Lists the common prefix of many plain names. Users who may not list can still look each one up.
fn listed_at_once(texts: &[String], start: &str, list: Listing) -> Result<Option<Listed>, Failure> {
    let is_plain = |text: &String| pattern_start(text) == text.len() && !text.ends_with('/');
    if texts.len() <= FEW || !texts.iter().all(is_plain) {
        return Ok(None);
    }
    // The brace list may be in the name of the bucket.
    let Some((_, path)) = start.split_once("://") else { return Ok(None) };
    let prefix = location(start)?;
    if !path.contains('/') || prefix.key.is_empty() || !can_list(prefix.scheme) {
        return Ok(None);
    }
    match list(&prefix) {
        Ok(objects) => Ok(Some(objects.into())),
        Err(error) if matches!(error.kind, ErrorKind::Denied | ErrorKind::Refused) => {
            tracing::debug!("{error}: each object is looked up by itself");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn can_list(scheme: Scheme) -> bool {
    !matches!(scheme, Scheme::Http | Scheme::Https)
}

/// Where the pattern in a URL begins; its length if there is none. In an HTTP URL a question mark begins the query, and
/// there are no patterns.
fn pattern_start(text: &str) -> usize {
    if text.starts_with("http://") || text.starts_with("https://") {
        return text.len();
    }
    text.find(['*', '?', '[']).unwrap_or(text.len())
}

fn matches_of(text: &str, fixed: &str, list: Listing) -> Result<Vec<Place>, Failure> {
    if !fixed.split_once("://").is_some_and(|(_, path)| path.contains('/')) {
        let why = "only the key can have a pattern, not the name of the bucket";
        return Err(Failure::usage(format!("{text}: {why}")));
    }
    let prefix = location(fixed)?;
    // The prefix before the pattern is literal, even if it contains special characters.
    let pattern = format!("{}{}", Pattern::escape(&prefix.key), &text[fixed.len()..]);
    let pattern = Pattern::new(&pattern).map_err(|e| Failure::usage(format!("{text}: {e}")))?;
    let is_meant =
        |key: &str| pattern.matches_with(key, MATCHING) && !beside::is_no_container(Path::new(key));
    let found = chosen(list(&prefix)?, is_meant);
    if found.is_empty() {
        let why = "no object matches";
        return Err(StoreError::new(text, ErrorKind::NotFound, why).into());
    }
    Ok(found)
}

/// The containers in a directory, but not those in its subdirectories.
fn containers_below(prefix: &Location, list: Listing) -> Result<Vec<Place>, Failure> {
    if !can_list(prefix.scheme) {
        let why = "HTTP servers do not list their files: name each object, {000..146} if they are numbered";
        return Err(Failure::usage(format!("{prefix}: {why}")));
    }
    let is_container = |key: &str| {
        let name = key.strip_prefix(prefix.key.as_str());
        name.is_some_and(|name| !name.contains('/') && format::has_known_extension(Path::new(name)))
    };
    let found = chosen(list(prefix)?, is_container);
    if found.is_empty() {
        let why = "no object of a known format lies directly below it";
        return Err(StoreError::new(prefix.to_string(), ErrorKind::NotFound, why).into());
    }
    Ok(found)
}

/// The objects whose keys are wanted, by key.
fn chosen(objects: Vec<Object>, is_meant: impl Fn(&str) -> bool) -> Vec<Place> {
    let objects = Listed::from(objects);
    let mut meant: Vec<_> = objects.0.values().map(|object| &object.location).collect();
    meant.retain(|location| is_meant(&location.key));
    leave_out_copies(&mut meant, |location| PathBuf::from(&location.key));
    meant.sort_unstable();
    meant.into_iter().filter_map(|location| objects.place(location)).collect()
}

fn missing(location: &Location) -> Failure {
    StoreError::new(location.to_string(), ErrorKind::NotFound, "no such object in the listing")
        .into()
}

/// Parses a URL.
pub(super) fn location(text: &str) -> Result<Location, Failure> {
    match Location::parse(text) {
        Some(location) => Ok(location?),
        None => Err(Failure::new(Exit::Usage, format!("{text}: this is not a URL"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn object(url: &str) -> Object {
        Object {
            location: Location::parse(url).unwrap().unwrap(),
            length_bytes: 1,
            modified: None,
            version_id: None,
            etag: Some("\"1\"".to_owned()),
        }
    }

    /// The expansion of URLs that begin with `start`, in a store that has `keys`; and the listings.
    fn expanded(texts: &[&str], keys: &[&str]) -> Result<(Vec<String>, Vec<String>), Failure> {
        let listings = RefCell::new(Vec::new());
        let list = |prefix: &Location| {
            listings.borrow_mut().push(prefix.to_string());
            let urls = keys.iter().map(|key| format!("s3://b/{key}"));
            let begins = |url: &String| url.starts_with(&prefix.to_string());
            Ok(urls.filter(begins).map(|url| object(&url)).collect())
        };
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        let places = expand(&texts, "s3://b/t-", &list)?;
        let shown = |place: &Place| match &place.object {
            Asked::Not(location) => format!("{location} unasked"),
            Asked::Listed(object) => {
                format!("{} {:?} {:?}", object.location, place.index, place.sums)
            }
        };
        Ok((places.iter().map(shown).collect(), listings.into_inner()))
    }

    #[test]
    fn one_object_is_not_listed() {
        let (found, listings) = expanded(&["s3://b/t-1.tar", "https://h/a?b=*"], &[]).unwrap();
        assert_eq!(found[0], "s3://b/t-1.tar unasked");
        assert!(found.len() == 2 && listings.is_empty());
    }

    #[test]
    fn a_prefix_stands_for_the_containers_directly_below_it_and_tells_what_lies_beside_them() {
        let keys = [
            "d/b.tar",
            "d/a.zip",
            "d/a.zip.ffrsum",
            "d/b.tar.ffrfs-index",
            "d/notes.txt",
            "d/e/c.tar",
            "dd/f.tar",
        ];
        let (found, listings) = expanded(&["s3://b/d/"], &keys).unwrap();
        assert_eq!(found, ["s3://b/d/a.zip No Yes", "s3://b/d/b.tar Yes No"]);
        assert_eq!(listings, ["s3://b/d/"]);
        let whole = expanded(&["s3://b"], &["x.tar", "d/y.tar"]).unwrap();
        assert_eq!(whole.0, ["s3://b/x.tar No No"]);
        assert!(expanded(&["s3://b/e/"], &keys).is_err());
    }

    #[test]
    fn a_pattern_matches_names_but_no_index_or_sidecar_and_crosses_no_slash() {
        let keys = ["t-1.tar", "t-2.tar", "t-2.tar.ffrsum", "t-/3.tar", "u.tar", "[a].tar"];
        let (found, listings) = expanded(&["s3://b/t-*"], &keys).unwrap();
        assert_eq!(found, ["s3://b/t-1.tar No No", "s3://b/t-2.tar No Yes"]);
        assert_eq!(listings, ["s3://b/t-"]);
        assert_eq!(expanded(&["s3://b/t-?.tar"], &keys).unwrap().0.len(), 2);
        assert!(expanded(&["s3://b/v*"], &keys).unwrap_err().to_string().contains("no object"));
        assert!(expanded(&["s3://b*/v"], &keys).unwrap_err().to_string().contains("bucket"));
    }

    #[test]
    fn a_long_brace_list_costs_one_listing_and_names_what_is_missing() {
        let keys: Vec<_> = (0..20).map(|number| format!("t-{number}.tar")).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let texts: Vec<_> = keys.iter().rev().map(|key| format!("s3://b/{key}")).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let (found, listings) = expanded(&texts, &keys).unwrap();
        assert_eq!((found.len(), listings.len()), (20, 1));
        assert_eq!(found[0], "s3://b/t-19.tar No No");
        let failure = expanded(&texts, &keys[1..]).unwrap_err();
        assert!(failure.to_string().starts_with("s3://b/t-0.tar: no such object"), "{failure}");
    }

    #[test]
    fn an_http_server_has_no_listing() {
        let failure = expanded(&["https://h/d/"], &[]).unwrap_err();
        assert!(failure.to_string().contains("name each object"), "{failure}");
    }
}
