//! Clients against servers that lie, fail and redirect.

use super::test_server::{Server, TAG, answer, location, run};
use super::{Environment, Http, HuggingFace, S3};
use crate::store::remote::ErrorKind::{
    Broken, Changed, Denied, Malformed, NotFound, Refused, Throttled, Unavailable,
};
use crate::store::remote::{Client, ErrorKind, Location, Object, RemoteOptions, StoreError};
use futures_util::TryStreamExt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Reads a range to its end.
fn read(client: &dyn Client, object: &Object, range: Range<u64>) -> Result<String, StoreError> {
    run(async {
        let pieces: Vec<_> = client.get(object, range).await?.try_collect().await?;
        Ok(String::from_utf8(pieces.concat()).expect("text"))
    })
}

fn http(url: &str, options: &RemoteOptions) -> (Http, Location) {
    let location = location(url);
    let client = Http::new(&location, options, &Environment::of(&[])).expect("a client");
    (client, location)
}

const TAKEN: &str = "Content-Range: bytes 2-5/10";

/// The result of reading bytes 2 to 5 of 10 with the ETag "a", when the server responds with `reply`.
fn outcome(reply: String) -> Result<String, StoreError> {
    let server = Server::new(move |_| reply.clone());
    let (client, location) = http(&format!("{}/x", server.url), &RemoteOptions::default());
    let etag = Some("\"a\"".to_owned());
    let object = Object { location, length_bytes: 10, modified: None, version_id: None, etag };
    let outcome = read(&client, &object, 2..6);
    let head = server.heads().concat();
    assert!(
        head.contains("range: bytes=2-5\r\n") && head.contains("if-match: \"a\"\r\n"),
        "{head}"
    );
    outcome
}

#[test]
fn a_range_of_the_right_version_is_data() {
    let whole = outcome(answer("206", &[TAG, TAKEN, "Content-Length: 4"], "2345"));
    assert_eq!(whole.expect("data"), "2345");
    assert_eq!(outcome(answer("206", &[TAG, TAKEN], "2345")).expect("data"), "2345");
}

#[test]
fn an_answer_to_another_question_is_no_data() {
    for (kind, status, headers, body) in [
        (Malformed, "200", vec![TAG, "Content-Length: 10"], "0123456789"),
        (Malformed, "200", vec![TAG, "Content-Length: 4"], "2345"),
        (Malformed, "206", vec![TAG, "Content-Length: 4"], "2345"),
        (Malformed, "206", vec![TAG, "Content-Range: bytes 1-4/10"], "1234"),
        (Malformed, "206", vec![TAG, "Content-Range: bytes 2-4/10"], "234"),
        (Malformed, "206", vec![TAG, "Content-Range: bytes 2-5/*"], "2345"),
        (Malformed, "206", vec![TAG, "Content-Range: nonsense"], "2345"),
        (Malformed, "206", vec![TAG, TAKEN, "Content-Length: 3"], "234"),
        (Malformed, "206", vec![TAG, TAKEN], "23456"),
        (Changed, "206", vec![TAG, "Content-Range: bytes 2-5/11"], "2345"),
        (Changed, "206", vec!["ETag: \"b\"", TAKEN], "2345"),
        (Changed, "206", vec!["ETag: W/\"a\"", TAKEN], "2345"),
        (Changed, "206", vec![TAKEN], "2345"),
        (Broken, "206", vec![TAG, TAKEN], "23"),
        (Broken, "206", vec![TAG, TAKEN, "Content-Length: 4"], "23"),
    ] {
        let error = outcome(answer(status, &headers, body)).expect_err("no data");
        assert_eq!(error.kind, kind, "{headers:?}: {error}");
    }
    assert_eq!(outcome(String::new()).expect_err("no data").kind, Broken);
}

