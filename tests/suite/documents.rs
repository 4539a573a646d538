//! The promises of the README and the documents: links that lead somewhere, and lines of fstab that mount.

use crate::common::{Mount, ffrfs, fixture, for_each_transport};
use crate::mount8::with_mount8;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// All documents, by their path in the repository, with their text.
fn documents() -> Vec<(PathBuf, String)> {
    let root = root();
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> =
        docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.strip_prefix(root).unwrap().to_owned(), text)
    };
    pages.into_iter().map(read).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The lines outside of code blocks, and those inside, each with the language of its block.
fn lines(text: &str) -> (Vec<&str>, Vec<(&str, &str)>) {
    let (mut prose, mut code, mut block) = (Vec::new(), Vec::new(), None);
    for line in text.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(_), Some(_)) => block = None,
            (Some(language), None) => block = Some(language),
            (None, Some(language)) => code.push((language, line)),
            (None, None) => prose.push(line),
        }
    }
    (prose, code)
}

/// The targets of a page's links, except those to the web: a path in the repository, and an anchor.
fn links(page: &Path, text: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for line in lines(text).0 {
        for rest in line.split("](").skip(1) {
            let link = rest.split(')').next().unwrap();
            if link.starts_with("http") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let mut target = page.to_owned();
            if !path.is_empty() {
                target.pop();
                for part in Path::new(path).components() {
                    match part {
                        Component::ParentDir => assert!(target.pop(), "{page:?}: {link}"),
                        part => target.push(part),
                    }
                }
            }
            found.push((target, anchor.to_owned()));
        }
    }
    found
}

