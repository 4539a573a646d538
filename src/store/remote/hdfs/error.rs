//! Classifies the errors of `hdfs-native` and the exceptions of the servers.

use super::super::{ErrorKind, Location, StoreError};
use hdfs_native::HdfsError;
use std::io;

/// A server's message can be a page of Java; this much of its first line is quoted.
const QUOTED_CHARACTERS: usize = 300;

pub(super) fn store_error(location: &Location, error: &HdfsError) -> StoreError {
    StoreError::new(location.to_string(), kind(error), message(error))
}

fn kind(error: &HdfsError) -> ErrorKind {
    use ErrorKind::{Broken, Denied, Malformed, NotFound, Refused, Unavailable};
    match error {
        HdfsError::FileNotFound(_) => NotFound,
        HdfsError::RPCError(exception, said) | HdfsError::FatalRPCError(exception, said) => {
            kind_of_exception(exception, said)
        }
        HdfsError::IOError(error) => kind_of_io(error),
        HdfsError::DataTransferError(_)
        | HdfsError::BlocksNotFound(_)
        | HdfsError::ErasureCodingError(_) => Unavailable,
        HdfsError::ChecksumError => Broken,
        HdfsError::GSSAPIError(_, _, said) if said.contains("Cannot contact any KDC") => {
            Unavailable
        }
        HdfsError::SASLError(_) | HdfsError::GSSAPIError(..) | HdfsError::NoSASLMechanism => Denied,
        HdfsError::InvalidRPCResponse(_) | HdfsError::InternalError(_) => Malformed,
        HdfsError::InvalidPath(_)
        | HdfsError::InvalidArgument(_)
        | HdfsError::UrlParseError(_)
        | HdfsError::AlreadyExists(_)
        | HdfsError::OperationFailed(_)
        | HdfsError::IsADirectoryError(_)
        | HdfsError::TrashNotEnabled
        | HdfsError::UnsupportedErasureCodingPolicy(_)
        | HdfsError::UnsupportedFeature(_)
        | HdfsError::XmlParseError(_) => Refused,
    }
}

/// Classifies an exception by its Java class, such as `org.apache.hadoop.security.AccessControlException`.
fn kind_of_exception(exception: &str, said: &str) -> ErrorKind {
    match simple_name(exception) {
        "FileNotFoundException" | "ParentNotDirectoryException" => ErrorKind::NotFound,
        "AccessControlException"
        | "AuthorizationException"
        | "AuthenticationException"
        | "SaslException"
        | "GSSException"
        | "InvalidToken" => ErrorKind::Denied,
        "InvalidPathException" | "IllegalArgumentException" | "RpcNoSuchMethodException" => {
            ErrorKind::Refused
        }
        "CallQueueOverflowException" => ErrorKind::Throttled,
        "RetriableException" if said.contains("busy") => ErrorKind::Throttled,
        // A NameNode that is standby, starting, or in safe mode, and all other failures of the servers.
        _ => ErrorKind::Unavailable,
    }
}

fn simple_name(exception: &str) -> &str {
    exception.rsplit(['.', '$']).next().unwrap_or(exception)
}

fn kind_of_io(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::TimedOut => ErrorKind::TimedOut,
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted => ErrorKind::Broken,
        io::ErrorKind::InvalidInput | io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            ErrorKind::Refused
        }
        _ => ErrorKind::Unavailable,
    }
}

fn message(error: &HdfsError) -> String {
    match error {
        HdfsError::RPCError(exception, said) | HdfsError::FatalRPCError(exception, said) => {
            format!("{}: {}", simple_name(exception), first_line(said))
        }
        // The message has the details of each DataNode.
        HdfsError::DataTransferError(said) if said.starts_with("All DataNodes failed") => {
            "no DataNode with the block could be read".to_owned()
        }
        HdfsError::FileNotFound(_) => "there is no such file".to_owned(),
        HdfsError::GSSAPIError(_, _, said) => of_kerberos(said),
        HdfsError::OperationFailed(said) if said.contains("libgssapi") => NO_LIBRARY.to_owned(),
        HdfsError::NoSASLMechanism => format!("the NameNode accepts none of our logins{ADVICE}"),
        HdfsError::IOError(error) if error.to_string().contains("listener disconnected") => {
            format!("the NameNode closes the connection; if it requires Kerberos{SETTINGS}")
        }
        HdfsError::InvalidArgument(said) if said.contains("fs.defaultFS") => {
            "the URL names no NameNode, and no core-site.xml in HADOOP_CONF_DIR names a default one \
             (fs.defaultFS)"
                .to_owned()
        }
        _ => first_line(&error.to_string()),
    }
}

