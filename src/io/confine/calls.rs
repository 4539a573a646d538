//! The system calls that a confined process may make: seccomp.
//!
//! The calls of every request have no condition on their arguments: the kernel remembers, once for all, that these calls are
//! allowed (Linux 5.11), and runs no filter for them.

use super::{Network, Rules};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;

type Allowed = BTreeMap<i64, Vec<SeccompRule>>;

/// Filters that are ready to be installed, in this order.
pub(super) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// Installs the filters for all threads.
    pub(super) fn install(&self) -> Result<(), String> {
        self.0.iter().try_for_each(install).map_err(|error| error.to_string())
    }
}

/// Installs a filter for all threads. seccompiler itself cannot say that the CPU may speculate past stores as before:
/// kernels before 5.16 forbid that with a filter, which costs far more than the filter.
fn install(filter: &BpfProgram) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the structure names the instructions of `filter`, which outlive the call; both types are the kernel's
    // `struct sock_filter`. The kernel copies them and writes nothing.
    let installed = unsafe {
        let set = libc::SECCOMP_SET_MODE_FILTER;
        libc::syscall(libc::SYS_seccomp, set, flags, &raw const program)
    };
    match installed {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} has another filter"))),
    }
}

/// Filters for this machine.
pub(super) fn filters(rules: &Rules) -> Result<Filters, String> {
    let machine: TargetArch = std::env::consts::ARCH
        .try_into()
        .map_err(|_| format!("no list for {}", std::env::consts::ARCH))?;
    let said = |error: seccompiler::BackendError| error.to_string();
    let allowed = allowed(rules).map_err(said)?;
    let refused = match rules.is_fatal {
        true => SeccompAction::KillProcess,
        false => SeccompAction::Errno(libc::EPERM as u32),
    };
    // The C library then makes threads by clone(2), whose arguments can be looked at.
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let filters = [
        SeccompFilter::new(clone3, SeccompAction::Allow, unknown, machine),
        SeccompFilter::new(allowed, refused, SeccompAction::Allow, machine),
    ];
    let compiled = filters.into_iter().map(|filter| BpfProgram::try_from(filter?));
    compiled.collect::<Result<_, _>>().map(Filters).map_err(said)
}

