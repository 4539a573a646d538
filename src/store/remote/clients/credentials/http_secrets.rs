//! Secrets for HTTP servers: passwords from netrc, and headers from a file.

use super::environment::{Environment, Watched};
use crate::store::remote::{ErrorKind, Location, RemoteOptions, StoreError};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

/// The files with an HTTP server's secrets.
pub(in crate::store::remote::clients) struct Secrets {
    host: String,
    headers: Option<Watched<HeaderMap>>,
    netrc: Option<Watched<Vec<Machine>>>,
}

/// An entry of netrc; an entry without a name is for all machines.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    name: Option<String>,
    login: String,
    password: String,
}

impl Secrets {
    pub(in crate::store::remote::clients) fn new(
        location: &Location,
        options: &RemoteOptions,
        environment: &Environment,
    ) -> Self {
        let authority = &location.authority;
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => host,
            _ => authority,
        };
        let netrc = environment.credentials(location, options);
        let netrc = netrc.or_else(|| {
            let named = environment.first(&["NETRC"]).map(Into::into);
            named.or_else(|| environment.in_home(".netrc")).filter(|path| path.is_file())
        });
        let netrc = netrc.filter(|_| !options.anonymous);
        Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            headers: options.header.clone().map(|path| Watched::new(path, parse_headers)),
            netrc: netrc.map(|path| Watched::new(path, |text| Ok(parse_netrc(text)))),
        }
    }

    /// The files with headers for this server; `None` if there are none.
    pub(in crate::store::remote::clients) fn origin(
        &self,
        location: &Location,
    ) -> Result<Option<String>, StoreError> {
        let has_any = !self.headers(location)?.is_empty();
        let netrc = self.netrc.as_ref().map(Watched::path);
        let files = [netrc, self.headers.as_ref().map(Watched::path)].into_iter().flatten();
        let files: Vec<_> = files.map(|path| path.display().to_string()).collect();
        Ok(has_any.then(|| files.join(" and ")))
    }

    /// The headers for this server; those of the header file take precedence.
    pub(in crate::store::remote::clients) fn headers(
        &self,
        location: &Location,
    ) -> Result<HeaderMap, StoreError> {
        let mut headers = HeaderMap::new();
        if let Some(netrc) = &self.netrc {
            let machines = netrc.get()?;
            let named = machines.iter().find(|m| m.name.as_ref().is_some_and(|n| *n == self.host));
            if let Some(machine) = named.or_else(|| machines.iter().find(|m| m.name.is_none())) {
                let pair = format!("{}:{}", machine.login, machine.password);
                let basic = format!("Basic {}", BASE64_STANDARD.encode(pair));
                let mut value = HeaderValue::from_str(&basic).map_err(|e| {
                    StoreError::new(location.to_string(), ErrorKind::Denied, e.to_string())
                })?;
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
        }
        if let Some(file) = &self.headers {
            for (name, value) in file.get()?.iter() {
                headers.insert(name.clone(), value.clone());
            }
        }
        Ok(headers)
    }
}

/// Parses one header per line. Error messages do not quote the line, which may hold a secret.
fn parse_headers(text: &str) -> Result<HeaderMap, String> {
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let mut headers = HeaderMap::new();
    for (number, line) in lines {
        let wrong = || format!("line {number} is not `Name: value`");
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Parses netrc like `ftp` and `curl`.
pub(super) fn parse_netrc(text: &str) -> Vec<Machine> {
    let mut machines: Vec<Machine> = Vec::new();
    let mut is_macro = false;
    for line in text.lines() {
        if is_macro {
            is_macro = !line.trim().is_empty();
            continue;
        }
        let mut words = words(line).into_iter();
        while let Some(word) = words.next() {
            let current = machines.last_mut();
            match (&*word, current) {
                ("machine", _) => {
                    machines.push(Machine { name: words.next(), ..Machine::default() })
                }
                ("default", _) => machines.push(Machine::default()),
                ("login", Some(machine)) => machine.login = words.next().unwrap_or_default(),
                ("password", Some(machine)) => machine.password = words.next().unwrap_or_default(),
                ("account", _) => drop(words.next()),
                ("macdef", _) => {
                    is_macro = true;
                    break;
                }
                (word, _) if word.starts_with('#') => break,
                _ => {}
            }
        }
    }
    machines
}

/// Splits a line into words; a quoted word may have spaces and escapes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let mut word = String::new();
        let mut characters = rest.char_indices().peekable();
        let is_quoted = characters.next_if(|(_, c)| *c == '"').is_some();
        let mut end = rest.len();
        while let Some((at, c)) = characters.next() {
            match c {
                '"' if is_quoted => {
                    end = at + 1;
                    break;
                }
                '\\' if is_quoted => word.extend(characters.next().map(|(_, c)| c)),
                c if c.is_whitespace() && !is_quoted => {
                    end = at;
                    break;
                }
                c => word.push(c),
            }
        }
        words.push(word);
        rest = rest[end..].trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn netrc_names_passwords_by_machine() {
        let text = "# mine\nmachine a login me password hush\nmacdef init\nmachine no\n\n\
            machine b\n  login \"m e\"\n  password \"h\\\"ush\"\ndefault login x password y";
        let machine = |name: Option<&str>, login: &str, password: &str| Machine {
            name: name.map(str::to_owned),
            login: login.to_owned(),
            password: password.to_owned(),
        };
        let wanted = vec![
            machine(Some("a"), "me", "hush"),
            machine(Some("b"), "m e", "h\"ush"),
            machine(None, "x", "y"),
        ];
        assert_eq!(parse_netrc(text), wanted);
    }

    #[test]
    fn a_wrong_header_is_named_by_its_line_only() {
        let headers = parse_headers("# x\nAuthorization: Bearer hush\n\nX-A:b\n").expect("headers");
        assert_eq!(headers["authorization"], "Bearer hush");
        assert_eq!(headers["x-a"], "b");
        assert!(!format!("{headers:?}").contains("hush"));
        let said = parse_headers("X-A: b\nhush hush").expect_err("no header");
        assert_eq!(said, "line 2 is not `Name: value`");
    }

    #[test]
    fn headers_of_the_file_count_more_than_netrc() {
        let directory = tempfile::tempdir().expect("a directory");
        let (netrc, header) = (directory.path().join("netrc"), directory.path().join("header"));
        std::fs::write(&netrc, "machine h login me password hush").expect("write");
        std::fs::write(&header, "Authorization: Bearer x").expect("write");
        let environment = Environment::of(&[("NETRC", &netrc.to_string_lossy())]);
        let location = Location::parse("http://h:81/x").expect("a URL").expect("a location");
        let value = |options: &RemoteOptions| {
            let secrets = Secrets::new(&location, options, &environment);
            let headers = secrets.headers(&location).expect("headers");
            headers.get(AUTHORIZATION).map(|value| value.to_str().expect("text").to_owned())
        };
        let options = RemoteOptions::default();
        assert_eq!(value(&options).as_deref(), Some("Basic bWU6aHVzaA=="));
        let with_file = RemoteOptions { header: Some(header), ..options.clone() };
        assert_eq!(value(&with_file).as_deref(), Some("Bearer x"));
        assert_eq!(value(&RemoteOptions { anonymous: true, ..options }), None);
    }

    proptest! {
        #[test]
        fn no_file_makes_the_parsers_panic(text in "[a-z#:\"\\\\ \nü]{0,60}") {
            parse_netrc(&format!("machine {text}"));
            let _ = parse_headers(&text);
        }
    }
}
