"""tar, rsync, find and nginx over a mount find and give the same as over loose files."""

import os
import subprocess

import samples


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def test_every_file_has_the_same_bytes(loose, mounted):
    assert samples.contents(mounted.folder) == samples.contents(loose)


def test_tar_packs_the_same_files(loose, mounted, tmp_path):
    run("tar", "-C", mounted.folder, "-cf", tmp_path / "copy.tar", ".")
    (tmp_path / "out").mkdir()
    run("tar", "-C", tmp_path / "out", "-xf", tmp_path / "copy.tar")
    assert samples.contents(tmp_path / "out") == samples.contents(loose)


def test_tar_finds_no_difference_between_an_archive_and_its_mount(mounted):
    """Bytes, and what else tar keeps; an FFRecord container keeps no modes and times of its members."""
    if mounted.source == "tar":
        assert run("tar", "-C", mounted.folder, "-df", mounted.container) == ""


def test_rsync_copies_the_same_files_and_nothing_when_it_runs_again(loose, mounted, tmp_path):
    command = ("rsync", "-a", "--itemize-changes", f"{mounted.folder}/", f"{tmp_path}/")
    assert run(*command).count(">f+++") == len(samples.files(loose))
    assert samples.contents(tmp_path) == samples.contents(loose)
    assert run(*command) == ""
    assert run(*command, "--checksum") == ""


def test_rsync_finds_no_file_to_send_from_loose_files(loose, mounted):
    run("rsync", "-rn", "--checksum", f"{loose}/", f"{mounted.folder}/")
    changes = run("rsync", "-rn", "--checksum", "--itemize-changes", f"{loose}/", f"{mounted.folder}/")
    assert not [line for line in changes.splitlines() if line.startswith("<f") or line.startswith(">f")]


def newer(folder, than, seconds):
    os.utime(than, (seconds, seconds))
    found = run("find", ".", "-type", "f", "-newer", than, cwd=folder)
    return sorted(line.removeprefix("./") for line in found.splitlines())


def test_find_newer_finds_the_same_files(loose, mounted, tmp_path):
    """Members of a zip or tar have times of their own, samples of an FFRecord container have the container's."""
    reference = tmp_path / "reference"
    reference.touch()
    everything = sorted(map(str, samples.files(loose)))
    if mounted.source in ("zip", "tar"):
        middle = samples.OLDEST + 60 * (len(everything) // 2)
        wanted = newer(loose, reference, middle)
        assert 0 < len(wanted) < len(everything)
        assert newer(mounted.folder, reference, middle) == wanted
    else:
        assert newer(mounted.folder, reference, samples.CONTAINER_TIME - 2) == everything
        assert newer(mounted.folder, reference, samples.CONTAINER_TIME) == []


def test_nginx_serves_the_same_files(loose, mounted, web, tmp_path):
    paths = samples.files(loose)
    wishes = "".join(f'url = "http://localhost/{path}"\noutput = "{tmp_path}/{path}"\n' for path in paths)
    with web(mounted.folder) as socket:
        run("curl", "--silent", "--show-error", "--fail", "--create-dirs", "--unix-socket", socket, "--config", "-",
            input=wishes)
    assert samples.contents(tmp_path) == samples.contents(loose)


def test_nginx_serves_the_same_ranges(loose, mounted, web):
    whole = (loose / "arrays/large.npy").read_bytes()
    last = len(whole) - 1
    with web(mounted.folder) as socket:
        for first, end in ((0, 0), (100, 4195), (4096, 8191), (1_000_001, 5_000_000), (last - 10, last)):
            answer = subprocess.run(
                ["curl", "--silent", "--fail", "--include", "--range", f"{first}-{end}", "--unix-socket", socket,
                 "http://localhost/arrays/large.npy"], check=True, stdout=subprocess.PIPE).stdout
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 206") and f"bytes {first}-{end}/{len(whole)}".encode() in head
            assert body == whole[first:end + 1]
