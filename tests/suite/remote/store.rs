//! The store of the tests behaves as it should.

use crate::common::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// An answer as it came over the wire: the head, and the bytes of the body that came.
struct Answer {
    head: String,
    body: Vec<u8>,
    /// The result of reading the answer.
    end: std::io::Result<usize>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends one request on a connection of its own.
fn ask(store: &Store, line: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(store.endpoint().strip_prefix("http://").unwrap()).unwrap();
    let headers = headers.replace('\n', "\r\n");
    let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n\r\n");
    let _ = stream.write_all(request.as_bytes()); // a store that is down may have closed already
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes);
    let head =
        bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let body = bytes.split_off(head);
    Answer { head: String::from_utf8(bytes).unwrap(), body, end }
}

fn with_object(length: usize) -> (Store, Vec<u8>) {
    let (store, bytes) = (Store::new(), noise(1, length));
    store.put("bucket/a b", bytes.clone());
    (store, bytes)
}

#[test]
fn the_store_gives_an_object_and_its_ranges() {
    let (store, bytes) = with_object(100_000);
    let whole = ask(&store, "GET /bucket/a%20b", "");
    assert!(whole.status() == 200 && whole.body == bytes, "{}", whole.head);
    let etag = whole.header("etag").unwrap();
    for (range, wanted) in [("10-19", 10..20), ("99990-", 99_990..100_000), ("-5", 99_995..100_000)]
    {
        let part =
            ask(&store, "GET /bucket/a%20b", &format!("Range: bytes={range}\nIf-Match: {etag}"));
        assert_eq!((part.status(), &part.body[..]), (206, &bytes[wanted.clone()]));
        let said = format!("bytes {}-{}/100000", wanted.start, wanted.end - 1);
        assert_eq!(part.header("content-range"), Some(&*said));
    }
    let head = ask(&store, "HEAD /bucket/a%20b", "");
    assert_eq!((head.header("content-length"), head.body.len()), (Some("100000"), 0));
    assert_eq!(ask(&store, "GET /bucket/a%20b", "Range: bytes=100000-").status(), 416);
    let none = ask(&store, "GET /bucket/none", "");
    assert!(
        none.status() == 404 && none.text().contains("<Code>NoSuchKey</Code>"),
        "{}",
        none.text()
    );
    assert!(none.text().contains(none.header("x-amz-request-id").unwrap()), "{}", none.text());
    let summary = store.summary();
    assert_eq!((summary.gets, summary.heads, summary.sent_bytes), (6, 1, 100_025));
    let requests = store.requests();
    assert_eq!((requests[1].range.clone(), requests[1].sent_bytes), (Some(10..20), 10));
}

#[test]
fn the_store_refuses_an_old_etag_and_keeps_old_versions() {
    let (store, bytes) = with_object(10);
    let old = ask(&store, "HEAD /bucket/a%20b", "");
    store.put("bucket/a b", &b"new"[..]);
    let if_match = format!("If-Match: {}", old.header("etag").unwrap());
    assert_eq!(ask(&store, "GET /bucket/a%20b", &if_match).status(), 412);
    store.keep_versions();
    store.put("bucket/a b", bytes.clone());
    let version = ask(&store, "HEAD /bucket/a%20b", "");
    let version = version.header("x-amz-version-id").unwrap().to_owned();
    store.put("bucket/a b", &b"newer"[..]);
    assert_eq!(ask(&store, &format!("GET /bucket/a%20b?versionId={version}"), "").body, bytes);
    assert_eq!(ask(&store, "GET /bucket/a%20b", "").body, b"newer");
}

#[test]
fn the_store_lists_in_pages_and_folders() {
    let store = Store::new();
    let keys: Vec<_> = (0..25).map(|i| format!("d&{}/{i:02}.tar", i / 10)).collect();
    for key in &keys {
        store.put(&format!("bucket/{key}"), &b"x"[..]);
    }
    store.page_by(4);
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let page = ask(&store, &format!("GET /bucket?list-type=2&prefix=d%26&{token}"), "").text();
        let names = page.split("<Key>").skip(1).map(|rest| rest.split('<').next().unwrap());
        found.extend(names.map(|name| name.replace("&amp;", "&")));
        match page.split_once("<NextContinuationToken>") {
            Some((_, rest)) => {
                token = format!(
                    "continuation-token={}",
                    rest.split('<').next().unwrap().replace('%', "%25")
                );
            }
            None => break,
        }
    }
    assert_eq!(found, keys);
    assert_eq!(store.summary().lists, 7);
    let folders = ask(&store, "GET /bucket/?list-type=2&prefix=&delimiter=/", "").text();
    assert_eq!(folders.matches("<CommonPrefixes>").count(), 3, "{folders}");
}

