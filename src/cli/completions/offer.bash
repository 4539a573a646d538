
# Mount points, mount options and settings, as `ffrfs completions --offer` prints them.
_ffrfs_with_offers() {
    _ffrfs "$@"
    # bash takes NAME=VALUE, and a path with a colon, for several words, of which it replaces the last one.
    local at=$COMP_CWORD last=${COMP_WORDS[COMP_CWORD]} breaks='^[=:]+$'
    local word=$last
    while (( at > 1 )) && [[ ${COMP_WORDS[at]} =~ $breaks || ${COMP_WORDS[at-1]} =~ $breaks ]]; do
        (( at-- ))
        word=${COMP_WORDS[at]}$word
    done
    [[ $last =~ $breaks ]] && last=
    # As the program would be given it: blanks are typed behind backslashes, or in quotes.
    word=${word//\\/} last=${last//\\/}
    [[ $word == [\"\']* ]] && word=${word:1}
    [[ $last == [\"\']* ]] && last=${last:1}
    local kept=${word%"$last"} kind= before=
    case ${COMP_WORDS[1]} in
        mount) [[ ${COMP_WORDS[at-1]} == -o || ${COMP_WORDS[at-1]} == --options ]] && kind=options ;;
        bench) [[ ${COMP_WORDS[at-1]} == -O || ${COMP_WORDS[at-1]} == --mount-option ]] && kind=options || kind=mounts ;;
        set) (( at == 2 )) && kind=mounts || kind=settings ;;
        umount|upgrade|stats|top|trace|warmup|doctor) kind=mounts ;;
    esac
    case ${COMP_WORDS[1]}:${COMP_WORDS[at-1]} in
        umount:-[!-]*|*:--json|*:--lazy|*:--force|*:--dead|*:--background|*:--drop|*:--cold|*:--) ;;
        # What follows any other option is its value.
        *:-*) [[ $kind == options ]] || kind= ;;
    esac
    [[ $kind && $word != -* ]] || return 0
    if [[ $kind == options && $word == *,* ]]; then
        before=${word%,*},
        word=${word##*,}
    fi
    local line found=()
    while IFS= read -r line; do
        # Values are offered behind `=` alone, and nothing where nothing would be added.
        [[ $kind != mounts && $word != *=* && $line == *=?* ]] && continue
        [[ $line == *= && $line == "$word" ]] && continue
        [[ $line == "$word"* ]] && found+=("$before$line")
    done < <("${COMP_WORDS[0]}" completions --offer $kind 2>/dev/null)
    if [[ $kind == mounts ]]; then
        # Where none fits, or a container may stand there too, bash completes names of files.
        case ${COMP_WORDS[1]} in
            doctor|bench) mapfile -t -O ${#found[@]} found < <(compgen -f -- "$word") ;;
        esac
        compopt -o filenames 2>/dev/null
    fi
    COMPREPLY=("${found[@]#"$kept"}")
    [[ $kind != mounts && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}
if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _ffrfs_with_offers -o nosort -o bashdefault -o default ffrfs
else
    complete -F _ffrfs_with_offers -o bashdefault -o default ffrfs
fi
