
# Mount points, mount options and settings, as `ffrfs completions --offer` prints them.
_ffrfs_with_offers() {
    _ffrfs "$@"
    # bash takes NAME=VALUE for three words.
    local at=$COMP_CWORD word=${COMP_WORDS[COMP_CWORD]}
    while (( at > 1 )) && [[ ${COMP_WORDS[at]} == = || ${COMP_WORDS[at-1]} == = ]]; do
        (( at-- ))
        word=${COMP_WORDS[at]}$word
    done
    local kind= before=
    case ${COMP_WORDS[1]} in
        mount) [[ ${COMP_WORDS[at-1]} == -o || ${COMP_WORDS[at-1]} == --options ]] && kind=options ;;
        bench) [[ ${COMP_WORDS[at-1]} == -O || ${COMP_WORDS[at-1]} == --mount-option ]] && kind=options ;;
        set) (( at == 2 )) && kind=mounts || kind=settings ;;
        umount|upgrade|stats|top|trace|warmup|doctor) kind=mounts ;;
    esac
    case ${COMP_WORDS[at-1]} in
        # What follows these is a value.
        --config|--watch|--interval|-d|--list|-f|--chrome|--seconds|-s|--op|--slow|--path) kind= ;;
    esac
    [[ $kind && $word != -* ]] || return 0
    if [[ $kind == options && $word == *,* ]]; then
        before=${word%,*},
        word=${word##*,}
    fi
    local line found=()
    while IFS= read -r line; do
        # Values are offered behind `=` alone.
        [[ $kind != mounts && $word != *=* && $line == *=?* ]] && continue
        [[ $line == "$word"* ]] && found+=("$before$line")
    done < <("${COMP_WORDS[0]}" completions --offer $kind 2>/dev/null)
    if [[ $kind == mounts ]]; then
        # Where none fits, or a container may stand there too, bash completes names of files.
        COMPREPLY=("${found[@]}")
        [[ ${COMP_WORDS[1]} == doctor ]] && mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$word")
        compopt -o filenames 2>/dev/null
        return 0
    fi
    word=$before$word
    local kept=${word%"${word##*=}"}
    COMPREPLY=("${found[@]#"$kept"}")
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}
if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _ffrfs_with_offers -o nosort -o bashdefault -o default ffrfs
else
    complete -F _ffrfs_with_offers -o bashdefault -o default ffrfs
fi
