//! The needs of stores' clients on this host besides their own requests, once the containers are open: files that are read
//! again, ports, and programs that print credentials. Imports the clients' environment and the options.

use super::clients::{
    Environment, azure_environment, identity_of_google, profiles_of, programs_run_outside,
    start_programs_outside,
};
use super::location::{Location, Scheme};
use super::options::RemoteOptions;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The needs of clients after a dataset was opened.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Files and directories that are read: names of hosts, certificates, credentials.
    pub files: BTreeSet<PathBuf>,
    /// The TCP ports of servers; `None` if servers name further servers, with any port.
    pub ports: Option<BTreeSet<u16>>,
    /// Whether clients may be led to any other port: servers redirect them, or the port of the proxy is not known.
    pub may_leave_ports: bool,
    /// Whether this process starts a program that prints credentials.
    pub starts_programs: bool,
}

/// Has another process run the programs that print credentials for these locations, if there are any, so that this one can be
/// confined. Does nothing if this one has threads already.
pub fn run_programs_outside(locations: &[Location], options: &RemoteOptions) {
    let (locations, options) = (locations.to_vec(), options.clone());
    let programs = move || programs_in(&locations, &options, &Environment::of_process());
    if !programs().is_empty() {
        // A profile may have changed when a program is run: that process reads it once more, itself.
        start_programs_outside(move |line| programs().contains(line));
    }
}

/// The command lines of programs that print credentials for these locations.
fn programs_in(
    locations: &[Location],
    options: &RemoteOptions,
    environment: &Environment,
) -> BTreeSet<String> {
    let of_s3 = locations.iter().filter(|location| location.scheme == Scheme::S3);
    let profiles = of_s3.flat_map(|location| profiles_of(location, options, environment));
    profiles.filter_map(|mut profile| profile.remove("credential_process")).collect()
}

/// Names of hosts, certificates, time zones and the libraries that look names up. They may be replaced at any time.
const OF_THE_SYSTEM: [&str; 7] = ["/etc", "/usr", "/lib", "/lib64", "/run", "/var/run", "/opt"];
/// HTTP, HTTPS, and names of hosts with long answers.
const USUAL_PORTS: [u16; 3] = [80, 443, 53];
/// Variables that name a file or a directory.
const PATHS: [&str; 23] = [
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "CLOUDSDK_CONFIG",
    "CREDENTIALS_DIRECTORY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "HADOOP_CONF_DIR",
    "HADOOP_HOME",
    "HADOOP_TOKEN_FILE_LOCATION",
    "HF_HOME",
    "HF_TOKEN_PATH",
    "KRB5CCNAME",
    "KRB5_CLIENT_KTNAME",
    "KRB5_CONFIG",
    "KRB5_KTNAME",
    "NETRC",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];
/// Files and directories in the home directory.
const IN_HOME: [&str; 5] = [".aws", ".azure", ".cache/huggingface", ".config/gcloud", ".netrc"];
/// The directories with tickets of Kerberos.
const TICKETS: [&str; 3] = ["/tmp", "/var/lib/sss", "/var/kerberos"];

/// The needs of the clients of these locations.
#[must_use]
pub fn needs(locations: &[Location], options: &RemoteOptions) -> Needs {
    needs_in(locations, options, &Environment::of_process())
}

