//! Credentials from the services that issue them, whose part a server of the tests plays.

use crate::store::remote::clients::test_server::{Server, TAG, answer, location, run};
use crate::store::remote::clients::{Azure, Environment, Gcs, S3};
use crate::store::remote::{Client, ErrorKind, RemoteOptions, StoreError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A response with credentials of AWS: the key `KEY`, valid until `date`.
fn aws_json(key: &str, date: &str) -> String {
    let json = format!(
        r#"{{"AccessKeyId":"{key}","SecretAccessKey":"s","Token":"token-of-{key}","Expiration":"{date}"}}"#
    );
    answer("200", &[], &json)
}

/// The response of the security token service.
fn aws_xml(action: &str, key: &str, date: &str) -> String {
    let xml = format!(
        "<{action}Response><{action}Result><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s\
         </SecretAccessKey><SessionToken>token-of-{key}</SessionToken><Expiration>{date}</Expiration></Credentials>\
         </{action}Result></{action}Response>"
    );
    answer("200", &[], &xml)
}

const LATER: &str = "2999-01-01T00:00:00Z";
const EXPIRED: &str = "2001-01-01T00:00:00Z";

fn object() -> String {
    answer("200", &[TAG, "Content-Length: 4"], "")
}

/// The requests whose first line contains `what`.
fn asked(server: &Server, what: &str) -> Vec<String> {
    let heads = server.heads().into_iter();
    heads.filter(|head| head.lines().next().is_some_and(|line| line.contains(what))).collect()
}

/// A home directory with files of AWS, and further environment variables.
struct Home {
    directory: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

impl Home {
    fn new(server: &Server, variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut all = vec![
            ("HOME".to_owned(), directory.path().display().to_string()),
            ("AWS_ENDPOINT_URL_STS".to_owned(), format!("{}/sts", server.url)),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(), format!("{}/imds/", server.url)),
        ];
        all.extend(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        Self { directory, variables: all }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(&path, text).expect("write");
        path
    }

    fn set(&mut self, name: &str, value: &Path) {
        self.variables.push((name.to_owned(), value.display().to_string()));
    }

    fn environment(&self) -> Environment {
        let all: Vec<_> = self.variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        Environment::of(&all)
    }

    /// Looks up an object in S3 `times` times.
    fn s3(&self, server: &Server, profile: Option<&str>, times: u32) -> Result<(), StoreError> {
        let location = location("s3://b/k");
        let profile = profile.map(str::to_owned);
        let options = RemoteOptions { profile, ..server.options() };
        let client = S3::new(&location, &options, &self.environment())?;
        (0..times).try_for_each(|_| run(client.head(&location)).map(drop))
    }
}

/// A server with the security token service, ECS's and IMDS's services, and the store.
fn aws(date: &'static str) -> Server {
    Server::new(move |head| match head.split(' ').nth(1).unwrap_or_default() {
        "/sts/" if head.contains("action=assumerole&") => {
            let key = if head.contains("a%3arole2") { "role2" } else { "role1" };
            aws_xml("AssumeRole", key, date)
        }
        "/sts/" if head.contains("action=assumerolewithwebidentity&") => {
            aws_xml("AssumeRoleWithWebIdentity", "web", date)
        }
        "/imds/latest/api/token" if head.starts_with("put") => answer("200", &[], "imds-token"),
        "/imds/latest/meta-data/iam/security-credentials/" => answer("200", &[], "r"),
        "/imds/latest/meta-data/iam/security-credentials/r" => aws_json("imds", date),
        "/container" if head.contains("authorization: t") => aws_json("container", date),
        path if path.starts_with("/b/k") => object(),
        _ => answer(
            "403",
            &[],
            "<Error><Code>AccessDenied</Code><Message>Not you.</Message></Error>",
        ),
    })
}

#[test]
fn a_role_is_assumed_with_the_keys_of_its_source_profile() {
    let server = aws(LATER);
    let home = Home::new(&server, &[("AWS_REGION", "eu-x-1")]);
    home.write(
        ".aws/config",
        "[profile r]\nrole_arn = a:role1\nsource_profile = s\nexternal_id = e 1\nrole_session_name = me\n\
         [profile s]\n[profile r2]\nrole_arn = a:role2\nsource_profile = r\n\
         [profile self]\nrole_arn = a:role1\nsource_profile = self\n",
    );
    home.write(
        ".aws/credentials",
        "[s]\naws_access_key_id = source\naws_secret_access_key = s\n\
         [self]\naws_access_key_id = own\naws_secret_access_key = s\n",
    );
    home.s3(&server, Some("r"), 2).expect("an object");
    let sts = asked(&server, "/sts");
    assert_eq!(sts.len(), 1, "the role is kept");
    assert!(sts[0].contains("credential=source/") && sts[0].contains("/eu-x-1/sts/aws4_request"));
    assert!(sts[0].contains("&externalid=e%201") && sts[0].contains("&rolesessionname=me"));
    let store = asked(&server, "/b/k");
    assert!(store.iter().all(|head| head.contains("credential=role1/")), "{store:?}");
    assert!(store.iter().all(|head| head.contains("x-amz-security-token: token-of-role1")));

    home.s3(&server, Some("r2"), 1).expect("an object");
    let sts = asked(&server, "/sts");
    assert!(
        sts[2].contains("credential=role1/") && sts[2].contains("token-of-role1"),
        "{}",
        sts[2]
    );
    assert!(asked(&server, "/b/k")[2].contains("credential=role2/"));

    home.s3(&server, Some("self"), 1).expect("an object");
    assert!(asked(&server, "/sts")[3].contains("credential=own/"));
}

#[test]
fn a_role_is_assumed_with_the_credentials_of_the_host() {
    let server = aws(LATER);
    let url = format!("{}/container", server.url);
    for (source, key, variables) in [
        ("Environment", "env", vec![("AWS_ACCESS_KEY_ID", "env"), ("AWS_SECRET_ACCESS_KEY", "s")]),
        (
            "EcsContainer",
            "container",
            vec![
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*url),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "t"),
            ],
        ),
        ("Ec2InstanceMetadata", "imds", vec![]),
    ] {
        let home = Home::new(&server, &variables);
        let role = format!("[profile r]\nrole_arn = a:role1\ncredential_source = {source}\n");
        home.write(".aws/config", &role);
        home.s3(&server, Some("r"), 1).unwrap_or_else(|e| panic!("{source}: {e}"));
        let sts = asked(&server, "/sts").pop().expect("a request");
        assert!(sts.contains(&format!("credential={key}/")), "{sts}");
    }
}