/// Advice without a valid ticket.
const ADVICE: &str =
    "; run kinit, or name a keytab or a ticket cache with the option `credentials`";
/// Advice if this side does not know that Kerberos is used.
const SETTINGS: &str = ", HADOOP_CONF_DIR must name the cluster's configuration, or the option \
                        `credentials` a keytab or a ticket cache";
/// A static program loads no library, installed or not.
const NO_LIBRARY: &str = if cfg!(target_feature = "crt-static") {
    "Kerberos needs the library libgssapi_krb5.so.2, which this static program cannot load: use the program of the wheel \
     or the .deb"
} else {
    "Kerberos needs the library libgssapi_krb5.so.2, which is missing or cannot be loaded: install libgssapi-krb5-2 \
     (Debian, Ubuntu) or krb5-libs (Fedora, RHEL)"
};

/// The words of the Kerberos library, without the general words before them.
fn of_kerberos(said: &str) -> String {
    let said = first_line(said);
    let general = [
        "No credentials were supplied, or the credentials were unavailable or inaccessible: ",
        "Unspecified GSS failure.  Minor code may provide more information: ",
    ];
    let cause = general.iter().find_map(|words| said.split_once(words)).map_or(&*said, |(_, c)| c);
    let has_no_ticket = ["No Kerberos credentials", "expired"];
    let advice = if has_no_ticket.iter().any(|words| cause.contains(words)) { ADVICE } else { "" };
    format!("Kerberos: {cause}{advice}")
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(QUOTED_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_of_the_namenode_have_the_class_that_decides_whether_to_try_again() {
        let of = |exception: &str, said: &str| {
            kind(&HdfsError::RPCError(exception.to_owned(), said.to_owned()))
        };
        assert_eq!(of("java.io.FileNotFoundException", ""), ErrorKind::NotFound);
        let denied = "org.apache.hadoop.security.AccessControlException";
        assert_eq!(of(denied, "Permission denied"), ErrorKind::Denied);
        let token = "org.apache.hadoop.security.token.SecretManager$InvalidToken";
        assert_eq!(of(token, "expired"), ErrorKind::Denied);
        let standby = "org.apache.hadoop.ipc.StandbyException";
        assert_eq!(of(standby, ""), ErrorKind::Unavailable);
        let retry = "org.apache.hadoop.ipc.RetriableException";
        assert_eq!(of(retry, "Server is too busy."), ErrorKind::Throttled);
        assert_eq!(of(retry, "NameNode still not started"), ErrorKind::Unavailable);
        assert_eq!(of("org.apache.hadoop.fs.InvalidPathException", "a/../b"), ErrorKind::Refused);
    }

    #[test]
    fn what_kerberos_says_is_shown_without_codes_and_with_what_to_do() {
        let no_ticket = "No credentials were supplied, or the credentials were unavailable or inaccessible: No \
                         Kerberos credentials available (default cache: FILE:/tmp/krb5cc_0)";
        let said = of_kerberos(no_ticket);
        assert!(said.starts_with("Kerberos: No Kerberos credentials available (default"), "{said}");
        assert!(said.ends_with("with the option `credentials`"), "{said}");
        let expired =
            "Unspecified GSS failure.  Minor code may provide more information: Ticket expired";
        assert!(of_kerberos(expired).starts_with("Kerberos: Ticket expired; run kinit"));
        assert_eq!(of_kerberos("Clock skew too great"), "Kerberos: Clock skew too great");
        let library = HdfsError::OperationFailed("Failed to load libgssapi_krb".to_owned());
        let is_static = cfg!(target_feature = "crt-static");
        let advice = if is_static { "of the wheel" } else { "install libgssapi-krb5-2 (Debian" };
        assert!(message(&library).contains(advice));
    }

    #[test]
    fn a_message_is_one_short_line() {
        let said = format!("Permission denied: user=x{}\n\tat org.apache.Foo", "y".repeat(1000));
        let error = HdfsError::RPCError("a.b.AccessControlException".to_owned(), said);
        let shown = message(&error);
        assert!(shown.starts_with("AccessControlException: Permission denied: user=xy"), "{shown}");
        assert!(shown.len() < 400 && !shown.contains('\n'), "{shown}");
        let all = HdfsError::DataTransferError("All DataNodes failed: [lots]".to_owned());
        assert!(!message(&all).contains("lots"));
    }
}