#[test]
fn a_refusal_is_of_the_class_of_its_status() {
    for (status, kind) in [
        ("400", Refused),
        ("401", Denied),
        ("403", Denied),
        ("404", NotFound),
        ("410", NotFound),
        ("412", Changed),
        ("416", Changed),
        ("429", Throttled),
        ("500", Unavailable),
        ("502", Unavailable),
        ("503", Throttled),
        ("504", Unavailable),
    ] {
        let headers = ["Retry-After: 7", "x-request-id: r1"];
        let error = outcome(answer(status, &headers, "why not")).expect_err("a refusal");
        assert_eq!((error.kind, error.status.map(|s| s.to_string())), (kind, Some(status.into())));
        assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
        assert!(error.to_string().ends_with("why not (request r1)"), "{error}");
    }
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    let (client, location) = http("http://127.0.0.1:1/x?sig=hush", &RemoteOptions::default());
    let error = run(client.head(&location)).expect_err("no server");
    assert_eq!(error.kind, Unavailable);
    assert!(!format!("{error:?}").contains("hush"), "{error:?}");
}

#[test]
fn an_object_without_a_strong_etag_is_pinned_by_date_and_length() {
    let date = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
    for (then, kind) in [
        (vec![date, "Content-Range: bytes 0-3/4"], None),
        (
            vec!["Last-Modified: Sun, 06 Nov 1994 08:49:38 GMT", "Content-Range: bytes 0-3/4"],
            Some(Changed),
        ),
        (vec![date, "Content-Range: bytes 0-3/5"], Some(Changed)),
        (vec!["Content-Range: bytes 0-3/4"], Some(Changed)),
    ] {
        let server = Server::new(move |head| match head.contains("bytes=0-0") {
            true => answer("206", &["ETag: W/\"a\"", date, "Content-Range: bytes 0-0/4"], "a"),
            false => answer("206", &then, "abcd"),
        });
        let (client, location) = http(&format!("{}/x", server.url), &RemoteOptions::default());
        let object = run(client.head(&location)).expect("an object");
        assert_eq!((object.length_bytes, &object.etag), (4, &None));
        assert_eq!(read(&client, &object, 0..4).err().map(|e| e.kind), kind);
    }
}

#[test]
fn a_server_without_ranges_or_versions_is_refused_when_it_is_opened() {
    let range = "Content-Range: bytes 0-0/4";
    for (reply, length) in [
        (answer("200", &[TAG, "Content-Length: 4"], "abcd"), None),
        (answer("206", &[range], "a"), None),
        (answer("206", &[TAG, "Content-Range: bytes 0-0/*"], "a"), None),
        (answer("206", &[TAG, range], "a"), Some(4)),
        (answer("200", &[TAG, "Content-Length: 0"], ""), Some(0)),
        (answer("416", &[TAG, "Content-Range: bytes */0"], ""), Some(0)),
    ] {
        let server = Server::new(move |_| reply.clone());
        let (client, location) = http(&format!("{}/x", server.url), &RemoteOptions::default());
        let object = run(client.head(&location));
        let expected = length.ok_or(Malformed);
        assert_eq!(object.map(|o| o.length_bytes).map_err(|e| e.kind), expected);
    }
}

#[test]
fn secrets_of_one_server_do_not_go_to_another_and_an_expired_target_is_asked_for_again() {
    let times = Mutex::new(0);
    let target = Server::new(move |head| {
        let mut times = times.lock().expect("a number");
        *times += 1;
        // The second request finds that its URL has expired.
        match *times == 2 || head.contains("if-none") {
            true => answer("403", &[], "expired"),
            false if head.contains("0-0") => {
                answer("206", &[TAG, "Content-Range: bytes 0-0/4"], "a")
            }
            false => answer("206", &[TAG, "Content-Range: bytes 1-2/4"], "bc"),
        }
    });
    let to = format!("Location: {}/signed?sig=hush", target.url);
    let origin = Server::new(move |_| answer("302", &[&to], ""));
    let header = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(header.path(), "X-Key: secret\nAuthorization: Bearer secret").expect("write");
    let options = RemoteOptions { header: Some(header.path().into()), ..RemoteOptions::default() };
    let (client, location) = http(&format!("{}/x", origin.url), &options);
    let object = run(client.head(&location)).expect("an object");
    for _ in 0..2 {
        assert_eq!(read(&client, &object, 1..3).expect("data"), "bc");
    }
    assert_eq!((origin.heads().len(), target.heads().len()), (2, 4));
    assert!(origin.heads().iter().all(|head| head.contains("x-key: secret")));
    assert!(!target.heads().concat().contains("secret"));
}