#[test]
fn a_role_that_cannot_be_assumed_says_why() {
    let server = Server::new(|_| {
        let why = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>ann may not</Message></Error></ErrorResponse>";
        answer("403", &[], why)
    });
    let home = Home::new(&server, &[]);
    home.write(
        ".aws/config",
        "[profile circle]\nrole_arn = a\nsource_profile = circle2\n[profile circle2]\nrole_arn = b\n\
         source_profile = circle\n[profile mfa]\nrole_arn = a\nsource_profile = k\nmfa_serial = m\n\
         [profile bare]\nrole_arn = a\n[profile env]\nrole_arn = a\ncredential_source = Environment\n\
         [profile odd]\nrole_arn = a\ncredential_source = Moon\n[profile gone]\nrole_arn = a\nsource_profile = none\n\
         [profile k]\naws_access_key_id = k\naws_secret_access_key = s\n\
         [profile no]\nrole_arn = arn:no\nsource_profile = k\n",
    );
    for (profile, wanted) in [
        ("circle", "circle of profiles"),
        ("mfa", "export-credentials --profile mfa"),
        ("bare", "source_profile or credential_source"),
        ("env", "AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is not set"),
        ("odd", "Moon is unknown"),
        ("gone", "profile none: there is no such profile"),
        ("no", "the role arn:no of the profile no: status 403: AccessDenied: ann may not"),
    ] {
        let error = home.s3(&server, Some(profile), 1).expect_err(profile);
        assert_eq!(error.kind, ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains(wanted), "{profile}: {error}");
    }
}