fn allowed(rules: &Rules) -> Result<Allowed, seccompiler::BackendError> {
    let mut allowed: Allowed = EVERYWHERE.iter().map(|&call| (call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    allowed.extend(x86_64::OLD.iter().map(|&call| (call, Vec::new())));
    let equal = |argument, value: i32| {
        let value = u64::from(value.cast_unsigned());
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    let masked = |argument, mask: i32, value: i32| {
        let (mask, value) = (u64::from(mask.cast_unsigned()), u64::from(value.cast_unsigned()));
        let how = SeccompCmpOp::MaskedEq(mask);
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)
    };
    let any_of = |argument: u8, values: &[i32]| {
        values
            .iter()
            .map(|&value| SeccompRule::new(vec![equal(argument, value)?]))
            .collect::<Result<Vec<_>, _>>()
    };
    allowed.insert(libc::SYS_ioctl, any_of(1, &IOCTLS)?);
    allowed.insert(libc::SYS_prctl, any_of(0, &PRCTLS)?);
    let threads = SeccompRule::new(vec![masked(0, libc::CLONE_THREAD, libc::CLONE_THREAD)?])?;
    allowed.insert(libc::SYS_clone, vec![threads]);
    // No fork follows: the process that enters the confinement has made these filters.
    let own = std::process::id().cast_signed();
    allowed.insert(libc::SYS_tgkill, any_of(0, &[own])?);
    for call in [libc::SYS_prlimit64, libc::SYS_sched_setaffinity] {
        allowed.insert(call, any_of(0, &[0])?);
    }
    // A file that root owns must not become one that anybody runs as root, or writes. Directories of a cache that a
    // group shares have the setgid bit.
    let modes = |argument| {
        Ok(vec![
            SeccompRule::new(vec![masked(argument, GIVEN_AWAY, 0)?])?,
            SeccompRule::new(vec![equal(argument, SHARED_DIRECTORY)?])?,
        ])
    };
    allowed.insert(libc::SYS_fchmod, modes(1)?);
    // The mode counts where a file is made. (openat2 has its own in memory, where no filter looks.)
    let made = |flags, mode| {
        Ok(vec![
            SeccompRule::new(vec![masked(mode, SPECIAL, 0)?])?,
            SeccompRule::new(vec![masked(flags, MAKES_FILE, 0)?])?,
        ])
    };
    allowed.insert(libc::SYS_openat, made(2, 3)?);
    #[cfg(target_arch = "x86_64")]
    allowed.insert(libc::SYS_open, made(1, 2)?);
    // Datagrams are enough for logs and the service manager; the doors of other services are streams.
    let datagrams = vec![equal(0, libc::AF_UNIX)?, masked(1, TYPE_MASK, libc::SOCK_DGRAM)?];
    allowed.insert(libc::SYS_socket, vec![SeccompRule::new(datagrams)?]);
    if rules.network != Network::Nobody {
        allowed.insert(libc::SYS_socket, any_of(0, &FAMILIES)?);
        // Kerberos may keep its tickets in the kernel.
        for call in [libc::SYS_bind, libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key] {
            allowed.insert(call, Vec::new());
        }
    }
    if rules.starts_programs {
        for call in [libc::SYS_fchmodat, FCHMODAT2] {
            allowed.insert(call, modes(2)?);
        }
        #[cfg(target_arch = "x86_64")]
        allowed.insert(libc::SYS_chmod, modes(1)?);
        allowed.extend(PROGRAMS.iter().map(|&call| (call, Vec::new())));
        #[cfg(target_arch = "x86_64")]
        allowed.extend(x86_64::PROGRAMS.iter().map(|&call| (call, Vec::new())));
    }
    Ok(allowed)
}

/// Bits of a mode: to run as the owner or the group, and to be written by everybody.
const GIVEN_AWAY: i32 = 0o6002;
/// The bits setuid, setgid and sticky.
const SPECIAL: i32 = 0o7000;
/// Flags with which open(2) makes files: `O_CREAT`, and `O_TMPFILE` without the flag for directories that belongs to it.
const MAKES_FILE: i32 = libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY);
/// The mode of directories of a cache of objects that a group shares.
const SHARED_DIRECTORY: i32 = 0o2770;
/// The type of a socket, without its flags.
const TYPE_MASK: i32 = 0xf;
/// With netlink the C library finds out which protocols this host speaks.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// The requests that sockets, and looks whether a file is a terminal, need.
const IOCTLS: [i32; 6] = [
    libc::FIONBIO as i32,
    libc::FIONREAD as i32,
    libc::FIOCLEX as i32,
    libc::TCGETS as i32,
    libc::TCGETS2 as i32,
    libc::TIOCGWINSZ as i32,
];
/// Names of threads and of memory. The last two install the filter itself, a second time.
const PRCTLS: [i32; 5] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_VMA,
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_NO_NEW_PRIVS,
];

/// Calls that the libc crate has no number for on every machine; the numbers are the same on all.
const CACHESTAT: i64 = 451;
const FCHMODAT2: i64 = 452;
const FUTEX_WAKE: i64 = 454;
const FUTEX_WAIT: i64 = 455;
const FUTEX_REQUEUE: i64 = 456;

/// The calls of a daemon while it serves: reads and writes of descriptors, rings that were made before, memory, threads, waits,
/// and files as far as Landlock lets it have them.
const EVERYWHERE: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_io_uring_enter,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_splice,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    CACHESTAT,
    // Files.
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_utimensat,
    libc::SYS_umask,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    // Threads and waits.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    FUTEX_WAKE,
    FUTEX_WAIT,
    FUTEX_REQUEUE,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_setsid,
    // Signals; which ones can be sent has conditions.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack,
    // Information about the process itself and the host.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_getrlimit,
    libc::SYS_capget,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    // seccomp itself: the second filter is installed under the first.
    libc::SYS_seccomp,
    // Sockets; which ones can be made has conditions.
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
];

/// The calls that start a program.
const PROGRAMS: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_openat2,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_setpgid,
    libc::SYS_fchdir,
    libc::SYS_fchown,
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_ioctl,
    libc::SYS_prctl,
];

/// Calls that newer machines have not: each has a successor in the other list.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    pub(super) const OLD: &[i64] = &[
        libc::SYS_stat,
        libc::SYS_lstat,
        libc::SYS_access,
        libc::SYS_readlink,
        libc::SYS_mkdir,
        libc::SYS_rmdir,
        libc::SYS_unlink,
        libc::SYS_rename,
        libc::SYS_link,
        libc::SYS_dup2,
        libc::SYS_pipe,
        libc::SYS_poll,
        libc::SYS_select,
        libc::SYS_epoll_wait,
        libc::SYS_time,
        libc::SYS_pause,
        libc::SYS_getpgrp,
        libc::SYS_arch_prctl,
    ];

    pub(super) const PROGRAMS: &[i64] = &[libc::SYS_fork, libc::SYS_vfork];
}
