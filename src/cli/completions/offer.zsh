# Mount points, mount options and settings, as `ffrfs completions --offer` prints them.
_ffrfs_mounts() {
    local -a found
    found=(${(f)"$(ffrfs completions --offer mounts 2>/dev/null)"})
    # Where none fits, as of a relative path.
    (( $#found )) && compadd -- $found || _files -/
}
_ffrfs_mounts_and_files() {
    local -a found
    found=(${(f)"$(ffrfs completions --offer mounts 2>/dev/null)"})
    local ret=1
    (( $#found )) && compadd -- $found && ret=0
    _files && ret=0
    return ret
}
_ffrfs_options() {
    compset -P '*,'
    _ffrfs_pairs options
}
_ffrfs_settings() {
    _ffrfs_pairs settings
}
_ffrfs_pairs() {
    local -a found
    found=(${(f)"$(ffrfs completions --offer $1 2>/dev/null)"})
    # Values are offered behind `=` alone.
    [[ $PREFIX == *=* ]] || found=(${found:#*=?*})
    local -a names others
    names=(${(M)found:#*=}) others=(${found:#*=})
    local ret=1
    (( $#names )) && compadd -S '' -- $names && ret=0
    (( $#others )) && compadd -- $others && ret=0
    return ret
}