#[test]
fn a_web_identity_is_exchanged_for_a_role_and_its_token_is_read_again() {
    let server = aws(EXPIRED);
    let mut home = Home::new(&server, &[("AWS_ROLE_ARN", "a:web")]);
    let token = home.write("token", "first");
    home.set("AWS_WEB_IDENTITY_TOKEN_FILE", &token);
    let location = location("s3://b/k");
    let client = S3::new(&location, &server.options(), &home.environment()).expect("a client");
    run(client.head(&location)).expect("an object");
    home.write("token", "second");
    std::thread::sleep(Duration::from_millis(150));
    run(client.head(&location)).expect("an object");
    let sts = asked(&server, "/sts");
    assert!(
        sts[0].contains("webidentitytoken=first") && sts[1].contains("webidentitytoken=second")
    );
    assert!(asked(&server, "/b/k").iter().all(|head| head.contains("credential=web/")));

    let home = Home::new(&server, &[]);
    let token = home.write("t", "third");
    let role = format!(
        "[profile w]\nrole_arn = a:web\nweb_identity_token_file = {}\n[profile r]\nrole_arn = a:role1\n\
         source_profile = w\n",
        token.display()
    );
    home.write(".aws/config", &role);
    home.s3(&server, Some("r"), 1).expect("an object");
    assert!(asked(&server, "/sts")[2].contains("webidentitytoken=third"));
    assert!(asked(&server, "/sts")[3].contains("credential=web/"));
}

#[test]
fn a_container_asks_with_its_token_and_reads_the_file_again() {
    let server = aws(EXPIRED);
    let url = format!("{}/container", server.url);
    let mut home = Home::new(&server, &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url)]);
    let token = home.write("token", "t1\n");
    home.set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token);
    let location = location("s3://b/k");
    let client = S3::new(&location, &server.options(), &home.environment()).expect("a client");
    run(client.head(&location)).expect("an object");
    home.write("token", "t2\n");
    run(client.head(&location)).expect("an object");
    let container = asked(&server, "/container");
    assert!(container[0].contains("authorization: t1\r\n"), "{container:?}");
    assert!(container[1].contains("authorization: t2\r\n"), "{container:?}");
    assert!(asked(&server, "/b/k")[1].contains("credential=container/"));
    std::fs::remove_file(token).expect("remove");
    let error = run(client.head(&location)).expect_err("no token");
    assert!(error.to_string().contains("AUTHORIZATION_TOKEN_FILE"), "{error}");

    let url = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://elsewhere/x")];
    let error = Home::new(&server, &url).s3(&server, None, 1).expect_err("no TLS");
    assert!(error.to_string().contains("must be https://"), "{error}");
}

#[test]
fn the_metadata_service_is_asked_with_a_session_token_unless_that_is_forbidden() {
    let server = aws(LATER);
    Home::new(&server, &[]).s3(&server, None, 2).expect("an object");
    let imds = asked(&server, "/imds");
    assert_eq!(imds.len(), 3);
    assert!(imds[0].starts_with("put") && imds[0].contains("token-ttl-seconds: "));
    assert!(imds[1..].iter().all(|head| head.contains("x-aws-ec2-metadata-token: imds-token")));
    assert!(asked(&server, "/b/k").iter().all(|head| head.contains("credential=imds/")));

    let disabled = [("AWS_EC2_METADATA_DISABLED", "true")];
    let error = Home::new(&server, &disabled).s3(&server, None, 1).expect_err("no credentials");
    assert!(error.to_string().contains("name a profile"), "{error}");
    assert_eq!(asked(&server, "/imds").len(), 3);
}

