"""Parts of the bench-… scripts: data sets, caches, mounts, rounds, tables."""

import argparse
import atexit
import contextlib
import fcntl
import json
import os
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench_data import BenchError, Dataset, say

HERE = Path(__file__).resolve().parent
DROP_CACHES = "/proc/sys/vm/drop_caches"


# ---- caches -------------------------------------------------------------------------------------------------------

def warm(path):
    """Brings a file into the page cache."""
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass


def drop_caches(what):
    os.sync()
    Path(DROP_CACHES).write_text(str(what))


# ---- mounts -------------------------------------------------------------------------------------------------------

def is_mounted(path):
    escaped = str(path).replace("\\", "\\134").replace(" ", "\\040")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        return any(line.split(" ")[4] == escaped for line in table)


def daemons(mountpoint):
    """Processes that were started with this mount point as an argument."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(mountpoint) in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(entry)
    return found


def unmount(mountpoint):
    """Unmounts, at the last of ten attempts lazily; then waits until the daemon has ended, for 20 s at most."""
    command = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
    for attempt in range(10):
        if not is_mounted(mountpoint):
            break
        lazy = ["-l" if os.geteuid() == 0 else "-z"] if attempt == 9 else []
        done = subprocess.run([*command, *lazy, str(mountpoint)], stderr=subprocess.DEVNULL)
        if done.returncode:
            time.sleep(0.2)
    deadline = time.monotonic() + 20
    while daemons(mountpoint) and time.monotonic() < deadline:
        time.sleep(0.01)


class Program:
    """A program that mounts an archive: `command ARCHIVE MOUNTPOINT`."""

    def __init__(self, name, command, kind, options=(), foreground=False, env=()):
        self.name, self.command, self.kind = name, command, kind
        self.options, self.foreground = list(options), foreground
        self.env = {**os.environ, **dict(env)}

    @contextlib.contextmanager
    def mounted(self, archive, work):
        """Mounts; gives the mount point and the seconds that mounting took."""
        point, log = work / "mnt", work / "mount.log"
        with open(log, "wb") as output:
            start = time.monotonic()
            child = subprocess.Popen([*self.command, str(archive), str(point), *self.options], env=self.env,
                                     stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
            try:
                yield point, self.wait(child, point, start, log)
            finally:
                if not is_mounted(point):
                    child.terminate()  # the program was interrupted while it was mounting, or has ended already
                unmount(point)
                if child.poll() is None:
                    child.terminate()
                    child.wait()

    def wait(self, child, point, start, log):
        """Waits for the mount: a program in the foreground is ready when the mount shows, another program when it returns."""
        if self.foreground:
            while child.poll() is None and not is_mounted(point):
                time.sleep(0.001)
        else:
            child.wait()
        seconds = time.monotonic() - start
        if child.returncode or not is_mounted(point):
            tail = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise BenchError(f"{self.name} failed to mount (status {child.returncode}): {' '.join(tail)}")
        return seconds


def resident(mountpoint):
    """Resident memory of the daemon in MB: all, anonymous, of files; and all but the mapped container."""
    best = {}
    for process in daemons(mountpoint):
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
        kib = {key: int(status.get(key, "0 kB").split()[0]) for key in ("VmRSS", "RssAnon", "RssFile")}
        mapped, in_container = 0, False
        for line in (process / "smaps").read_text(errors="replace").splitlines():
            if not line.split(" ", 1)[0].endswith(":"):
                in_container = line.endswith(".ffr")
            elif in_container and line.startswith("Rss:"):
                mapped += int(line.split()[1])
        if kib["VmRSS"] > best.get("VmRSS", -1):
            best = {**kib, "beside the mapped container": kib["VmRSS"] - mapped}
    if not best:
        raise BenchError("no process has the mount point among its arguments: its memory cannot be read")
    return {key: value * 1024 / 1e6 for key, value in best.items()}


# ---- measuring ----------------------------------------------------------------------------------------------------

class Bench:
    """The base of all measurements: each row of a table is a method of a subclass."""

    def __init__(self, args, work):
        self.args, self.work, self.lines, self.raw = args, work, [], []
        counts = (5000, 500) if args.quick else args.counts
        self.small = Dataset(work, "small", counts[0], 3000)
        self.large = Dataset(work, "large", counts[1], 110_000)
        self.reader = work / "readbench"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-pthread", str(HERE / "readbench.c"), "-o",
                        str(self.reader)], check=True)

    def ffrfs(self, *options, kind="ffr"):
        wanted = [option for option in (*options, self.args.options) if option]
        flags = ["-o", ",".join(wanted)] if wanted else []
        return Program("ffrfs", [*shlex.split(self.args.ffrfs), "mount"], kind, flags)

    def read(self, folder, data, threads, seed, order="random", suffix=""):
        return self.read_and_slowest(folder, data, threads, seed, order, suffix)[0]

    def read_and_slowest(self, folder, data, threads, seed, order="random", suffix=""):
        """Reads all samples; gives the seconds for all, and for the slowest sample."""
        command = [self.reader, folder, data.count, threads, seed, data.size]
        done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "ORDER": order, "SUFFIX": suffix})
        if done.returncode:
            raise BenchError(f"reading {folder} failed")
        words = done.stdout.split()
        return float(words[0]), float(words[-2])

    def read_fresh(self, program, data, threads, seed, cold=False, order="random", suffix=""):
        """Mounts, reads all samples once, unmounts; gives the seconds of reading, and those of mounting and reading."""
        archive = data.get(program.kind)
        if not cold:
            warm(archive)
        with program.mounted(archive, self.work) as (point, mounting):
            if cold:
                drop_caches(3)
            else:
                os.sync()  # some peers unpack to a file as they mount
            reading = self.read(point, data, threads, seed, order, suffix)
            return reading, mounting + reading

    def interleave(self, subjects):
        """Runs every subject in turn, `rounds` times after a warm-up; a subject gets the round's number, 1 for the warm-up."""
        times = {name: [] for name in subjects}
        for round_number in range(self.args.rounds + 1):
            for name, run in subjects.items():
                value = run(round_number + 1)
                if round_number:
                    times[name].append(value)
            say(f"round {round_number} of {self.args.rounds}" + ("" if round_number else " (warm-up)"))
        return times

    def report(self, what, ours, theirs, goal, show):
        """Writes a line of the table. `theirs` is (name, seconds); the ratio is of speeds."""
        ratio = statistics.median(theirs[1]) / statistics.median(ours)
        wanted = "" if goal is None else f"{goal:.2f}{self.verdict(ratio >= goal)}"
        self.line(what, show(ours), f"{theirs[0]}: {show(theirs[1])}", f"{ratio:.2f}", wanted)
        self.raw.append({"what": what, "ffrfs_seconds": ours, "beside": theirs[0], "beside_seconds": theirs[1],
                         "ratio": ratio, "goal": goal})

    def verdict(self, met):
        """The note on whether a goal is met; empty in a quick run, which decides nothing."""
        return "" if self.args.quick else " met" if met else " MISSED"

    def line(self, *cells):
        self.lines.append("| " + " | ".join(cells) + " |")
        say("   ".join(cells))