fn needs_in(locations: &[Location], options: &RemoteOptions, environment: &Environment) -> Needs {
    let home = environment.in_home("");
    let mut files: BTreeSet<PathBuf> = OF_THE_SYSTEM.iter().map(PathBuf::from).collect();
    files.extend(IN_HOME.iter().filter_map(|path| environment.in_home(path)));
    let mut named: Vec<PathBuf> =
        PATHS.iter().filter_map(|name| environment.first(&[name]).map(path_in)).collect();
    named.extend(
        [&options.credentials, &options.header, &options.ca].into_iter().flatten().cloned(),
    );
    let mut ports: BTreeSet<u16> = USUAL_PORTS.into();
    ports.extend(options.endpoint.as_deref().and_then(port_of));
    ports.extend(environment.starting_with("").filter_map(|(_, value)| port_of(value)));
    let proxies: Vec<_> = proxies(environment).map(proxy_port).collect();
    ports.extend(proxies.iter().flatten());
    let mut needs = Needs { may_leave_ports: proxies.contains(&None), ..Needs::default() };
    let mut has_any_port = locations.is_empty();
    for location in locations {
        named.extend(environment.credentials(location, options));
        let redirects = [Scheme::Http, Scheme::Https, Scheme::HuggingFace];
        needs.may_leave_ports |= redirects.contains(&location.scheme);
        match location.scheme {
            Scheme::Hdfs => {
                has_any_port = true;
                files.extend(TICKETS.iter().map(PathBuf::from));
            }
            Scheme::Http | Scheme::Https => ports.extend(port_in(&location.authority)),
            Scheme::S3 => {
                for profile in profiles_of(location, options, environment) {
                    needs.starts_programs |=
                        profile.contains_key("credential_process") && !programs_run_outside();
                    ports.extend(profile.get("endpoint_url").and_then(|url| port_of(url)));
                    let paths = ["ca_bundle", "web_identity_token_file"];
                    let paths = paths.iter().filter_map(|name| profile.get(*name));
                    named.extend(paths.map(PathBuf::from));
                }
            }
            Scheme::Azure => {
                let completed = azure_environment(location, options, environment);
                named.extend(completed.first(&["AZURE_FEDERATED_TOKEN_FILE"]).map(PathBuf::from));
                ports.extend(completed.starting_with("").filter_map(|(_, value)| port_of(value)));
            }
            Scheme::Gs => {
                let (file, urls) = identity_of_google(location, options, environment);
                named.extend(file);
                ports.extend(urls.iter().filter_map(|url| port_of(url)));
            }
            _ => {}
        }
    }
    for path in named {
        files.extend(with_directory(&path, home.as_deref()));
    }
    Needs { files, ports: (!has_any_port).then_some(ports), ..needs }
}

/// The path in a value: `FILE:/path` is a file to Kerberos.
fn path_in(value: &str) -> PathBuf {
    value.split_once(':').map_or(value, |(_, path)| path).into()
}

/// A file that may be replaced by another one of its name: its directory, unless that holds all kinds of files.
fn with_directory(path: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in [std::path::absolute(path).ok(), path.canonicalize().ok()].into_iter().flatten() {
        let parent = path.parent().filter(|parent| {
            !path.is_dir() && parent.parent().is_some() && home.is_none_or(|home| home != *parent)
        });
        found.push(parent.map_or_else(|| path.clone(), Path::to_owned));
    }
    found
}

/// The values of the variables that name proxies: `HTTPS_PROXY`, `all_proxy` and so on.
fn proxies(environment: &Environment) -> impl Iterator<Item = &str> {
    let named = environment.starting_with("").filter(|(name, value)| {
        let name = name.to_ascii_lowercase();
        let is_proxy = name.ends_with("_proxy") || name.ends_with("_proxy_url");
        is_proxy && name != "no_proxy" && !value.trim().is_empty()
    });
    named.map(|(_, value)| value.trim())
}

/// The port of a proxy, which may be written without a scheme (`proxy:3128`); `None` if it cannot be told.
fn proxy_port(value: &str) -> Option<u16> {
    let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    // After the brackets of an IPv6 address.
    let after = host.rfind(']').map_or(host, |end| &host[end..]);
    match after.rsplit_once(':') {
        Some(_) => port_in(host),
        None => match scheme.to_ascii_lowercase().as_str() {
            _ if host.is_empty() => None,
            "http" => Some(80),
            "https" => Some(443),
            "socks4" | "socks4a" | "socks5" | "socks5h" => Some(1080),
            _ => None,
        },
    }
}

/// The port that a URL names.
fn port_of(url: &str) -> Option<u16> {
    let (_, rest) = url.split_once("://")?;
    port_in(rest.split(['/', '?']).next()?)
}