/// A server with the services of Google, and the store.
fn google() -> Server {
    let times = AtomicUsize::new(0);
    Server::new(move |head| {
        let json = |body: String| answer("200", &[], &body);
        let path = head.split(' ').nth(1).unwrap_or_default();
        match path {
            "/subject" if head.contains("x-key: k") => json(r#"{"value":"from-url"}"#.to_owned()),
            "/exchange" if head.contains("token-exchange") => {
                let times = times.fetch_add(1, Relaxed);
                let expired = r#""expires_in":0"#;
                json(format!(
                    r#"{{"access_token":"federated{times}",{expired},"token_type":"Bearer"}}"#
                ))
            }
            "/account" if head.contains("authorization: bearer ") => {
                json(format!(r#"{{"accessToken":"acting","expireTime":"{LATER}"}}"#))
            }
            "/user" if head.contains("refresh_token=r1") => {
                json(r#"{"access_token":"user","expires_in":3600}"#.to_owned())
            }
            "/b/k" if head.contains("authorization: bearer ") => object(),
            _ => answer(
                "403",
                &[],
                r#"{"error":"invalid_grant","error_description":"no such thing"}"#,
            ),
        }
    })
}

fn gcs(server: &Server, key: &Path) -> Result<Gcs, StoreError> {
    let environment =
        Environment::of(&[("GOOGLE_APPLICATION_CREDENTIALS", &key.to_string_lossy())]);
    Gcs::new(&location("gs://b/k"), &server.options(), &environment)
}

/// The bearer of the last request to the store.
fn bearer(server: &Server) -> String {
    let head = asked(server, "/b/k").pop().expect("a request");
    let (_, rest) = head.split_once("authorization: bearer ").expect("a token");
    rest.split("\r\n").next().unwrap_or_default().to_owned()
}

#[test]
fn a_workload_of_another_cloud_exchanges_its_token() {
    let server = google();
    let home = Home::new(&server, &[]);
    let subject = home.write("subject", "from-file\n");
    let url = &server.url;
    let account = |source: &str, rest: &str| {
        format!(
            r#"{{"type":"external_account","audience":"//iam/x","subject_token_type":"urn:jwt",
                "token_url":"{url}/exchange","credential_source":{source}{rest}}}"#
        )
    };
    let file = format!(r#"{{"file":"{}"}}"#, subject.display());
    let key = home.write("key", &account(&file, ""));
    let client = gcs(&server, &key).expect("a client");
    let place = location("gs://b/k");
    run(client.head(&place)).expect("an object");
    assert_eq!(bearer(&server), "federated0");
    home.write("subject", "later\n");
    run(client.head(&place)).expect("an object");
    assert_eq!(bearer(&server), "federated1");
    let exchanges = asked(&server, "/exchange");
    assert!(exchanges[0].contains("&subject_token=from-file"), "{exchanges:?}");
    assert!(exchanges[0].contains("&audience=%2f%2fiam%2fx&"), "{exchanges:?}");
    assert!(exchanges[1].contains("&subject_token=later"), "{exchanges:?}");

    let source = format!(
        r#"{{"url":"{url}/subject","headers":{{"X-Key":"k"}},
            "format":{{"type":"json","subject_token_field_name":"value"}}}}"#
    );
    let acting = format!(r#","service_account_impersonation_url":"{url}/account""#);
    let key = home.write("key2", &account(&source, &acting));
    let client = gcs(&server, &key).expect("a client");
    run(client.head(&place)).expect("an object");
    assert_eq!(bearer(&server), "acting");
    assert!(asked(&server, "/exchange")[2].contains("&subject_token=from-url"));
    let account = asked(&server, "/account").pop().expect("a request");
    assert!(account.contains("bearer federated2") && account.contains("cloud-platform"));
}

#[test]
fn a_user_and_an_account_that_the_user_acts_as_are_identities() {
    let server = google();
    let home = Home::new(&server, &[]);
    let url = &server.url;
    let user = |token: &str| {
        format!(
            r#"{{"type":"authorized_user","client_id":"c","client_secret":"s","refresh_token":"{token}",
                "token_uri":"{url}/user"}}"#
        )
    };
    let place = location("gs://b/k");
    let key = home.write("key", &user("r1"));
    let client = gcs(&server, &key).expect("a client");
    run(client.head(&place)).expect("an object");
    assert_eq!(bearer(&server), "user");
    let text = format!(
        r#"{{"type":"impersonated_service_account","service_account_impersonation_url":"{url}/account",
            "delegates":["d"],"source_credentials":{}}}"#,
        user("r1")
    );
    // The same client reads the file again when it has changed.
    home.write("key", &text);
    std::thread::sleep(Duration::from_millis(1100));
    run(client.head(&place)).expect("an object");
    assert_eq!(bearer(&server), "acting");
    let account = asked(&server, "/account").pop().expect("a request");
    assert!(account.contains("bearer user") && account.contains(r#""delegates":["d"]"#));

    let key = home.write("wrong", &user("r2"));
    let error = run(gcs(&server, &key).expect("a client").head(&place)).expect_err("a refusal");
    assert!(
        error.to_string().contains("invalid_grant") || error.to_string().contains("no such thing")
    );
    for (text, wanted) in [
        (
            r#"{"type":"external_account","credential_source":{"environment_id":"aws1","url":"x"}}"#,
            "from a file or a URL",
        ),
        (
            r#"{"type":"external_account","credential_source":{"file":"x"}}"#,
            "`audience` is missing",
        ),
        (r#"{"type":"gdch_service_account"}"#, "`gdch_service_account` cannot be used"),
        ("x", "not a Google key in JSON"),
    ] {
        let key = home.write("unusable", text);
        let error = gcs(&server, &key).err().expect(text);
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

/// A server with Entra ID, the managed identity, and the store.
fn microsoft() -> Server {
    Server::new(|head| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let token = |token: &str| {
            let body = format!(r#"{{"access_token":"{token}","expires_in":0,"expires_on":"1"}}"#);
            answer("200", &[], &body)
        };
        match path {
            "/t1/oauth2/v2.0/token" if head.contains("client_secret=hush") => token("secret"),
            "/t1/oauth2/v2.0/token" if head.contains("client_assertion=") => {
                let rest = head.split("client_assertion=").nth(1).unwrap_or_default();
                token(&format!("for-{}", rest.split('&').next().unwrap_or_default()))
            }
            path if path.starts_with("/msi?") && head.contains("metadata: true") => {
                token("managed")
            }
            path if path.starts_with("/acc/c/k") => object(),
            _ => answer("403", &[], ""),
        }
    })
}

#[test]
fn azure_is_asked_with_each_kind_of_credentials() {
    let server = microsoft();
    let (slash, msi) = (format!("{}/", server.url), format!("{}/msi", server.url));
    let entra =
        [("AZURE_TENANT_ID", "t1"), ("AZURE_CLIENT_ID", "i"), ("AZURE_AUTHORITY_HOST", &slash)];
    let with = |more: &[(&'static str, &'static str)]| [&entra[..], more].concat();
    for (variables, wanted) in [
        (vec![("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")], "authorization: sharedkey acc:"),
        (vec![("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=x%2B")], "/acc/c/k?sv=1&sig=x%2b "),
        (with(&[("AZURE_CLIENT_SECRET", "hush")]), "authorization: bearer secret"),
        (vec![("IDENTITY_ENDPOINT", &*msi)], "authorization: bearer managed"),
    ] {
        let all = [&variables[..], &[("AZURE_STORAGE_ACCOUNT_NAME", "acc")]].concat();
        let place = location("az://c/k");
        let client = Azure::new(&place, &server.options(), &Environment::of(&all));
        run(client.expect("a client").head(&place)).unwrap_or_else(|e| panic!("{wanted}: {e}"));
        let head = asked(&server, "/acc/c/k").pop().expect("a request");
        assert!(head.contains(wanted), "{wanted}: {head}");
    }
}

#[test]
fn tokens_for_azure_are_read_again_when_their_files_change() {
    let server = microsoft();
    let home = Home::new(&server, &[]);
    let token = home.write("token", "first");
    let text = format!(
        "export AZURE_STORAGE_ACCOUNT_NAME=acc\nAZURE_TENANT_ID=t1\nAZURE_CLIENT_ID=i\n\
         AZURE_AUTHORITY_HOST={}/\nAZURE_FEDERATED_TOKEN_FILE={}\n",
        server.url,
        token.display()
    );
    let file = home.write("azure", &text);
    let options = RemoteOptions { credentials: Some(file), ..server.options() };
    let place = location("az://c/k");
    let client = Azure::new(&place, &options, &Environment::of(&[])).expect("a client");
    let sent = |wanted: &str| {
        run(client.head(&place)).expect("an object");
        let head = asked(&server, "/acc/c/k").pop().expect("a request");
        assert!(head.contains(wanted), "{wanted}: {head}");
    };
    sent("bearer for-first");
    home.write("token", "second");
    std::thread::sleep(Duration::from_millis(150));
    sent("bearer for-second");
    home.write("azure", "AZURE_STORAGE_SAS_TOKEN=sv=1&sig=new\n");
    std::thread::sleep(Duration::from_millis(1100));
    sent("/acc/c/k?sv=1&sig=new ");
    // While the file is missing or unusable, the last credentials are used.
    std::fs::remove_file(home.directory.path().join("azure")).expect("remove");
    std::thread::sleep(Duration::from_millis(1100));
    sent("/acc/c/k?sv=1&sig=new ");
}
