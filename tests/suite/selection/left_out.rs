//! Files that are not shown, and the messages about them from commands that do not mount.

use super::{FILES, on, packed};

#[test]
fn commands_that_take_what_is_shown_say_how_many_files_are_not() {
    let (directory, source) = packed(&FILES, "x.zip");
    let says = "not all files in the containers are shown: 3 left out: files that macOS and Windows make \
                (--all shows them)";
    for (command, out, more) in [
        ("extract", Some("out"), "\n"),
        ("convert", Some("out.tar"), "\n"),
        ("convert", Some("files/"), "\n"),
        ("sum", None, "\n"),
        ("verify", None, "; verify counts them, too\n"),
    ] {
        let with_all = out.map(|out| format!("all-{out}"));
        let [out, with_all] = [out.map(str::to_owned), with_all]
            .map(|out| out.map(|out| directory.path().join(out).to_str().unwrap().to_owned()));
        let args: Vec<_> = out.as_deref().into_iter().collect();
        let said = on(command, &source, &args).ok().stderr;
        assert!(said.ends_with(&format!("{says}{more}")), "{command}: {said}");
        let args: Vec<_> = with_all.as_deref().into_iter().chain(["--all"]).collect();
        let said = on(command, &source, &args).ok().stderr;
        assert!(!said.contains("left out"), "{command} --all: {said}");
    }
}

#[test]
fn whoever_selects_files_is_not_told_that_others_are_not_shown() {
    let (directory, source) = packed(&FILES, "x.zip");
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for (command, out, selected) in [
        ("extract", Some(path("a")), ["--path", "train"]),
        ("extract", Some(path("b")), ["--include", "train"]),
        ("convert", Some(path("c.tar")), ["--exclude", "val"]),
        ("sum", None, ["--subdir", "train"]),
    ] {
        let args: Vec<_> = out.as_deref().into_iter().chain(selected).collect();
        let said = on(command, &source, &args).ok().stderr;
        assert!(!said.contains("left out"), "{command} {args:?}: {said}");
    }
}

#[test]
fn a_path_that_is_named_and_left_out_is_said_to_be_so() {
    let (directory, source) = packed(&FILES, "x.zip");
    let out = directory.path().join("out");
    let out = out.to_str().unwrap();
    for (command, args, path) in [
        ("cat", &["train/.DS_Store"][..], "train/.DS_Store: "),
        ("ls", &["--path", "__MACOSX/train"], "__MACOSX/train: "),
        ("ls", &["--subdir", "__MACOSX"], "--subdir __MACOSX: "),
        ("extract", &[out, "--path", "train/dog/._2.jpg"], "train/dog/._2.jpg: "),
    ] {
        let refused = on(command, &source, args);
        let says = format!("{path}is left out, as macOS and Windows make files of this name");
        assert_eq!(refused.code, 1, "{command}: {}", refused.stderr);
        assert!(refused.stderr.contains(&says), "{command}: {}", refused.stderr);
        assert!(refused.stderr.contains("--all shows it"), "{command}: {}", refused.stderr);
        on(command, &source, &[args, &["--all"]].concat()).ok();
    }
    let refused = on("ls", &source, &["--include", ".DS_Store"]).stderr;
    assert!(refused.contains("selects no sample; files that macOS and"), "{refused}");
    // Where no file is left out, such a file is missing as any other one is.
    let (_directory, source) = packed(&["a"], "y.zip");
    let refused = on("cat", &source, &[".DS_Store"]).stderr;
    assert!(refused.contains(".DS_Store: no such sample"), "{refused}");
}