#[test]
fn a_target_that_fails_or_hangs_is_forgotten() {
    let cut_off = answer("206", &[TAG, TAKEN, "Content-Length: 4"], "");
    for reply in [Some(answer("503", &[], "")), Some(cut_off), None] {
        // The server goes down once it has answered the first request.
        let down = Server::new(move |head| match (head.contains("bytes=0-0"), &reply) {
            (true, _) => answer("206", &[TAG, "Content-Range: bytes 0-0/10"], "a"),
            (false, Some(reply)) => reply.clone(),
            (false, None) => {
                std::thread::sleep(Duration::from_secs(20));
                String::new()
            }
        });
        let up = Server::new(|_| answer("206", &[TAG, TAKEN], "2345"));
        let targets = [&down, &up].map(|server| format!("Location: {}/y", server.url));
        let times = AtomicUsize::new(0);
        let origin = Server::new(move |_| {
            let time = times.fetch_add(1, Relaxed);
            answer("302", &[&targets[time.min(1)]], "")
        });
        let (client, location) = http(&format!("{}/x", origin.url), &RemoteOptions::default());
        let object = run(client.head(&location)).expect("an object");
        let body = async { client.get(&object, 2..6).await?.try_collect::<Vec<_>>().await };
        let given_up = run(async { tokio::time::timeout(Duration::from_millis(300), body).await });
        assert!(!matches!(given_up, Ok(Ok(_))));
        assert_eq!(read(&client, &object, 2..6).expect("data"), "2345");
        assert_eq!((origin.heads().len(), up.heads().len()), (2, 1));
    }
}

#[test]
fn a_target_that_asks_for_fewer_requests_is_asked_again() {
    let target = Server::new(|head| match head.contains("bytes=0-0") {
        true => answer("206", &[TAG, "Content-Range: bytes 0-0/10"], "a"),
        false => answer("429", &[], ""),
    });
    let to = format!("Location: {}/y", target.url);
    let origin = Server::new(move |_| answer("302", &[&to], ""));
    let (client, location) = http(&format!("{}/x", origin.url), &RemoteOptions::default());
    let object = run(client.head(&location)).expect("an object");
    for _ in 0..2 {
        assert_eq!(read(&client, &object, 2..6).expect_err("a refusal").kind, Throttled);
    }
    assert_eq!((origin.heads().len(), target.heads().len()), (1, 3));
}

const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "s")];

fn s3(server: &Server) -> (S3, Location) {
    let location = location("s3://b/a b");
    (S3::new(&location, &server.options(), &Environment::of(&KEYS)).expect("a client"), location)
}

#[test]
fn a_refusal_of_head_is_told_in_the_words_of_the_store() {
    let xml = "<Error><Code>AccessDenied</Code><Message>Not you.</Message></Error>";
    let server = Server::new(move |head| {
        let body = if head.starts_with("head") { "" } else { xml };
        answer("403", &["x-amz-request-id: R1"], body)
    });
    let (client, location) = s3(&server);
    let error = run(client.head(&location)).expect_err("a refusal");
    let said = "s3://b/a b: status 403: AccessDenied: Not you. (request R1)";
    assert_eq!((error.kind, &*error.to_string()), (Denied, said));
    let head = server.heads().concat();
    assert!(head.contains(" /b/a%20b http") && head.contains("aws4-hmac-sha256"), "{head}");
}

