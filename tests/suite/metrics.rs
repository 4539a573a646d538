//! `metrics=`: scraped as Prometheus does, by a parser that is not ours.

use crate::common::{
    FFRFS, Mount, Need, Outcome, Transport, container_in, fixture, for_each_transport, have,
    is_mount_point, noise, offsets, python, run, temp_dir, unmount_soon, up_to_five_times,
    wait_for_end, wait_until,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Scrapes (an address or a socket's path), parses, checks the rules that every metric keeps, and prints the values.
const SCRAPE: &str = r#"
import http.client, json, socket, sys
from prometheus_client.parser import text_string_to_metric_families
where = sys.argv[1]
def ask():
    if where.startswith('/'):
        connection = http.client.HTTPConnection('localhost')
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(where)
    else:
        connection = http.client.HTTPConnection(where)
    connection.request('GET', '/metrics')
    return connection.getresponse()
answer = None
# A connection is closed if either process gets no CPU for 5 s.
for turn in range(5):
    try:
        answer = ask()
        break
    except (BrokenPipeError, ConnectionResetError):
        pass
assert answer.status == 200, answer.status
assert answer.headers['Content-Type'].startswith('text/plain; version=0.0.4')
values, seen = {}, set()
for family in text_string_to_metric_families(answer.read().decode()):
    assert family.name not in seen, family.name
    seen.add(family.name)
    assert family.documentation and family.type in ('counter', 'gauge', 'histogram'), family
    assert family.samples, family
    buckets = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        assert labels.pop('mount') and labels.pop('source'), sample
        if family.type == 'counter':
            assert sample.name.endswith('_total') and sample.value >= 0, sample
        if sample.name.endswith('_bucket'):
            le = float(labels.pop('le'))
            row = buckets.setdefault(str(labels), [])
            assert not row or (row[-1][0] < le and row[-1][1] <= sample.value), (row, sample)
            row.append((le, sample.value))
        key = sample.name + (json.dumps(labels, sort_keys=True) if labels else '')
        values[key] = sample.value
        if sample.name.endswith('_count'):
            assert buckets[str(labels)][-1] == (float('inf'), sample.value), sample
    if family.type == 'histogram':
        assert buckets, family
values['labels'] = {k: v for k, v in sample.labels.items() if k in ('mount', 'source')}
print(json.dumps(values))
"#;

fn have_parser() -> bool {
    have(Need::Python("prometheus_client"))
}

#[track_caller]
fn scrape(place: &str) -> Value {
    let outcome = python(SCRAPE, &[place]).ok();
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

/// Sends one request as it stands, and returns the answer. Asks again if there is no answer: a connection is closed if
/// either process gets no CPU for too long.
pub(crate) fn ask(socket: &Path, request: &[u8]) -> String {
    let mut answer = Vec::new();
    wait_until("it answers", Duration::from_secs(60), || {
        let mut stream = UnixStream::connect(socket).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // A refused client may not be able to send the whole request.
        let _ = stream.write_all(request);
        let _ = stream.read_to_end(&mut answer);
        !answer.is_empty()
    });
    String::from_utf8_lossy(&answer).into_owned()
}

/// A port that was free a moment ago, below those that the kernel gives to outgoing connections.
fn free_port(host: &str) -> Option<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let first: u64 = range.split_whitespace().next().unwrap().parse().unwrap();
    // Where the kernel gives nearly all ports, any port will do.
    let end = if first > 21_000 { first.min(32_000) } else { 32_000 };
    let (start, count) = (RandomState::new().hash_one(host), end - 20_000);
    let mut ports = (0..count).map(|n| (20_000 + start.wrapping_add(n) % count) as u16);
    ports.find(|port| TcpListener::bind((host, *port)).is_ok())
}

/// A mount with a socket `metrics` beside it.
fn mount_with_socket(transport: Transport) -> (Mount, tempfile::TempDir) {
    let directory = temp_dir();
    let option = format!("metrics=unix:{}", directory.path().join("metrics").display());
    (Mount::new(transport, fixture("packed_folder.ffr"), &[&option]), directory)
}

#[test]
fn prometheus_reads_what_stats_json_says() {
    if !have_parser() {
        return;
    }
    for_each_transport(|transport| {
        let (mount, directory) = mount_with_socket(transport);
        let files = ["train/cat/001.jpg", "train/cat/001.jpg"];
        let bytes: usize = files.iter().map(|name| mount.read(name).unwrap().len()).sum();
        assert!(bytes > 0);
        let socket = directory.path().join("metrics");
        let (mut stats, mut values) = (Value::Null, Value::Null);
        // A read may be counted just after it is answered.
        wait_until("all is counted", Duration::from_secs(30), || {
            stats = mount.stats();
            values = scrape(socket.to_str().unwrap());
            let now = mount.stats();
            let is_same = |name: &&str| !stats[name].is_null() && stats[name] == now[name];
            ["requests", "latency_us", "bytes_served", "bytes_fetched"].iter().all(is_same)
        });
        assert_eq!(values["labels"]["mount"].as_str(), mount.point().to_str());
        assert!(values["labels"]["source"].as_str().unwrap().ends_with("packed_folder.ffr"));
        for operation in ["read", "lookup"] {
            let requests = stats["requests"][operation].as_f64();
            assert!(requests.is_some(), "{operation}");
            let key = format!("ffrfs_requests_total{{\"operation\": \"{operation}\"}}");
            assert_eq!(values[&key].as_f64(), requests, "{operation}");
            let key =
                format!("ffrfs_request_duration_seconds_count{{\"operation\": \"{operation}\"}}");
            assert_eq!(values[&key].as_f64(), requests, "{operation}");
            let key =
                format!("ffrfs_request_duration_seconds_sum{{\"operation\": \"{operation}\"}}");
            let sum = stats["latency_us"][operation]["sum"].as_f64().unwrap() / 1e6;
            assert!((values[&key].as_f64().unwrap() - sum).abs() < 1e-9, "{operation}");
        }
        assert_eq!(values["ffrfs_served_bytes_total"], stats["bytes_served"].as_f64().unwrap());
        assert_eq!(values["ffrfs_fetched_bytes_total"], stats["bytes_fetched"].as_f64().unwrap());
        assert_eq!(values["ffrfs_bad_samples"], 0.0);
        assert!(values["process_resident_memory_bytes"].as_f64().unwrap() > 1e6);
    });
}

#[test]
fn a_bad_sample_is_counted() {
    if !have_parser() {
        return;
    }
    for_each_transport(|transport| {
        let samples = [noise(1, 5000), noise(2, 5000)];
        let socket = temp_dir();
        let place = socket.path().join("m \"x\"\\");
        let option = format!("metrics=unix:{}", place.display());
        let mount = Mount::with_samples(transport, &samples, &["fsname=a\"b\\c", &option]);
        mount.flip_byte(offsets(&samples)[1] + 7);
        mount.read("000001").unwrap_err();
        let values = scrape(place.to_str().unwrap());
        assert_eq!(values["ffrfs_bad_samples"], 1.0);
        assert_eq!(values["ffrfs_checksum_failures_total"], 1.0);
        assert_eq!(values["labels"]["source"], "a\"b\\c");
    });
}

#[test]
fn metrics_are_on_a_port_in_the_foreground_too() {
    if !have_parser() || !have(Need::Fuse) {
        return;
    }
    for host in ["127.0.0.1", "::1"] {
        let Some((address, values)) = up_to_five_times(|| scraped_on_a_port(host)) else {
            continue;
        };
        let values: Value = serde_json::from_slice(&values.ok().stdout).unwrap();
        assert_eq!(values["ffrfs_samples"], 1.0, "{address}");
    }
}

/// Mounts in the foreground with metrics on a port of this host, and scrapes them; `None` if there is no such host, an error
/// if another process has taken the port meanwhile.
fn scraped_on_a_port(host: &str) -> Result<Option<(String, Outcome)>, String> {
    let Some(port) = free_port(host) else { return Ok(None) };
    let address =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let directory = temp_dir();
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let container = container_in(&directory, &[noise(1, 100)]);
    let mut child = Command::new(FFRFS)
        .args(["mount", "-f", "-o"])
        .arg(format!("metrics={address}"))
        .args([&container, &point])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it is mounted", Duration::from_secs(20), || {
        is_mount_point(&point) || child.try_wait().unwrap().is_some()
    });
    let values = is_mount_point(&point).then(|| python(SCRAPE, &[&address]));
    if values.is_some() {
        unmount_soon(&point);
    }
    let (code, said) = wait_for_end(&mut child, Duration::from_secs(60));
    match values {
        Some(values) => {
            assert_eq!(code, 0, "{said}");
            Ok(Some((address, values)))
        }
        None => {
            assert!(said.contains("in use"), "{said}");
            Err(said)
        }
    }
}