def announce(point, order):
    """Writes sample numbers as raw u64 to the control file."""
    try:
        with open(point / ".ffrfs/prefetch", "wb", buffering=0) as file:
            while order:
                order = order[file.write(order):]
    except OSError as error:
        raise BenchError(f"the order cannot be announced: {error}") from None


def column(rows, number):
    return [row[number] for row in rows]


def title(data):
    return f"{data.count:,} files of {data.size // 1000} KB"


def spread(values, unit):
    digits = 1 if statistics.median(values) < 100 else 0
    middle, low, high = (f"{v:,.{digits}f}" for v in (statistics.median(values), min(values), max(values)))
    return f"{middle} {unit} ({low}–{high})"


def speed(data):
    """A function that shows speeds: in files/s if the files are small, else in MB/s."""
    amount, unit = (data.count, "files/s") if data.label == "small" else (data.count * data.size / 1e6, "MB/s")
    return lambda seconds: spread([amount / s for s in seconds], unit)


# ---- the program --------------------------------------------------------------------------------------------------

def parser(about, rows):
    """The options that all measurements have."""
    default_dir = Path(os.environ.get("TMPDIR", "/tmp")) / "ffrfs-bench"
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--dir", type=Path, default=default_dir, help="where the data sets are (default: %(default)s);"
                      " a full run with all peers needs 20 GB, and as much memory for the page cache")
    made.add_argument("--ffrfs", default=str(HERE.parent / "target/release/ffrfs"), help="the program to measure")
    made.add_argument("--options", default="", metavar="OPT[,OPT]", help="-o options for every ffrfs mount")
    made.add_argument("--rounds", type=int, default=5, help="measured rounds (default: 5)")
    made.add_argument("--only", default=",".join(rows), metavar="ROW[,ROW]", help=f"rows: {', '.join(rows)}")
    made.add_argument("--counts", type=lambda text: tuple(int(part) for part in text.split(",", 1)), metavar="SMALL,LARGE",
                      default=(200_000, 30_000), help="how many small and large samples (default: 200000,30000)")
    made.add_argument("--quick", action="store_true", help="small data sets: shows that it works, not how fast")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the raw figures")
    return made


