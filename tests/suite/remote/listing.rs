//! Prefixes, patterns and lists of URLs.

use super::*;

/// Puts `count` shards with differing samples below `shards/`, as a local directory has them.
fn shards(remote: &Remote, directory: &TempDir, count: usize) {
    fs::create_dir(directory.path().join("shards")).unwrap();
    for shard in 0..count {
        let samples: Vec<_> = (0..5).map(|i| noise((shard * 5 + i) as u64, 300 * i + 1)).collect();
        let path = directory.path().join(format!("shards/train-{shard:03}.ffr"));
        write_container(&path, &samples);
        remote.store.put_file(&format!("{BUCKET}/shards/train-{shard:03}.ffr"), &path);
    }
    remote.store.put("bucket/shards/README", &b"no container"[..]);
    remote.store.put("bucket/shards-other/train-000.ffr", &b"of somebody else"[..]);
}

fn files(mount: &Mount) -> Vec<(PathBuf, Loose)> {
    let all = loose(mount.point()).into_iter();
    all.filter(|(path, _)| !path.starts_with(".ffrfs"))
        .map(|(path, what)| (path, what.plain()))
        .collect()
}

#[test]
fn prefixes_patterns_and_lists_show_what_a_directory_shows() {
    for_each_transport(|transport| {
        let (remote, directory) = (Remote::new(), temp_dir());
        shards(&remote, &directory, 25);
        remote.store.page_by(4);
        let local = Mount::new(transport, directory.path().join("shards"), &[]);
        let wanted = files(&local);
        assert!(wanted.len() > 100);
        for url in
            ["shards/", "shards/train-*.ffr", "shards/train-0??.ffr", "shards/train-{000..024}.ffr"]
        {
            remote.store.forget_requests();
            let mount = remote.mount(transport, &[&remote.s3(url)], &[]);
            assert!(files(&mount) == wanted, "{url}");
            mount.unmount();
        }
    });
}

#[test]
fn shards_are_listed_and_not_looked_up_one_by_one() {
    for_each_transport(|transport| {
        let (remote, directory) = (Remote::new(), temp_dir());
        shards(&remote, &directory, 60);
        remote.store.page_by(10);
        let mount = remote.mount(transport, &[&remote.s3("shards/")], &[]);
        let summary = remote.store.summary();
        assert_eq!(summary.heads, 0, "{:#?}", remote.store.requests());
        assert!((7..=8).contains(&summary.lists), "{} pages", summary.lists);
        assert!(summary.gets <= 2 * 60, "{} GETs", summary.gets);
        let counted = mount.stats()["remote"]["lists"].as_u64().unwrap();
        assert!(counted >= 7, "{counted} of them are counted");
        mount.unmount();
    });
}

#[test]
fn a_url_without_an_object_is_refused_with_what_the_store_says() {
    let remote = Remote::with_samples(&samples(3, 10));
    let endpoint = remote.store.endpoint();
    let cache = remote.cache();
    let info = |url: &str| {
        let flags =
            ["--endpoint", &endpoint, "--anonymous", "--region", "us-east-1", "--cache-dir"];
        let args = [&["info", url], &flags[..], &[cache.to_str().unwrap()]].concat();
        ffrfs(&args)
    };
    for url in ["s3://bucket/none.ffr", "s3://bucket/none/", "s3://bucket/none-*.tar"] {
        let outcome = info(url);
        assert_ne!(outcome.code, 0, "{url}");
        assert!(outcome.stderr.contains("s3://bucket/none"), "{}", outcome.stderr);
    }
    remote.store.rule(Rule::all(Fault::Status { status: 403, retry_after: None }));
    let outcome = info("s3://bucket/data.ffr");
    assert_ne!(outcome.code, 0);
    let said = outcome.stderr;
    assert!(said.contains("s3://bucket/data.ffr") && said.contains("403"), "{said}");
}
