//! Profiles of the AWS programs: `~/.aws/config` and `~/.aws/credentials`, and programs that print credentials.

use super::aws_answer;
use super::environment::{Environment, Watched};
use super::program;
use super::provider::generic;
use super::renewed::{Issued, Renewed};
use crate::store::remote::{ErrorKind, StoreError};
use object_store::aws::AwsCredential;
use object_store::client::CredentialProvider;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

/// The settings of a section.
pub(super) type Section = BTreeMap<String, String>;
type Sections = BTreeMap<String, Section>;

/// A profile, read again when its files change.
pub(super) struct Profile {
    name: String,
    config: Option<Watched<Sections>>,
    credentials: Option<Watched<Sections>>,
    /// The credentials that a program has printed, by its command line.
    printed: Renewed<AwsCredential>,
}

impl Profile {
    /// The profile `name`. `credentials` replaces the usual credentials file.
    pub(super) fn new(name: &str, credentials: Option<PathBuf>, environment: &Environment) -> Self {
        let usual = |variable: &str, path: &str| {
            let named = environment.first(&[variable]).map(PathBuf::from);
            named.or_else(|| environment.in_home(path)).filter(|path| path.is_file())
        };
        let config = usual("AWS_CONFIG_FILE", ".aws/config");
        let credentials =
            credentials.or_else(|| usual("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"));
        Self {
            name: name.to_owned(),
            config: config.map(|path| Watched::new(path, parse_sections)),
            credentials: credentials.map(|path| Watched::new(path, parse_sections)),
            printed: Renewed::default(),
        }
    }

    /// The files with the profile, for messages.
    pub(super) fn files(&self) -> String {
        let files = [&self.config, &self.credentials].into_iter().flatten();
        let files: Vec<_> = files.map(|file| file.path().display().to_string()).collect();
        if files.is_empty() { "~/.aws".to_owned() } else { files.join(" and ") }
    }

    /// All settings of the profile; empty if it does not exist. The credentials file takes precedence.
    pub(super) fn settings(&self) -> Result<Section, StoreError> {
        let mut all = Section::new();
        for file in [&self.config, &self.credentials].into_iter().flatten() {
            if let Some(section) = file.get()?.get(&self.name) {
                all.extend(section.clone());
            }
        }
        Ok(all)
    }

    async fn credential(&self) -> Result<Arc<AwsCredential>, StoreError> {
        let settings = self.settings()?;
        let denied =
            |why: String| StoreError::new(format!("profile {}", self.name), ErrorKind::Denied, why);
        let setting = |name: &str| settings.get(name).filter(|value| !value.is_empty()).cloned();
        let keys = (setting("aws_access_key_id"), setting("aws_secret_access_key"));
        if let (Some(key_id), Some(secret_key)) = keys {
            let token = setting("aws_session_token");
            return Ok(Arc::new(AwsCredential { key_id, secret_key, token }));
        }
        if let Some(command) = setting("credential_process") {
            return self.printed.get(&command, run(command.clone())).await.map_err(denied);
        }
        Err(denied(if settings.keys().any(|name| name.starts_with("sso_")) {
            format!(
                "add the line `credential_process = aws configure export-credentials --profile {} --format process` to \
                 a profile in ~/.aws/config and use that one (after `aws sso login`)",
                self.name
            )
        } else if settings.is_empty() {
            "there is no such profile in ~/.aws/config and ~/.aws/credentials".into()
        } else {
            "the profile has neither keys nor credential_process".into()
        }))
    }
}

/// The credentials that a program prints.
async fn run(line: String) -> Result<Issued<AwsCredential>, String> {
    let printed = tokio::task::spawn_blocking(move || program::run(&line)).await;
    let printed = printed.map_err(|e| e.to_string())??;
    aws_answer::of_json(&printed).ok_or_else(|| {
        "credential_process prints no credentials as the programs of AWS expect them".to_owned()
    })
}