def parse(made, rows):
    args = made.parse_args()
    args.rows = [row for row in args.only.split(",") if row]
    if unknown := [row for row in args.rows if row not in rows]:
        made.error(f"no such row: {', '.join(unknown)} (rows: {', '.join(rows)})")
    if args.rounds < 1:
        made.error("--rounds must be at least 1")
    return args


def machine():
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 1e6
    return f"Linux {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs, {memory:.0f} GB of memory"


def busy_percent():
    """The share of the CPUs that other programs use while this program sleeps for a second, in percent."""
    def ticks():
        fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    (total, idle), _, (later, idle_later) = ticks(), time.sleep(1), ticks()
    return 100 * (1 - (idle_later - idle) / max(later - total, 1))


def prepare(args):
    """The folder for data sets and the mount point, which no other run can use until this run ends."""
    if not shutil.which(shlex.split(args.ffrfs)[0]):
        raise BenchError(f"{args.ffrfs} is not there; build it (cargo build --release) or give --ffrfs PROG")
    work = args.dir.resolve()
    (work / "mnt").mkdir(parents=True, exist_ok=True)
    lock = open(work / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BenchError(f"another run uses {work}") from None
    atexit.register(lock.close)  # held until the run ends
    atexit.register(unmount, work / "mnt")
    unmount(work / "mnt")  # the mount of a run that was killed
    return work


def run(args, kind, rows, need_root):
    refused = sorted(need_root.intersection(args.rows))
    if refused and not os.access(DROP_CACHES, os.W_OK):
        allowed = ",".join(row for row in args.rows if row not in need_root)
        raise BenchError(f"{' and '.join(refused)} drop the kernel's caches, which needs root; run as root"
                         + (f", or with --only {allowed}" if allowed else ""))
    work = prepare(args)
    bench = kind(args, work)
    busy, failed = [], []
    for row in args.rows:
        busy.append(busy_percent())
        say(f"row {row}" + (f": others use {busy[-1]:.0f} % of the CPUs, so it will be rough" if busy[-1] > 10 else ""))
        try:
            rows[row](bench)
        except (BenchError, subprocess.CalledProcessError) as error:
            failed.append(row)  # the figures of the other rows took hours
            say(f"row {row} failed: {explain(error)}")
    size = "quick run: too small to judge by" if args.quick else "whole run"
    print(f"{machine()}, up to {max(busy):.0f} % of the CPUs in use by others; {size}, medians of {args.rounds} rounds"
          " (least–most); ratios of speeds, above 1 ffrfs is faster\n")
    print("| measurement | ffrfs | beside | ratio | at least |\n| --- | --- | --- | --- | --- |")
    print("\n".join(bench.lines))
    if args.json:
        figures = {"machine": machine(), "others_busy_percent": busy, "quick": args.quick, "rows": bench.raw}
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    if failed:
        raise BenchError(f"failed: {', '.join(failed)}")


def write_into(page, mark, block):
    """Writes a block into a page, between <!-- mark --> and <!-- /mark -->."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise BenchError(f"{page} has no {begin} … {end} to write between")
    page.write_text(f"{before}{begin}\n{block.strip()}\n{end}{after}")
    say(f"written into {page}")


def explain(error):
    if isinstance(error, subprocess.CalledProcessError):
        return f"{shlex.join(map(str, error.cmd))} failed with status {error.returncode}"
    return str(error)


def main(args, kind, rows, need_root):
    """Measures `args.rows` with a `kind` of Bench, and prints the table."""
    guarded(lambda: run(args, kind, rows, need_root))


def guarded(measure):
    """Runs `measure`: an error ends the program with a message of one line, a signal ends it with all mounts unmounted."""
    name = Path(sys.argv[0]).name
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        measure()
    except (BenchError, subprocess.CalledProcessError) as error:
        sys.exit(f"{name}: {explain(error)}")
    except KeyboardInterrupt:
        sys.exit(130)