/// The anchors of a page's headings, as forges make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = lines(text).0.into_iter().filter_map(|line| line.strip_prefix('#'));
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn every_link_of_the_documents_leads_to_a_file_and_a_heading() {
    let mut count = 0;
    for (page, text) in documents() {
        for (target, anchor) in links(&page, &text) {
            let path = root().join(&target);
            assert!(path.exists(), "{page:?} links to {target:?}, which does not exist");
            if !anchor.is_empty() {
                let text = fs::read_to_string(&path).unwrap();
                assert!(anchors(&text).contains(&anchor), "{page:?}: {target:?} has no #{anchor}");
            }
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn the_debian_package_has_what_its_documents_link_to_at_the_same_places() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    // ["docs/*.md", "usr/share/doc/ffrfs/docs/", "644"],
    let shipped: Vec<(&str, &str)> = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("[\""))
        .filter_map(|line| line.split_once("\", \""))
        .filter_map(|(from, rest)| {
            Some((from, rest.split('"').next()?.strip_prefix("usr/share/doc/ffrfs/")?))
        })
        .collect();
    let is_shipped = |target: &Path| {
        let directory = target.parent().unwrap().to_str().unwrap();
        let name = target.file_name().unwrap().to_str().unwrap();
        shipped.iter().any(|(from, to)| {
            let (from_directory, pattern) = from.rsplit_once('/').unwrap_or(("", from));
            let fits = match pattern.strip_prefix('*') {
                Some(end) => name.ends_with(end),
                None => name == pattern,
            };
            fits && from_directory == directory && to.trim_end_matches('/') == directory
        })
    };
    for (page, text) in documents() {
        assert!(is_shipped(&page), "{page:?} is not in the package");
        for (target, _) in links(&page, &text) {
            assert!(
                is_shipped(&target),
                "{page:?} links to {target:?}, which is not in the package"
            );
        }
    }
}

#[test]
fn the_readme_takes_two_minutes_and_the_index_names_every_document() {
    let pages = documents();
    let text = |name: &str| &pages.iter().find(|(page, _)| page == Path::new(name)).unwrap().1;
    let length = text("README.md").lines().count();
    assert!((150..=200).contains(&length), "{length} lines");
    let index: BTreeSet<PathBuf> = links(Path::new("docs/README.md"), text("docs/README.md"))
        .into_iter()
        .map(|(to, _)| to)
        .collect();
    for (page, _) in pages.iter().filter(|(page, _)| page != Path::new("docs/README.md")) {
        assert!(index.contains(page), "docs/README.md does not name {page:?}");
    }
}

#[test]
fn the_page_on_systemd_says_after_how_many_failures_the_unit_gives_up() {
    let unit = fs::read_to_string(root().join("systemd/ffrfs@.service")).unwrap();
    let most = unit.lines().find_map(|line| line.strip_prefix("StartLimitBurst=")).unwrap();
    let page = fs::read_to_string(root().join("docs/systemd.md")).unwrap();
    assert!(page.contains(&format!("After {most} failures")), "StartLimitBurst={most}");
}

/// The command lines of ffrfs in a text: the sub-command, and the words behind it.
fn command_lines(text: &str) -> Vec<(&str, Vec<&str>)> {
    let (prose, code) = lines(text);
    let spans = prose.iter().flat_map(|line| line.split('`').skip(1).step_by(2));
    // Messages about ffrfs are no command lines.
    let begins = |span: &&str| span.trim_start_matches("sudo ").starts_with("ffrfs ");
    let spans = spans.filter(begins);
    let code = code.iter().filter(|(language, _)| *language != "fstab").map(|(_, line)| *line);
    let indented = prose.iter().filter(|line| line.starts_with("    ")).copied();
    let mut found = Vec::new();
    let is_command = |line: &&str| !line.trim_start().starts_with('#');
    for line in code.chain(spans).chain(indented).filter(is_command) {
        let line = line.split(" # ").next().unwrap_or_default();
        for part in line.split([';', '|', '&', '(']) {
            let mut words = part.split_whitespace().skip_while(|word| *word != "ffrfs").skip(1);
            let is_command = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
            if let Some(command) = words.next().filter(is_command).filter(|word| *word != "help") {
                found.push((command, words.collect()));
            }
        }
    }
    found
}

#[test]
fn every_command_and_option_that_a_document_shows_exists() {
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut count = 0;
    for (page, text) in documents() {
        for (command, words) in command_lines(&text) {
            let help = helps.entry(command.to_owned()).or_insert_with(|| {
                let help = ffrfs(&[command, "--help"]);
                assert_eq!(help.code, 0, "{page:?}: ffrfs {command} {words:?}: {}", help.stderr);
                help.text()
            });
            let options = words.iter().filter_map(|word| word.strip_prefix("--"));
            for option in options.filter(|option| !option.is_empty()) {
                let name = option.split(['=', ',', '.', ':', '[', ']']).next().unwrap();
                let is_there = help
                    .split_whitespace()
                    .any(|word| word.trim_end_matches(',') == format!("--{name}"));
                assert!(is_there, "{page:?}: ffrfs {command} has no --{name}");
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn every_field_of_the_control_files_is_documented() {
    let (_, formats) =
        documents().into_iter().find(|(page, _)| page.ends_with("formats.md")).unwrap();
    let (_, documented) = formats.split_once("## The control directory").unwrap();
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("basic.ffr"), &[]);
        for name in ["info.json", "stats.json"] {
            let text = mount.read(format!(".ffrfs/{name}")).unwrap();
            for field in fields(&serde_json::from_slice(&text).unwrap()) {
                assert!(documented.contains(&format!("`{field}")), "{name}: {field}");
            }
        }
    });
}

/// The names of all fields, but for the kinds of requests.
fn fields(value: &Value) -> Vec<String> {
    const BY_KIND: [&str; 3] = ["requests", "latency_us", "stage_us"];
    match value {
        Value::Object(object) => object
            .iter()
            .flat_map(|(name, value)| {
                let inner = if BY_KIND.contains(&&name[..]) { Vec::new() } else { fields(value) };
                [name.clone()].into_iter().chain(inner)
            })
            .collect(),
        Value::Array(list) => list.iter().flat_map(fields).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn every_line_of_fstab_in_the_documents_mounts() {
    let pages = documents();
    let code = pages.iter().flat_map(|(_, text)| lines(text).1);
    let manual = fs::read_to_string(root().join("docs/man/mount.ffrfs.roff")).unwrap();
    let manual = manual.replace("\\e", "\\").replace("\\-", "-");
    let is_entry = |line: &&str| line.split_whitespace().nth(2) == Some("ffrfs");
    let mut fstab: Vec<&str> = manual.lines().filter(|line| line.starts_with('/')).collect();
    fstab.retain(|line| is_entry(line));
    assert!(fstab.len() > 1, "{fstab:?}");
    for (language, line) in code {
        assert!(
            language == "fstab" || !is_entry(&line) || !line.starts_with(['/', 's']),
            "no ```fstab: {line}"
        );
        if language == "fstab" && !line.starts_with('#') {
            fstab.push(line);
        }
    }
    assert!(fstab.len() > 7, "{fstab:?}");
    let script = r#"
        mkdir -p data/shards raid etc/ffrfs
        echo secret >"etc/ffrfs/my photos"
        for name in train numbers; do cp data.ffr data/$name.ffr; done
        for name in "data/my photos.zip" data/mine.tar data/a.tar raid/b.tar data/shards/one.tar; do
            ./ffrfs convert data.ffr "$name" || exit 1
        done
        # In the directory of the test, with the transport of the test.
        sed "s#/\(data\|raid\|mnt\|etc\)/#$1/\1/#g; s#for=/data#for=$1/data#" <<'END' |
FSTAB
END
            awk -v options="$options" '{ $4 = $4 "," options; print }' >fstab
        while read -r source point type options rest; do
            mkdir -p "$point"
            # There is no store: its options are checked.
            case $source in s3:*) mount -f "$point" </dev/null || exit 6; continue ;; esac
            mount "$point" </dev/null || { echo "$source $options" >&2; exit 2; }
            is_mounted "$point" || exit 3
            [ -n "$(ls "$point")" ] || exit 4
            umount "$point" || exit 5
        done <fstab
    "#;
    with_mount8(&script.replace("FSTAB", &fstab.join("\n")));
}