#[test]
fn a_bucket_in_another_region_is_asked_there() {
    let server = Server::new(|head| match head.contains("/us-west-9/s3") {
        true => answer("200", &[TAG, "Content-Length: 4"], ""),
        false => answer("301", &["x-amz-bucket-region: us-west-9"], ""),
    });
    let (client, location) = s3(&server);
    assert_eq!(run(client.head(&location)).expect("an object").length_bytes, 4);
    run(client.head(&location)).expect("an object");
    assert_eq!(server.heads().len(), 3, "the region is remembered");
}

#[test]
fn a_signature_for_another_region_is_made_again_for_the_one_that_the_store_names() {
    let wrong = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>expecting 'us-west-9'</Message>\
        <Region>us-west-9</Region></Error>";
    for is_in_header in [true, false] {
        let server = Server::new(move |head| {
            let header = if is_in_header { vec!["x-amz-bucket-region: us-west-9"] } else { vec![] };
            match (head.contains("/us-west-9/s3"), head.starts_with("head")) {
                (true, true) => answer("200", &[TAG, "Content-Length: 4"], ""),
                (true, false) => answer("206", &[TAG, "Content-Range: bytes 0-0/4"], "a"),
                (false, true) => answer("400", &header, ""),
                (false, false) => answer("400", &header, wrong),
            }
        });
        let (client, location) = s3(&server);
        assert_eq!(run(client.head(&location)).expect("an object").length_bytes, 4);
        let asked = server.heads().len();
        run(client.head(&location)).expect("an object");
        assert_eq!(server.heads().len(), asked + 1, "the region is remembered");
    }
}

#[test]
fn a_version_that_may_not_be_read_by_its_name_is_read_by_its_etag() {
    let server =
        Server::new(|head| match (head.starts_with("head"), head.contains("versionid=v1")) {
            (true, _) => answer("200", &[TAG, "x-amz-version-id: v1", "Content-Length: 10"], ""),
            (_, true) => answer("403", &[], ""),
            _ => answer("206", &[TAG, TAKEN], "2345"),
        });
    let (client, location) = s3(&server);
    let object = run(client.head(&location)).expect("an object");
    assert_eq!(object.version_id.as_deref(), Some("v1"));
    for _ in 0..2 {
        assert_eq!(read(&client, &object, 2..6).expect("data"), "2345");
    }
    let heads = server.heads();
    assert_eq!(heads.len(), 4);
    assert!(heads[2].contains("if-match: \"a\"") && heads[3].contains("if-match: \"a\""));
}

#[test]
fn a_list_goes_on_page_by_page_and_may_not_end_early() {
    let entry = |key: &str| {
        format!("<Contents><Key>{key}</Key><Size>3</Size><ETag>&quot;e&quot;</ETag></Contents>")
    };
    let list = |server: &Server| -> Result<Vec<String>, ErrorKind> {
        let (client, bucket) = s3(server);
        let prefix = bucket.with_key("k");
        let objects: Result<Vec<_>, _> = run(client.list(&prefix).try_concat());
        Ok(objects.map_err(|e| e.kind)?.into_iter().map(|o| o.location.key).collect())
    };
    let (first, second) = (entry("k1"), entry("k&amp;2"));
    let server = Server::new(move |head| match head.contains("continuation-token=t%2f1") {
        true => answer("200", &[], &format!("<L>{second}</L>")),
        false => {
            let more =
                "<IsTruncated>true</IsTruncated><NextContinuationToken>t/1</NextContinuationToken>";
            answer("200", &[], &format!("<L>{more}{first}</L>"))
        }
    });
    assert_eq!(list(&server), Ok(vec!["k1".into(), "k&2".into()]));
    let more = "<IsTruncated>true</IsTruncated>";
    let again = format!("<L>{more}<NextContinuationToken>1</NextContinuationToken></L>");
    for page in [format!("<L>{more}</L>"), again, entry("other"), "<L>".into()] {
        let server = Server::new(move |_| answer("200", &[], &page));
        assert_eq!(list(&server), Err(Malformed));
    }
}

