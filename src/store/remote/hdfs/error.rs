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
        HdfsError::InvalidArgument(said) if said.contains("fs.defaultFS") => {
            "the URL names no NameNode, and no core-site.xml in HADOOP_CONF_DIR names a default one \
             (fs.defaultFS)"
                .to_owned()
        }
        _ => first_line(&error.to_string()),
    }
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