/// The port in `host:port` or `[host]:port`.
fn port_in(authority: &str) -> Option<u16> {
    authority.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(url: &str, variables: &[(&str, &str)]) -> Needs {
        let location = Location::parse(url).unwrap().unwrap();
        needs_in(&[location], &RemoteOptions::default(), &Environment::of(variables))
    }

    #[test]
    fn ports_are_those_of_urls_and_the_usual_ones() {
        let proxy = [("HTTPS_PROXY", "http://user:word@proxy:3128/"), ("OTHER", "x:1")];
        let ports = |url, variables| asked(url, variables).ports.unwrap();
        assert_eq!(ports("https://host:8443/a.zip", &[]), [53, 80, 443, 8443].into());
        assert_eq!(ports("https://[::1]:8443/a.zip", &proxy), [53, 80, 443, 3128, 8443].into());
        assert_eq!(ports("s3://bucket/a.zip", &[]), USUAL_PORTS.into());
        assert_eq!(asked("hdfs://name/a.zip", &[]).ports, None);
    }

    #[test]
    fn proxies_may_have_no_scheme_and_no_port() {
        let known = [
            ("proxy.corp:3128", 3128),
            ("user:word@proxy:3129", 3129),
            ("http://user:word@proxy:3128/", 3128),
            ("proxy", 80),
            ("https://proxy", 443),
            ("socks5://proxy", 1080),
            ("socks5h://[::1]", 1080),
            ("http://[::1]:8080", 8080),
        ];
        for (value, port) in known {
            for name in ["HTTPS_PROXY", "all_proxy"] {
                let needs = asked("s3://bucket/a.zip", &[(name, value)]);
                assert!(needs.ports.unwrap().contains(&port), "{name}={value}");
                assert!(!needs.may_leave_ports, "{name}={value}");
            }
        }
        for value in ["other://proxy", "proxy:port", "http://"] {
            assert!(
                asked("s3://bucket/a.zip", &[("http_proxy", value)]).may_leave_ports,
                "{value}"
            );
        }
        for variable in [("NO_PROXY", "host:x"), ("HTTP_PROXY", "")] {
            assert!(!asked("s3://bucket/a.zip", &[variable]).may_leave_ports);
        }
    }

    #[test]
    fn servers_of_files_may_redirect_to_any_port() {
        for url in ["http://host/a.zip", "https://host/a.zip", "hf://datasets/o/n/a.zip"] {
            assert!(asked(url, &[]).may_leave_ports, "{url}");
        }
        assert!(!asked("s3://bucket/a.zip", &[]).may_leave_ports);
    }

    #[test]
    fn credentials_may_be_replaced_in_their_directory_but_not_all_of_a_home_is_open() {
        let variables = [
            ("HOME", "/home/u"),
            ("AWS_CONFIG_FILE", "/srv/aws/config"),
            ("NETRC", "/home/u/netrc"),
            ("KRB5CCNAME", "FILE:/srv/tickets/u"),
        ];
        let files = asked("s3://bucket/a.zip", &variables).files;
        for path in ["/srv/aws", "/home/u/netrc", "/srv/tickets", "/home/u/.aws", "/etc"] {
            assert!(files.contains(Path::new(path)), "{path} is not in {files:?}");
        }
        assert!(!files.contains(Path::new("/home/u")) && !files.contains(Path::new("/")));
    }

    #[test]
    fn files_of_credentials_name_further_files_and_ports() {
        let directory = tempfile::tempdir().unwrap();
        let (google, azure) = (directory.path().join("google"), directory.path().join("azure"));
        let key = r#"{"type": "external_account", "token_url": "https://sts:8443/token",
            "credential_source": {"url": "http://10.0.0.1:5000/x", "file": "/srv/tokens/google"}}"#;
        std::fs::write(&google, key).unwrap();
        let text =
            "AZURE_FEDERATED_TOKEN_FILE=/srv/tokens/azure\nAZURE_AUTHORITY_HOST=https://e:8444/\n";
        std::fs::write(&azure, text).unwrap();
        let of_google = [("GOOGLE_APPLICATION_CREDENTIALS", google.to_str().unwrap())];
        let needs = asked("gs://b/a.zip", &of_google);
        let ports = needs.ports.unwrap();
        assert!(ports.contains(&8443) && ports.contains(&5000), "{ports:?}");
        assert!(needs.files.contains(Path::new("/srv/tokens")));
        let location = Location::parse("az://b/a.zip").unwrap().unwrap();
        let options = RemoteOptions { credentials: Some(azure), ..RemoteOptions::default() };
        let needs = needs_in(&[location], &options, &Environment::of(&[]));
        assert!(needs.ports.unwrap().contains(&8444));
        assert!(needs.files.contains(Path::new("/srv/tokens")));
    }

    #[test]
    fn the_program_of_a_source_profile_is_started() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config");
        let text =
            "[default]\nrole_arn = a\nsource_profile = x\n[profile x]\ncredential_process = y\n";
        std::fs::write(&config, text).unwrap();
        let needs = asked("s3://b/a.zip", &[("AWS_CONFIG_FILE", config.to_str().unwrap())]);
        assert!(needs.starts_programs);
    }

    #[test]
    fn a_profile_with_a_program_starts_it() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config");
        let text = "[default]\nendpoint_url = http://x:9000\ncredential_process = /bin/x\n";
        std::fs::write(&config, text).unwrap();
        let needs = asked("s3://b/a.zip", &[("AWS_CONFIG_FILE", config.to_str().unwrap())]);
        assert!(needs.starts_programs && needs.ports.unwrap().contains(&9000));
        assert!(!asked("s3://b/a.zip", &[]).starts_programs);
    }
}
