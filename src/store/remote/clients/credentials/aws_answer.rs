//! Parses the credentials that services and programs of AWS issue.

use super::renewed::Issued;
use crate::store::remote::clients::answer::{parse_timestamp, texts};
use object_store::aws::AwsCredential;
use std::time::SystemTime;

/// Credentials in JSON, as programs (`SessionToken`) and metadata services (`Token`) give them.
pub(super) fn of_json(json: &[u8]) -> Option<Issued<AwsCredential>> {
    let json: serde_json::Value = serde_json::from_slice(json).ok()?;
    let text = |name: &str| json.get(name).and_then(|v| v.as_str()).map(str::to_owned);
    let token = text("SessionToken").or_else(|| text("Token")).filter(|token| !token.is_empty());
    let credential =
        AwsCredential { key_id: text("AccessKeyId")?, secret_key: text("SecretAccessKey")?, token };
    let expires = text("Expiration").and_then(|date| parse_expiry(&date));
    Some(Issued { credential, expires })
}

/// Credentials in the response of the security token service.
pub(super) fn of_xml(xml: &str) -> Option<Issued<AwsCredential>> {
    let mut record = texts(xml, "Credentials")?.records.pop()?;
    let credential = AwsCredential {
        key_id: record.remove("AccessKeyId")?,
        secret_key: record.remove("SecretAccessKey")?,
        token: record.remove("SessionToken"),
    };
    let expires = record.get("Expiration").and_then(|date| parse_expiry(date));
    Some(Issued { credential, expires })
}

fn parse_expiry(date: &str) -> Option<SystemTime> {
    parse_timestamp(&date.trim().replace("+00:00", "Z"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn credentials_are_found_in_json_and_in_xml() {
        let json = br#"{"AccessKeyId":"id","SecretAccessKey":"s","Token":"t","Expiration":"2999-01-01T00:00:00Z"}"#;
        let xml = "<R><X><Credentials><AccessKeyId>id</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
            <SessionToken>t</SessionToken><Expiration>2999-01-01T00:00:00+00:00</Expiration></Credentials>\
            <AssumedRoleUser><Arn>a</Arn></AssumedRoleUser></X></R>";
        for found in [of_json(json), of_xml(xml)] {
            let Issued { credential, expires } = found.expect("credentials");
            assert_eq!((&*credential.key_id, &*credential.secret_key), ("id", "s"));
            assert_eq!(credential.token.as_deref(), Some("t"));
            assert_eq!(expires, parse_timestamp("2999-01-01T00:00:00Z"));
        }
    }

    proptest! {
        #[test]
        fn no_answer_makes_the_parsers_panic(text in "\\PC{0,60}") {
            of_json(text.as_bytes());
            of_xml(&format!("<Credentials>{text}</Credentials>"));
        }
    }
}