#[test]
fn a_file_of_the_hub_is_pinned_to_its_commit_and_read_from_where_it_lies() {
    let cdn = Server::new(|_| answer("206", &["ETag: \"other\"", TAKEN], "2345"));
    let to = format!("Location: {}/blob", cdn.url);
    let hub = Server::new(move |head| {
        let linked = [&*to, "X-Repo-Commit: c0ffee", "X-Linked-Size: 10", "X-Linked-Etag: \"sha\""];
        match head {
            head if !head.contains("bearer hush") => answer("401", &["x-error-message: Who?"], ""),
            head if head.contains("/api/datasets/o/n/revision/v1") => {
                answer("200", &[], "{\"sha\":\"c0ffee\"}")
            }
            head if head.contains("/tree/c0ffee/d?") => answer(
                "200",
                &[],
                r#"[{"type":"directory","path":"d/e"},{"type":"file","path":"d/x","size":10,"oid":"o"},
                    {"type":"file","path":"d/y","size":1,"oid":"p","lfs":{"size":20,"oid":"q"}}]"#,
            ),
            head if head.contains("/datasets/o/n/resolve/") => answer("302", &linked, ""),
            _ => answer("404", &[], ""),
        }
    });
    let file = location("hf://datasets/o/n@v1/d/x");
    let connect = |token: &str| {
        let environment = Environment::of(&[("HF_TOKEN", token)]);
        HuggingFace::new(&file, &hub.options(), &environment).expect("a client")
    };
    let error = run(connect("wrong").head(&file)).expect_err("a refusal");
    assert!(error.kind == Denied && error.message.starts_with("Who?; "), "{error}");
    let client = connect("hush");
    let object = run(client.head(&file)).expect("an object");
    assert_eq!((object.length_bytes, object.version_id.as_deref()), (10, Some("c0ffee")));
    assert_eq!(object.etag.as_deref(), Some("\"sha\""));
    for _ in 0..2 {
        assert_eq!(read(&client, &object, 2..6).expect("data"), "2345");
    }
    let resolved = hub.heads().iter().filter(|head| head.contains("/resolve/c0ffee/d/x")).count();
    assert_eq!((resolved, cdn.heads().len()), (1, 2));
    assert!(!cdn.heads().concat().contains("hush"));
    let prefix = location("hf://datasets/o/n@v1/d/");
    let list: Vec<_> = run(client.list(&prefix).try_concat()).expect("a list");
    let list: Vec<_> = list.iter().map(|o| (&*o.location.key, o.length_bytes)).collect();
    assert_eq!(list, [("d/x", 10), ("d/y", 20)]);
}

#[test]
fn the_token_of_the_hub_does_not_go_to_another_server_that_a_next_page_is_said_to_be_on() {
    let other = Server::new(|_| answer("200", &[], "[]"));
    let next = format!("Link: <{}/api/datasets/o/n/tree/c0ffee?p=2>; rel=\"next\"", other.url);
    let hub = Server::new(move |head| match head.contains("/revision/") {
        true => answer("200", &[], "{\"sha\":\"c0ffee\"}"),
        false => answer("200", &[&next], "[]"),
    });
    let prefix = location("hf://datasets/o/n/d/");
    let environment = Environment::of(&[("HF_TOKEN", "hush")]);
    let client = HuggingFace::new(&prefix, &hub.options(), &environment).expect("a client");
    let listed: Result<Vec<Object>, _> = run(client.list(&prefix).try_concat());
    assert_eq!(listed.expect_err("a refusal").kind, Malformed);
    assert_eq!(other.heads(), [""; 0]);
}
