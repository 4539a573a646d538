//! The manual pages and the completions: they cover every command and option, and the real programs take them.

use crate::common::{
    FFRFS, Mount, Need, TempDir, Transport, container_in, ffrfs, have, run, samples, temp_dir,
};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with all pages.
fn manual() -> (TempDir, Vec<PathBuf>) {
    let directory = temp_dir();
    ffrfs(&["man".as_ref(), directory.path().as_os_str()]).ok();
    let within = |path: &Path| -> Vec<PathBuf> {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let pages = within(directory.path()).iter().flat_map(|section| within(section)).collect();
    (directory, pages)
}

fn name(page: &Path) -> &str {
    page.file_name().unwrap().to_str().unwrap()
}

/// The commands that `--help` lists, each with its description.
fn commands() -> Vec<(String, String)> {
    let help = ffrfs(&["--help"]).ok().text();
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        match line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) {
            Some(entry) => {
                let (name, about) = entry.split_once(' ').unwrap();
                commands.push((name.to_owned(), about.trim().to_owned()));
            }
            // A line that is too long goes on in the next one.
            None => commands.last_mut().unwrap().1 += &format!(" {}", line.trim()),
        }
    }
    commands.retain(|(name, _)| name != "help");
    commands
}

#[test]
fn every_command_has_a_page_and_there_are_no_others() {
    let (_directory, pages) = manual();
    let found: BTreeSet<_> = pages.iter().map(|page| name(page).to_owned()).collect();
    let commands = commands();
    let mut wanted: BTreeSet<_> =
        commands.iter().map(|(command, _)| format!("ffrfs-{command}.1")).collect();
    wanted.extend(["ffrfs.1".to_owned(), "mount.ffrfs.8".to_owned()]);
    assert!(commands.len() >= 10);
    assert_eq!(found, wanted);
}

#[test]
fn each_page_lies_in_the_directory_of_its_section() {
    let (directory, pages) = manual();
    for page in &pages {
        let (_, section) = name(page).rsplit_once('.').unwrap();
        assert_eq!(page.parent(), Some(&*directory.path().join(format!("man{section}"))));
    }
    assert!(pages.iter().any(|page| page.ends_with("man8/mount.ffrfs.8")));
}

#[test]
fn every_page_has_the_sections_that_people_look_for() {
    let (_directory, pages) = manual();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        assert!(text.is_ascii(), "{}", name(page));
        for section in ["NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
            let heading = [format!(".SH {section}\n"), format!(".SH \"{section}\"\n")];
            let count: usize = heading.iter().map(|heading| text.matches(heading).count()).sum();
            assert_eq!(count, 1, "{}: {section}", name(page));
        }
    }
}

#[test]
fn the_manual_programs_have_nothing_to_say_against_the_pages() {
    if !have(Need::Program("mandoc")) || !have(Need::Program("groff")) {
        return;
    }
    let (_directory, pages) = manual();
    let lint = run(Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(&pages));
    assert_eq!((lint.code, lint.text().as_str()), (0, ""));
    for page in &pages {
        let groff = run(Command::new("groff").args(["-man", "-ww", "-z", "-T", "utf8"]).arg(page));
        assert_eq!((groff.code, groff.stderr.as_str()), (0, ""), "{}", name(page));
    }
}

#[test]
fn whatis_finds_each_page_by_the_line_that_help_prints() {
    if !have(Need::Program("lexgrog")) {
        return;
    }
    let (directory, _) = manual();
    for (command, about) in commands() {
        let page = directory.path().join(format!("man1/ffrfs-{command}.1"));
        let said = run(Command::new("lexgrog").arg(&page)).ok().text();
        assert_eq!(said, format!("{}: \"ffrfs-{command} - {about}\"\n", page.display()));
    }
}