/// Runs `ffrfs mount`, which must fail.
fn refused(address: &str) -> Outcome {
    let directory = temp_dir();
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let container = container_in(&directory, &[noise(1, 100)]);
    let mount = ["mount", "-o", &format!("metrics={address}")].map(str::to_owned);
    let outcome = run(Command::new(FFRFS).args(mount).args([&container, &point]));
    assert!(!is_mount_point(&point), "{address}");
    outcome
}

#[test]
fn an_address_that_cannot_be_had_fails_the_mount() {
    if !have(Need::Fuse) {
        return;
    }
    let directory = temp_dir();
    let file = directory.path().join("file");
    fs::write(&file, "mine").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = directory.path().join("none/metrics");
    for (address, word) in [
        (format!("unix:{}", file.display()), "not a socket"),
        (format!("unix:{}", nowhere.display()), "No such file"),
        (taken.local_addr().unwrap().to_string(), "in use"),
        ("192.0.2.1:9100".to_owned(), "192.0.2.1:9100"),
    ] {
        let outcome = refused(&address);
        assert_eq!(outcome.code, 5, "{address}: {}", outcome.stderr);
        for word in [word, "metrics="] {
            assert!(outcome.stderr.contains(word), "{word:?} is not in: {}", outcome.stderr);
        }
    }
    assert_eq!(refused("9100").code, 1);
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}

