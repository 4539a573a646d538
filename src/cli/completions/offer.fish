
# Mount points, mount options and settings, as `ffrfs completions --offer` prints them.
function __fish_ffrfs_options
    set -l before (commandline -ct | string match -r '^.*,')
    for option in (ffrfs completions --offer options 2>/dev/null)
        echo "$before$option"
    end
end
complete -c ffrfs -n "__fish_ffrfs_using_subcommand mount" -s o -l options -x -a "(__fish_ffrfs_options)"
complete -c ffrfs -n "__fish_ffrfs_using_subcommand bench" -s O -l mount-option -x -a "(__fish_ffrfs_options)"
complete -c ffrfs -n "__fish_ffrfs_using_subcommand umount upgrade stats top trace warmup doctor bench" -a "(ffrfs completions --offer mounts 2>/dev/null)"
complete -c ffrfs -n "__fish_ffrfs_using_subcommand set; and test (count (commandline -opc)) -lt 3" -a "(ffrfs completions --offer mounts 2>/dev/null)"
complete -c ffrfs -n "__fish_ffrfs_using_subcommand set; and test (count (commandline -opc)) -ge 3" -f -a "(ffrfs completions --offer settings 2>/dev/null)"