#[test]
fn the_store_serves_files_below_a_directory() {
    let directory = temp_dir();
    std::fs::create_dir_all(directory.path().join("bucket/d")).unwrap();
    std::fs::write(directory.path().join("bucket/d/x"), noise(2, 5000)).unwrap();
    let store = Store::start(0, 1, Some(directory.path()));
    assert!(ask(&store, "GET /bucket/d/x", "").body == noise(2, 5000));
    assert_eq!(ask(&store, "GET /bucket/../bucket/d/x", "").status(), 404);
    let listing = ask(&store, "GET /bucket?list-type=2&prefix=d/", "").text();
    assert!(listing.contains("<Key>d/x</Key>"), "{listing}");
}

#[test]
fn the_store_suffers_what_its_rules_say() {
    let (store, bytes) = with_object(1_000_000);
    let get = |headers: &str| ask(&store, "GET /bucket/a%20b", headers);
    let suffer = |fault: Fault| {
        store.heal();
        store.rule(Rule::gets(fault));
    };
    suffer(Fault::Status { status: 503, retry_after: Some(7) });
    let busy = get("");
    assert_eq!((busy.status(), busy.header("retry-after")), (503, Some("7")));
    suffer(Fault::Reset { after: 300_000 });
    let reset = get("");
    assert!(reset.end.is_err() && reset.body[..] == bytes[..reset.body.len()], "{:?}", reset.end);
    suffer(Fault::EndEarly { after: 300_000 });
    let early = get("");
    assert!(early.end.is_ok() && early.body == bytes[..300_000], "{}", early.body.len());
    suffer(Fault::IgnoreRange);
    assert_eq!(get("Range: bytes=0-9").status(), 200);
    suffer(Fault::ShortRange { missing: 3 });
    assert_eq!(get("Range: bytes=0-9").header("content-range"), Some("bytes 0-6/1000000"));
    suffer(Fault::WrongRange);
    assert_eq!(get("Range: bytes=0-9").header("content-range"), Some("bytes 1-10/1000000"));
    suffer(Fault::WrongTotal);
    assert_eq!(get("Range: bytes=0-9").header("content-range"), Some("bytes 0-9/1000001"));
    suffer(Fault::NoEtag);
    assert_eq!(get("").header("etag"), None);
    store.heal();
    store.require_token(Some("t2"));
    assert_eq!(get("Authorization: Bearer t1").status(), 403);
    assert_eq!(get("Authorization: Bearer t2").status(), 200);
}

#[test]
fn the_store_takes_its_time_and_hangs_until_it_is_healed() {
    let (store, bytes) = with_object(200_000);
    store.rule(Rule::gets(Fault::Latency { median_ms: 20.0, sigma: 0.0 }));
    store.rule(Rule::gets(Fault::Bandwidth { bytes: 2_000_000 }));
    let start = Instant::now();
    assert!(ask(&store, "GET /bucket/a%20b", "").body == bytes);
    assert!(start.elapsed() >= Duration::from_millis(119), "{:?}", start.elapsed());
    store.heal();
    for fault in [Fault::Hang, Fault::HangAfter { after: 1000 }] {
        store.rule(Rule::gets(fault));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| ask(&store, "GET /bucket/a%20b", ""));
            wait_until("it has come", Duration::from_secs(30), || store.in_flight() == 1);
            std::thread::sleep(Duration::from_millis(50));
            assert!(!reader.is_finished());
            store.heal();
            assert!(reader.join().unwrap().body == bytes);
        });
    }
    store.set_down(true);
    assert_eq!(ask(&store, "GET /bucket/a%20b", "").head, "");
}

#[test]
fn a_share_of_the_requests_suffers_the_same_ones_each_time() {
    let statuses = || {
        let (store, _) = with_object(1);
        store.rule(
            Rule::gets(Fault::Status { status: 500, retry_after: None }).percent(30.0).seed(4),
        );
        let get = |_| ask(&store, "GET /bucket/a%20b", "").status();
        (0..100).map(get).collect::<Vec<_>>()
    };
    let once = statuses();
    assert_eq!(once, statuses());
    let bad = once.iter().filter(|status| **status == 500).count();
    assert!((20..40).contains(&bad), "{bad}");
}