#[test]
fn the_socket_has_the_mode_of_the_umask_and_goes_with_the_mount() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let socket = directory.path().join("metrics");
        let option = format!("metrics=unix:{}", socket.display());
        // A killed daemon leaves its socket behind.
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let source = fixture("packed_folder.ffr");
        let mount = Mount::started(transport, &[&source], &[&option], |command| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "umask 0117; exec \"$@\"", "sh"]);
            shell.arg(command.get_program()).args(command.get_args());
            shell
        });
        let file = fs::metadata(&socket).unwrap();
        assert!(file.file_type().is_socket());
        assert_eq!(file.permissions().mode() & 0o777, 0o660);
        assert!(ask(&socket, b"GET /metrics HTTP/1.1\r\n\r\n").contains("ffrfs_info"));
        // A second mount does not take the socket of the first.
        let second = refused(&format!("unix:{}", socket.display()));
        assert!(second.stderr.contains("listens"), "{}", second.stderr);
        assert!(socket.exists());
        mount.unmount();
        assert!(!socket.exists());
    });
}

#[test]
fn odd_requests_are_answered_or_ended_and_scraping_goes_on() {
    for_each_transport(|transport| {
        let (mount, directory) = mount_with_socket(transport);
        let socket = directory.path().join("metrics");
        let status =
            |request: &[u8]| ask(&socket, request).lines().next().unwrap_or_default().to_owned();
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
        assert_eq!(status(b"GET /x HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(status(b"\0\0\0\r\n\r\n"), "HTTP/1.1 400 Bad Request");
        let long = [&b"GET /metrics HTTP/1.1\r\nx: "[..], &[b'a'; 9000]].concat();
        assert_eq!(status(&long), "HTTP/1.1 431 Request Header Fields Too Large");
        let head = ask(&socket, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: "), "{head}");
        // Silent clients take all connections that there are, and are sent away in time.
        let mut silent = Vec::new();
        wait_until("it is busy", Duration::from_secs(20), || {
            silent.push(UnixStream::connect(&socket).unwrap());
            status(b"GET /metrics HTTP/1.1\r\n\r\n").contains("503")
        });
        assert!(silent.len() > 4, "{}", silent.len());
        wait_until("it answers again", Duration::from_secs(20), || {
            status(b"GET /metrics HTTP/1.1\r\n\r\n").contains("200")
        });
        drop(silent);
        assert!(mount.read("train/cat/001.jpg").is_ok());
    });
}

/// Words of PromQL that look like names of metrics of ours.
fn metrics_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("ffrfs_") || word.starts_with("process_"))
}

#[test]
fn what_dashboard_and_manual_name_is_there() {
    for_each_transport(|transport| {
        let (mount, directory) = mount_with_socket(transport);
        mount.read("train/cat/001.jpg").unwrap();
        let page = ask(&directory.path().join("metrics"), b"GET /metrics HTTP/1.1\r\n\r\n");
        let names: BTreeSet<_> = page
            .lines()
            .filter(|line| line.starts_with("ffrfs_") || line.starts_with("process_"))
            .filter_map(|line| line.split('{').next())
            .collect();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(root.join("docs/grafana-dashboard.json")).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        assert!(panels.len() > 10 && dashboard["schemaVersion"].as_u64() > Some(30));
        let mut ids = BTreeSet::new();
        for panel in panels {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
            assert!(panel["gridPos"]["w"].as_u64().is_some_and(|w| (1..=24).contains(&w)));
            assert!(panel["type"].is_string() && panel["title"].is_string());
            let targets = panel["targets"].as_array().unwrap();
            let mut references = BTreeSet::new();
            for target in targets {
                assert!(references.insert(target["refId"].as_str().unwrap()));
                let expression = target["expr"].as_str().unwrap();
                assert!(metrics_in(expression).count() > 0, "{expression}");
                for name in metrics_in(expression) {
                    assert!(names.contains(name), "{name} of {:?} is not there", panel["title"]);
                }
            }
            assert!(!targets.is_empty());
        }
        let manual = fs::read_to_string(root.join("docs/monitoring.md")).unwrap();
        for name in metrics_in(&manual).filter(|name| !name.ends_with('_')) {
            let is_there =
                names.contains(name) || names.contains(format!("{name}_bucket").as_str());
            assert!(is_there, "{name} of the manual is not there");
        }
        // And the other way round: the manual leaves no metric out.
        for name in &names {
            let name = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or(name);
            assert!(metrics_in(&manual).any(|named| named == name), "{name} is not in the manual");
        }
    });
}