/// Parses sections, by the names of their profiles.
pub(super) fn parse_sections(text: &str) -> Result<Sections, String> {
    let mut sections = Sections::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split(']').next().unwrap_or_default().trim();
            let is_other = name.starts_with("sso-session") || name.starts_with("services");
            let name = name
                .strip_prefix("profile")
                .filter(|rest| rest.starts_with([' ', '\t']))
                .unwrap_or(name);
            current = (!is_other).then(|| name.trim().trim_matches('"').to_owned());
            if let Some(name) = &current {
                sections.entry(name.clone()).or_default();
            }
        } else if let (Some(name), Some((key, value)), false) =
            (&current, line.split_once('='), is_nested)
        {
            let value = value.split(" #").next().unwrap_or_default().trim();
            let section = sections.entry(name.clone()).or_default();
            section.insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    Ok(sections)
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "profile {}", self.name)
    }
}

// Written out in place of the attribute `async_trait`.
impl CredentialProvider for Profile {
    type Credential = AwsCredential;

    fn get_credential<'a, 'b>(
        &'a self,
    ) -> Pin<Box<dyn Future<Output = object_store::Result<Arc<AwsCredential>>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.credential().await.map_err(generic) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime").block_on(future)
    }

    /// A profile of these files.
    fn profile(name: &str, config: &str, credentials: &str) -> (tempfile::TempDir, Profile) {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(home.path().join(".aws")).expect("a directory");
        std::fs::write(home.path().join(".aws/config"), config).expect("write");
        std::fs::write(home.path().join(".aws/credentials"), credentials).expect("write");
        let environment = Environment::of(&[("HOME", &home.path().to_string_lossy())]);
        (home, Profile::new(name, None, &environment))
    }

    #[test]
    fn sections_are_profiles_and_comments_and_nested_lines_are_none() {
        let text = "# x\n[default]\nregion = eu-1 # here\n[profile \"a b\"]\nS3 =\n  region = no\nk=v=w\n\
            [sso-session s]\nregion = no\n";
        let sections = parse_sections(text).expect("sections");
        assert_eq!(sections["default"]["region"], "eu-1");
        assert_eq!(sections["a b"]["k"], "v=w");
        assert_eq!(sections["a b"].get("region"), None);
    }

    #[test]
    fn keys_of_the_credentials_file_count_more_than_those_of_the_config_file() {
        let config = "[profile x]\nregion = r\naws_access_key_id = no\naws_secret_access_key = no";
        let keys = "[x]\naws_access_key_id = id\naws_secret_access_key = s/+=\naws_session_token=t";
        let (_home, profile) = profile("x", config, keys);
        assert_eq!(profile.settings().expect("settings")["region"], "r");
        let credential = block_on(profile.credential()).expect("a credential");
        assert_eq!((&*credential.key_id, &*credential.secret_key), ("id", "s/+="));
        assert_eq!(credential.token.as_deref(), Some("t"));
    }

    #[test]
    fn a_program_prints_credentials_and_is_asked_again_when_they_expire() {
        for (expires, runs) in [("2999-01-01T00:00:00Z", 1), ("2001-01-01T00:00:00+00:00", 2)] {
            let home = tempfile::tempdir().expect("a directory");
            let log = home.path().join("log");
            let printed = format!(
                r#"{{"Version":1,"AccessKeyId":"id","SecretAccessKey":"s","Expiration":"{expires}"}}"#
            );
            let command =
                format!("credential_process = echo x >> {}; echo '{printed}'", log.display());
            let (_home, profile) = profile("x", &format!("[profile x]\n{command}"), "");
            for _ in 0..2 {
                assert_eq!(block_on(profile.credential()).expect("a credential").key_id, "id");
            }
            let log = std::fs::read_to_string(log).expect("a log");
            assert_eq!(log.lines().count(), runs, "{expires}");
        }
    }

    #[test]
    fn a_profile_without_credentials_says_what_to_do() {
        for (config, wanted) in [
            ("[profile x]\nsso_session = s", "export-credentials --profile x"),
            ("[profile y]", "no such profile"),
            ("[profile x]\ncredential_process = echo hm >&2; exit 3", "hm"),
            ("[profile x]\ncredential_process = echo '{}'", "prints no credentials"),
        ] {
            let (_home, profile) = profile("x", config, "");
            let said = block_on(profile.credential()).expect_err("no credential").to_string();
            assert!(said.contains(wanted), "{said}");
        }
    }

    proptest! {
        #[test]
        fn no_file_makes_the_parser_panic(text in "[\\[\\]a-z=# \n\"]{0,60}") {
            let _ = parse_sections(&text);
        }
    }
}