#[test]
fn a_page_names_every_option_of_its_command() {
    if !have(Need::Program("mandoc")) {
        return;
    }
    let (directory, _) = manual();
    let read = |page: &str| {
        let page = directory.path().join(page);
        run(Command::new("mandoc").args(["-T", "ascii", "-O", "width=200"]).arg(page)).ok().text()
    };
    // Without the overprinting that makes letters bold.
    let plain = |text: String| -> String {
        let bytes: Vec<char> = text.chars().collect();
        let kept = bytes
            .iter()
            .enumerate()
            .filter(|(i, c)| **c != '\x08' && bytes.get(i + 1).is_none_or(|next| *next != '\x08'));
        kept.map(|(_, c)| *c).collect()
    };
    let mut count = 0;
    for (command, _) in commands() {
        let page = plain(read(&format!("man1/ffrfs-{command}.1")));
        let help = ffrfs(&[&command, "--help"]).ok().text();
        let options = help.lines().filter_map(|line| line.trim_start().strip_prefix('-'));
        // "- typed: …" is a value.
        for option in options.filter(|option| !option.starts_with(' ')) {
            let option = format!("-{}", option.split("  ").next().unwrap()).replace('…', "...");
            assert!(page.contains(&option), "{command}: {option}");
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
    let helper = plain(read("man8/mount.ffrfs.8"));
    for option in ["allow_other", "cache_size=SIZE", "memory=SIZE|N%", "verify=WHEN", "ro"] {
        assert!(helper.lines().any(|line| line.trim_start().starts_with(option)), "{option}");
    }
    assert!(!helper.contains("foreground"));
}

#[test]
fn the_date_of_a_page_can_be_given() {
    let directory = temp_dir();
    let mut command = Command::new(FFRFS);
    run(command.env("SOURCE_DATE_EPOCH", "951782400").arg("man").arg(directory.path())).ok();
    let page = fs::read_to_string(directory.path().join("man1/ffrfs.1")).unwrap();
    assert!(page.contains("\n.TH FFRFS 1 2000-02-29 "), "{page}");
}

#[test]
fn pages_that_cannot_be_written_are_said() {
    let directory = temp_dir();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let outcome = ffrfs(&["man".as_ref(), file.as_os_str()]);
    assert_eq!(outcome.code, 6, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("file"), "{}", outcome.stderr);
}

// ---- completions ---------------------------------------------------------------------------------

/// Writes the completions for a shell to a file of this name.
fn completions(shell: &str, directory: &TempDir, file: &str) -> PathBuf {
    let path = directory.path().join(file);
    fs::write(&path, ffrfs(&["completions", shell]).ok().stdout).unwrap();
    path
}

/// The words that are offered for a line, whose last word is being typed.
type Offer<'a> = &'a dyn Fn(&[&str]) -> BTreeSet<String>;

/// Checks the completions that are the same in every shell: commands, options, values, files.
fn completes(offer: Offer) {
    let has = |line: &[&str], wanted: &[&str]| {
        let offered = offer(line);
        for word in wanted {
            assert!(offered.contains(*word), "{line:?} offers no {word}: {offered:?}");
        }
        offered
    };
    let commands = commands();
    let names: Vec<_> = commands.iter().map(|(name, _)| name.as_str()).collect();
    let offered = has(&["ffrfs", ""], &names);
    assert!(!offered.contains("man"), "what is hidden is not offered");
    assert_eq!(offer(&["ffrfs", "umo"]), BTreeSet::from(["umount".to_owned()]));
    let offered = has(&["ffrfs", "mount", "--read"], &["--readdirplus"]);
    assert!(offered.iter().all(|word| word.starts_with("--read")), "{offered:?}");
    has(&["ffrfs", "doctor", "--"], &["--json"]);
    // Options may stand behind names.
    has(&["ffrfs", "mount", "data.ffr", "mnt", "--readdir"], &["--readdirplus"]);
    has(&["ffrfs", "ls", "data.ffr", "--recurs"], &["--recursive"]);
    let formats = has(&["ffrfs", "convert", "--to", ""], &["zip", "tar", "ffr", "directory"]);
    assert!(!formats.contains("data.ffr"), "{formats:?}");
    let times = ["always", "once", "off"].map(str::to_owned);
    assert_eq!(offer(&["ffrfs", "mount", "--verify", ""]), BTreeSet::from(times));
}

/// Checks the completions that the shell must ask the program for: options, settings, mount points.
fn completes_what_the_program_knows(offer: Offer) {
    let has = |line: &[&str], wanted: &[&str]| {
        let offered = offer(line);
        let is_offered = wanted.iter().any(|word| offered.contains(*word));
        assert!(is_offered, "{line:?} offers none of {wanted:?}: {offered:?}");
        offered
    };
    has(&["ffrfs", "mount", "-o", "allow_o"], &["allow_other"]);
    has(&["ffrfs", "mount", "data.ffr", "mnt", "-o", "allow_o"], &["allow_other"]);
    // The text before the comma belongs to the word or not, depending on the shell.
    has(&["ffrfs", "mount", "-o", "ro,cache_s"], &["ro,cache_size=", "cache_size="]);
    let offered = has(&["ffrfs", "set", "/mnt", "verify=o"], &["verify=once", "once"]);
    assert!(!offered.iter().any(|word| word.contains("always")), "{offered:?}");
    has(&["ffrfs", "set", "/mnt", "mem"], &["memory="]);
    if !have(Need::Fuse) {
        return;
    }
    let mount = Mount::with_samples(Transport::DevFuse, &samples(1, 10), &[]);
    let point = mount.point().to_str().unwrap();
    for command in ["umount", "upgrade", "set", "stats", "top", "doctor", "trace", "warmup"] {
        has(&["ffrfs", command, &point[..point.len() - 1]], &[point]);
    }
    let offered = offer(&["ffrfs", "umount", "-z", ""]);
    assert!(offered.contains(point), "{offered:?}");
    for command in ["umount", "stats", "set", "top"] {
        let offered = offer(&["ffrfs", command, ""]);
        let is_only_mounts = offered.contains(point) && !offered.contains("data.ffr");
        assert!(is_only_mounts, "{command}: {offered:?}");
    }
    has(&["ffrfs", "doctor", ""], &[point]);
}

/// A path on which the shell finds this program.
fn path_with_program() -> std::ffi::OsString {
    let directory = std::path::Path::new(FFRFS).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(directory).chain(std::env::split_paths(&path))).unwrap()
}

fn words(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_values_and_files() {
    if !have(Need::Program("bash")) {
        return;
    }
    let directory = temp_dir();
    let file = completions("bash", &directory, "ffrfs");
    container_in(&directory, &samples(1, 10));
    // Calls the function that `complete -F` names, as readline does.
    let code = r#"
        cd "$1" && . "$2" && shift 2
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
        function=$(complete -p ffrfs | sed 's/.* -F \([^ ]*\) .*/\1/')
        $function ffrfs "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let offer = |line: &[&str]| {
        let mut bash = Command::new("bash");
        bash.env("PATH", path_with_program());
        bash.args(["--norc", "-c", code, "bash"]).arg(directory.path()).arg(&file).args(line);
        let outcome = run(&mut bash).ok();
        assert_eq!(outcome.stderr, "", "{line:?}");
        words(&outcome.text())
    };
    completes(&offer);
    completes_what_the_program_knows(&offer);
    assert!(offer(&["ffrfs", "mount", "--names", "da"]).contains("data.ffr"));
    assert_eq!(offer(&["ffrfs", "completions", "z"]), BTreeSet::from(["zsh".to_owned()]));
    // bash splits words at `=`, and replaces the last one.
    let line = ["ffrfs", "mount", "-o", "cache_size", "=", "1G,verify", "=", "al"];
    assert_eq!(offer(&line), BTreeSet::from(["always".to_owned()]));
    if !have(Need::Fuse) {
        return;
    }
    let place = temp_dir();
    let container = container_in(&place, &samples(1, 10));
    let point = place.path().join("my lr=0.1");
    fs::create_dir(&point).unwrap();
    let mount = Mount::at(Transport::DevFuse, &[&container], &[], place, point);
    let point = mount.point().to_str().unwrap();
    let typed = point.replace(' ', "\\ ");
    let (before, _) = typed.split_once('=').unwrap();
    let offered = offer(&["ffrfs", "umount", "-f", before]);
    assert_eq!(offered, BTreeSet::from([point.to_owned()]));
    let offered = offer(&["ffrfs", "umount", "-f", before, "=", "0"]);
    assert_eq!(offered, BTreeSet::from(["0.1".to_owned()]));
}

#[test]
fn zsh_completes_commands_options_values_and_files() {
    if !have(Need::Program("zsh")) {
        return;
    }
    let directory = temp_dir();
    completions("zsh", &directory, "_ffrfs");
    container_in(&directory, &samples(1, 10));
    let offer = |line: &[&str]| {
        let mut zsh = Command::new("zsh");
        zsh.env("PATH", path_with_program());
        zsh.env("HOME", directory.path()).args(["-f", "-c", IN_ZSH, "zsh"]);
        words(&run(zsh.arg(directory.path()).arg(line.join(" "))).ok().text())
    };
    completes(&offer);
    completes_what_the_program_knows(&offer);
    assert!(offer(&["ffrfs", "mount", "--names", "da"]).contains("data.ffr"));
    assert_eq!(offer(&["ffrfs", "completions", "z"]), BTreeSet::from(["zsh".to_owned()]));
}

/// zsh completes at a terminal only: one that it makes for another zsh, which writes down all words that are
/// offered (builtin compadd -O: those of them that fit the typed word).
const IN_ZSH: &str = r#"
zmodload zsh/zpty
cd $1 && rm -f offered finished
cat > setup <<'SETUP'
PROMPT= fpath=($PWD $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {
    local -a fitting
    builtin compadd -O fitting "$@"
    (( $#fitting )) && print -rl -- $fitting >> offered
    builtin compadd "$@"
}
finish() { : > finished }
comppostfuncs=(finish)
print ready
SETUP
zpty shell zsh -f -i
zpty -w shell 'source ./setup'
zpty -r -m shell seen '*ready*'
zpty -w -n shell "$2"$'\t'
repeat 1500; do [[ -e finished ]] && break; sleep 0.02; done
zpty -d shell
[[ -e finished ]] && cat offered"#;

#[test]
fn fish_completes_commands_options_values_and_files() {
    if !have(Need::Program("fish")) {
        return;
    }
    let directory = temp_dir();
    let file = completions("fish", &directory, "ffrfs.fish");
    container_in(&directory, &samples(1, 10));
    let offer = |line: &[&str]| {
        let mut fish = Command::new("fish");
        fish.env("PATH", path_with_program());
        fish.env("HOME", directory.path()).current_dir(directory.path()).arg("--no-config");
        let code = "source $argv[1]; complete --do-complete \"$argv[2]\"";
        let outcome = run(fish.args(["-c", code]).arg(&file).arg(line.join(" "))).ok();
        assert_eq!(outcome.stderr, "", "{line:?}");
        // A tab and a description follow a word.
        let text = outcome.text();
        text.lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect()
    };
    completes(&offer);
    completes_what_the_program_knows(&offer);
    assert!(offer(&["ffrfs", "mount", "da"]).contains("data.ffr"));
    for (line, word) in
        [(["cache", ""], "verify"), (["completions", ""], "zsh"), (["help", "m"], "mount")]
    {
        let offered = offer(&[&["ffrfs"], &line[..]].concat());
        assert!(offered.contains(word) && !offered.contains("ffrfs.fish"), "{line:?}: {offered:?}");
    }
    let url = offer(&["ffrfs", "cache", "add", ""]);
    assert!(!url.contains("verify"), "{url:?}");
}
