# shellcheck shell=bash
# Sourced by the other scripts: messages, packages, Rust, leftover mounts. Expects `set -euo pipefail`.

say() { printf '%s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# as_root COMMAND...: runs a command as root, also through sudo, which asks for a password only at a terminal.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have sudo && [ -t 0 ]; then
        sudo "$@"
    elif have sudo; then
        sudo -n "$@"
    else
        return 1
    fi
}

# packages_for PROGRAM=PACKAGE...: prints the packages (comma-separated) of the programs that are missing.
packages_for() {
    local pair
    for pair in "$@"; do
        have "${pair%%=*}" || printf '%s\n' "${pair#*=}" | tr ',' '\n'
    done
}

# install_packages PACKAGE...: installs packages of Debian; does nothing without a name.
install_packages() {
    [ $# -gt 0 ] || return 0
    local by_hand="install these packages as root, then start this script again: $*"
    have apt-get || fail "$by_hand (Debian's names)"
    as_root true || fail "$by_hand"
    say "Installing $*"
    as_root apt-get -qq update || warn "apt-get update failed"
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --yes --no-install-recommends "$@" </dev/null >/dev/null || fail "$by_hand"
}

# Finds cargo; fails if Rust is older than Cargo.toml's rust-version.
need_rust() {
    have cargo || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
    have cargo || fail "Rust is missing: https://rustup.rs tells how to install it"
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    found=$(rustc --version | cut -d ' ' -f 2)
    [ "$(printf '%s\n' "$wanted" "$found" | sort -V | sed -n 1p)" = "$wanted" ] ||
        fail "Rust $wanted or newer is needed, and this is $found (with rustup: rustup update stable)"
}

# need_target TRIPLE: installs Rust's library for the target by rustup, and for aarch64 a C compiler, and an emulator for the
# programs that are built (an array, `emulator`).
need_target() {
    if ! has_rustup_target "$1"; then
        have rustup || fail "Rust for $1 is missing: https://rustup.rs tells how to install rustup, which brings it"
        rustup target add "$1" || fail "rustup has not brought Rust for $1"
    fi
    [ "$1" != aarch64-unknown-linux-gnu ] || need_aarch64_compiler
}
has_rustup_target() { rustup target list --installed 2>/dev/null | grep -qx "$1"; }
need_aarch64_compiler() {
    local missing
    mapfile -t missing < <(packages_for aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu,libc6-dev-arm64-cross \
        qemu-aarch64=qemu-user)
    install_packages "${missing[@]}"
    emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="${emulator[*]}"
}

# c_library_version PROGRAM: prints the oldest version of the C library that has all symbols that the program takes from it.
c_library_version() {
    local version
    version=$(objdump -p "$1" | sed -n 's/.* GLIBC_\([0-9.]*\)$/\1/p' | sort -V | tail -n 1)
    [ -n "$version" ] || fail "$1 names no version of the C library"
    say "$version"
}

# Prints the folder that cargo builds in, whichever setting names it.
target_folder() {
    cargo metadata --format-version 1 --no-deps --locked |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

need_fuse_device() {
    [ -e /dev/fuse ] || as_root modprobe fuse 2>/dev/null || true
    [ -e /dev/fuse ] || fail "there is no /dev/fuse: as root, modprobe fuse;" \
        "a container needs --device /dev/fuse --cap-add SYS_ADMIN"
    [ "$(id -u)" = 0 ] || [ -w /dev/fuse ] ||
        fail "/dev/fuse is closed to users other than root: as root, chmod 666 /dev/fuse"
}

# Prints the mount points of type fuse.ffrfs, one a line (blanks as \040).
our_mounts() { awk '$3 == "fuse.ffrfs" { print $2 }' /proc/self/mounts; }
