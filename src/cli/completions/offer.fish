
# Mount points, mount options and settings, as `ffrfs completions --offer` prints them.
function __fish_ffrfs_options
    set -l before (commandline -ct | string match -r '^.*,')
    for option in (ffrfs completions --offer options 2>/dev/null)
        echo "$before$option"
    end
end
function __fish_ffrfs_mounts
    set -l typed (commandline -ct)
    set -l found (ffrfs completions --offer mounts 2>/dev/null)
    # Where none fits, as of a relative path, directories are offered.
    if string match -q -r -- "^"(string escape --style=regex -- "$typed") $found
        printf '%s\n' $found
    else
        __fish_complete_directories "$typed"
    end
end
complete -c ffrfs -n "__fish_ffrfs_using_subcommand mount" -s o -l options -x -a "(__fish_ffrfs_options)"
complete -c ffrfs -n "__fish_ffrfs_using_subcommand bench" -s O -l mount-option -x -a "(__fish_ffrfs_options)"
complete -c ffrfs -n "__fish_ffrfs_using_subcommand umount upgrade stats top trace warmup" -f -a "(__fish_ffrfs_mounts)"
complete -c ffrfs -n "__fish_ffrfs_using_subcommand doctor bench" -a "(ffrfs completions --offer mounts 2>/dev/null)"
complete -c ffrfs -n "__fish_ffrfs_using_subcommand set; and test (count (commandline -opc)) -lt 3" -f -a "(__fish_ffrfs_mounts)"
complete -c ffrfs -n "__fish_ffrfs_using_subcommand set; and test (count (commandline -opc)) -ge 3" -f -a "(ffrfs completions --offer settings 2>/dev/null)"
