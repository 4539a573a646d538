"""Checks of the Python package over real mounts. Needs NumPy; PyTorch's samplers are checked where it is installed.

Run by tests/suite/python_package.rs, or by hand: FFRFS=target/debug/ffrfs PYTHONPATH=python python tests/python/package.py
"""

import errno
import json
import os
import pickle
import platform
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import unittest
import warnings
import zipfile
from pathlib import Path

import ffrfs
import numpy
from ffrfs._mounts import control_errors, read_control

SAMPLES, BYTES = 300, 2000
FFRFS = os.environ["FFRFS"]
KERNEL = tuple(int(number) for number in platform.release().split("-")[0].split(".")[:2])


def pack(folder):
    container = folder.with_suffix(".ffr")
    subprocess.run([FFRFS, "pack", folder, container], check=True, stderr=subprocess.DEVNULL)
    return container


def wait_until(happened, otherwise="it does not happen"):
    for _ in range(1000):
        if happened():
            return
        time.sleep(0.02)
    raise AssertionError(otherwise)


def caches_dropped():
    """How often the host was told to drop its caches."""
    return [line for line in Path("/proc/vmstat").read_text().splitlines() if line.startswith("drop_")]


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(prefix="package-")
        cls.addClassCleanup(cls.place.cleanup)
        # Mount points are made here, where nobody else makes anything.
        cls.addClassCleanup(setattr, tempfile, "tempdir", tempfile.tempdir)
        tempfile.tempdir = cls.place.name
        folder = Path(cls.place.name)
        cls.loose = folder / "loose"
        cls.loose.mkdir()
        for number in range(SAMPLES):
            (cls.loose / f"{number:04}.bin").write_bytes(number.to_bytes(4, "little") * (BYTES // 4))
        cls.container = pack(cls.loose)

    def mounted(self, **options):
        """A mount that is gone after the test, and its path."""
        mount = ffrfs.mount(self.container, **options)
        self.addCleanup(mount.unmount, lazy=True)
        return mount.path

    def mounted_large(self, **options):
        """A mount of 36 MB of samples with little memory, and its path."""
        large = Path(self.place.name) / "large"
        if not large.exists():
            large.mkdir()
            for number in range(600):
                (large / f"{number:04}.bin").write_bytes(bytes([number % 256]) * 60_000)
            pack(large)
        mount = ffrfs.mount(large.with_suffix(".ffr"), memory="16M", **options)
        self.addCleanup(mount.unmount, lazy=True)
        return mount.path

    def kill_daemon(self, path):
        """Kills the daemon of a mount, and waits for the one that follows."""
        daemon = lambda: json.loads(read_control(path, "info.json"))["pid"]
        first = daemon()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: daemon() != first)

    def counters(self, path):
        return ffrfs.stats(path)["prefetch"]

    def test_a_mount_shows_the_files_and_is_gone_after_the_block(self):
        with ffrfs.mount(self.container) as path:
            self.assertEqual(sorted(os.listdir(path)), sorted(os.listdir(self.loose)))
            self.assertEqual((path / "0007.bin").read_bytes(), (self.loose / "0007.bin").read_bytes())
            self.assertIn(path, [mount.path for mount in ffrfs.mounts()])
        self.assertFalse(path.exists(), "the mount point that it made is left")
        self.assertNotIn(path, [mount.path for mount in ffrfs.mounts()])

    def test_a_mount_point_that_the_user_made_stays(self):
        with tempfile.TemporaryDirectory(prefix="point with blank ") as point:
            with ffrfs.mount([self.container], point, ro=True) as path:
                (mount,) = [mount for mount in ffrfs.mounts() if mount.path == path]
                self.assertEqual((str(path), mount.source), (point, str(self.container)))
                self.assertIn("ro", mount.options)
            self.assertEqual(os.listdir(point), [])

    def test_an_exception_in_the_block_is_not_hidden_by_files_that_are_open(self):
        with self.assertRaisesRegex(ZeroDivisionError, "by zero"):
            with ffrfs.mount(self.container) as path:
                file = (path / "0001.bin").open("rb")
                self.addCleanup(file.close)
                1 / 0

    def test_files_that_are_open_at_the_end_of_the_block_are_an_error_that_says_what_detaches_the_mount(self):
        mount = ffrfs.mount(self.container)
        self.addCleanup(mount.unmount, lazy=True)
        with self.assertRaisesRegex(ffrfs.Error, r"files in it are open.*unmount\(lazy=True\)"):
            with mount as path:
                file = (path / "0001.bin").open("rb")
        file.close()
        mount.unmount()

    def test_what_cannot_be_mounted_is_an_error_with_its_class_and_leaves_no_folder(self):
        before = set(Path(tempfile.gettempdir()).glob("ffrfs-*"))
        with self.assertRaises(ffrfs.Error) as caught:
            ffrfs.mount(self.loose / "0001.bin")
        self.assertEqual((caught.exception.code, pickle.loads(pickle.dumps(caught.exception)).code), (3, 3))
        self.assertIn("0001.bin", str(caught.exception))
        with self.assertRaises(ffrfs.Error) as caught:
            ffrfs.mount(self.container, no_such_option=1)
        self.assertEqual(caught.exception.code, 1)
        self.assertEqual(set(Path(tempfile.gettempdir()).glob("ffrfs-*")) - before, set())

    def test_a_process_that_was_forked_in_the_block_leaves_the_mount_alone(self):
        mount = ffrfs.mount(self.container)
        with mount as path:
            child = os.fork()
            if child == 0:
                mount.__exit__(None, None, None)
                os._exit(0)
            os.waitpid(child, 0)
            self.assertIn(path, [mount.path for mount in ffrfs.mounts()])
        self.assertFalse(path.exists())

    def test_no_source_is_refused(self):
        with self.assertRaisesRegex(ValueError, "source"):
            ffrfs.mount([])

    def test_what_the_program_warns_of_is_a_warning(self):
        locked = Path(self.place.name) / "warned.zip"
        subprocess.run(["zip", "-q", "-P", "open sesame", locked, "0003.bin"], cwd=self.loose, check=True)
        with self.assertWarnsRegex(UserWarning, "encrypted") as caught:
            ffrfs.mount(locked).unmount()
        self.assertEqual(caught.filename, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(UserWarning):
                ffrfs.mount(locked)
            ffrfs.mount(self.container).unmount()
        self.assertNotIn(str(locked), [mount.source for mount in ffrfs.mounts()])

    def test_the_module_is_the_program_also_where_pip_has_installed_it_for_one_user(self):
        def module(*arguments, **environment):
            command = [sys.executable, "-B", "-m", "ffrfs", *arguments]
            environment = {"PYTHONPATH": os.environ["PYTHONPATH"], "PATH": "/nowhere", **environment}
            return subprocess.run(command, env=environment, capture_output=True, text=True)

        self.assertRegex(module("--version", FFRFS=FFRFS).stdout, r"^ffrfs [0-9.]+\n$")
        self.assertEqual(module("ls", "no such", FFRFS=FFRFS).returncode, 2)
        absent = module("list", FFRFS="/no/such")
        self.assertEqual((absent.returncode, absent.stdout), (1, ""))
        self.assertRegex(absent.stderr, "^ffrfs: FFRFS is /no/such, which is no program\n$")
        places = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
        if any((place / "ffrfs").exists() for place in places):
            self.skipTest("a program is installed beside the interpreter")
        base = Path(self.place.name) / "base"
        missing = module("list", PYTHONUSERBASE=str(base))
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))
        self.assertRegex(missing.stderr, "^ffrfs: the program ffrfs is neither where pip puts programs .* nor in PATH")
        (base / "bin").mkdir(parents=True)
        (base / "bin/ffrfs").write_text('#!/bin/sh\necho "$@"\n')
        (base / "bin/ffrfs").chmod(0o755)
        self.assertEqual(module("list", "--json", PYTHONUSERBASE=str(base)).stdout, "list --json\n")

    def test_a_mount_in_the_foreground_is_refused(self):
        with self.assertRaisesRegex(ValueError, "foreground"):
            ffrfs.mount(self.container, foreground=True)
        ffrfs.mount(self.container, foreground=False).unmount()

    def test_a_password_reaches_encrypted_members(self):
        locked = Path(self.place.name) / "locked.zip"
        subprocess.run(["zip", "-q", "-P", "open sesame", locked, "0003.bin"], cwd=self.loose, check=True)
        with ffrfs.mount(locked, password="open sesame") as path:
            self.assertEqual((path / "0003.bin").read_bytes(), (self.loose / "0003.bin").read_bytes())

    def test_a_mount_that_somebody_else_has_unmounted_ends_without_an_error(self):
        with ffrfs.mount(self.container) as path:
            subprocess.run([FFRFS, "umount", path], check=True)
        self.assertFalse(path.exists(), "its temporary directory is removed")

    def test_a_password_with_a_newline_is_refused_and_not_cut_there(self):
        for wrong in ("open sesame\n", "a\nb", "a\r"):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "newline"):
                ffrfs.mount(self.container, password=wrong)

    def test_announced_samples_are_fetched_ahead_on_a_read_only_mount_too(self):
        for options in ({"ro": True}, {}):
            with self.subTest(options):
                path = self.mounted(**options)
                self.assertEqual(ffrfs.announce(path, numpy.arange(100)), 100)
                self.assertEqual(ffrfs.announce(path / "0001.bin", [path / "0150.bin", "0151.bin"]), 2)
                self.assertEqual(ffrfs.announce(str(path), range(200, 290)), 90)
                self.assertEqual(ffrfs.announce(path, iter(())), 0)
                self.assertEqual(self.counters(path)["announced"], 192)

    def test_what_is_no_sample_is_refused(self):
        path = self.mounted()
        # The container has one more sample, which holds the names.
        for wrong in ([SAMPLES + 1], [-1], [1 << 64], [1.5], [None], [True], [3, False], ["absent"], ["a\nb"], [path], ["x" * 20000]):
            with self.subTest(str(wrong)[:20]), self.assertRaises(ValueError):
                ffrfs.announce(path, wrong)
        self.assertEqual(self.counters(path)["announced"], 0)

    def test_what_is_no_sample_is_named(self):
        path = self.mounted()
        for wrong, said in (([1, SAMPLES + 5], f"no sample {SAMPLES + 5}"), (["0001.bin", "absent/x"], "'absent/x' is not"),
                            ([path / "0002.bin", "."], "'.' is a directory"),
                            ([str(self.container)], f"'{self.container}' does not lie in the mount {path}"),
                            ([str(path.parent)], "does not lie in the mount")):
            with self.subTest(said), self.assertRaisesRegex(ValueError, said):
                ffrfs.announce(path, wrong)
        for wrong in ("0001.bin", path / "0001.bin", b"0001.bin", 5, None):
            with self.subTest(str(wrong)), self.assertRaisesRegex(TypeError, "a list of samples is needed"):
                ffrfs.announce(path, wrong)

    def test_what_is_no_sample_is_named_by_a_warmup_too_and_nothing_is_fetched(self):
        path = self.mounted()
        for wrong, said in (([1, SAMPLES + 5], f"^there is no sample {SAMPLES + 5}"), ([1 << 64], f"^there is no sample {1 << 64}"),
                            ([-1], "^-1 is not"), ([1, 1.5], "^1.5 is not"), ([True], "^True is not"),
                            (["0001.bin", "absent/x"], f"^{path}/absent/x: "), ([path / "0002.bin", "."], "is no sample"),
                            ([self.container], "does not lie in the mount"), (["a\nb"], "newline"), (["a\r"], "newline"),
                            (["../x"], "does not lie in the mount")):
            with self.subTest(said), self.assertRaisesRegex(ValueError, said) as caught:
                ffrfs.warmup(path, wrong)
            self.assertNotIn("standard input", str(caught.exception))
        with self.assertRaisesRegex(TypeError, "a list of samples is needed"):
            ffrfs.warmup(path, 5)
        self.assertEqual(self.counters(path)["announced"], 0)

    def test_symbolic_links_that_lead_to_the_mount_do_not_matter(self):
        real, link = Path(self.place.name) / "real", Path(self.place.name) / "link"
        real.mkdir()
        link.symlink_to(real)
        self.addCleanup(setattr, tempfile, "tempdir", tempfile.tempdir)
        tempfile.tempdir = str(link)
        path = self.mounted()
        self.assertIn(path, [mount.path for mount in ffrfs.mounts()])
        ds = Path(self.place.name) / "ds"
        ds.symlink_to(path)
        files = [link / path.name / "0001.bin", ds / "0002.bin", path / "0003.bin"]
        self.assertEqual(ffrfs.announce(ds, files), 3)
        self.assertEqual(ffrfs.announce(link / path.name, files[:2]), 2)
        self.assertEqual(list(ffrfs.Announced(range(3), ds, files)), [0, 1, 2])
        self.assertEqual(self.counters(ds)["announced"], 8)

    def test_a_mount_without_control_files_or_daemon_is_an_error_that_says_so(self):
        # What a container has of that name is not taken for it.
        named = Path(self.place.name) / "named.zip"
        with zipfile.ZipFile(named, "w") as archive:
            for name in ("info.json", "stats.json", "prefetch"):
                archive.writestr(f".ffrfs/{name}", '{"samples": 7}')
        without = ffrfs.mount(named, no_control=True)
        self.addCleanup(without.unmount, lazy=True)
        for path in (self.mounted(no_control=True), without.path):
            for call in (ffrfs.stats, lambda path: ffrfs.announce(path, [1])):
                with self.assertRaisesRegex(ffrfs.Error, "--no-control.*takes no announcements") as caught:
                    call(path)
                self.assertEqual(caught.exception.code, 5)
        gone = ffrfs.mount(self.container)
        gone.unmount()
        with self.assertRaisesRegex(ffrfs.Error, "it was unmounted"):
            read_control(gone.path, "info.json")
        with self.assertRaisesRegex(ffrfs.Error, "another user has mounted it without"), control_errors(self.mounted()):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with self.assertRaisesRegex(ffrfs.Error, "another version"):
            read_control(self.mounted(), "missing")
        for number in (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED):
            with self.assertRaisesRegex(ffrfs.Error, "daemon is gone"), control_errors(gone.path):
                raise OSError(number, os.strerror(number))
        dead = self.mounted(restarts=0)
        daemon = json.loads((dead / ".ffrfs/info.json").read_text())["pid"]
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(f"/proc/{daemon}/exe"))
        for call in (ffrfs.stats, lambda path: ffrfs.announce(path, [1])):
            with self.assertRaisesRegex(ffrfs.Error, "daemon is gone|control files cannot be read") as caught:
                call(dead)
            self.assertEqual(caught.exception.code, 5)

    @unittest.skipIf(KERNEL < (6, 9), "before Linux 6.9 open files of a mount end with its daemon")
    def test_an_order_goes_on_at_the_daemon_that_follows_one_which_dies(self):
        path = self.mounted(transport="devfuse", restarts=5)

        def order():
            yield from [1] * 3000
            self.kill_daemon(path)
            yield from [2] * 3000

        self.assertEqual(ffrfs.announce(path, order(), replace=True), 6000)
        # What was announced to the first daemon has ended with it: what fits into one call, 2047 numbers.
        self.assertEqual(self.counters(path)["announced"], 6000 - 2047)

    @unittest.skipIf(KERNEL < (6, 9), "before Linux 6.9 open files of a mount end with its daemon")
    def test_an_order_that_replaces_all_others_replaces_none_at_the_next_daemon(self):
        path = self.mounted_large(transport="devfuse", restarts=5)

        def order():
            # As much as fits into one call.
            yield from [1] * 2047
            self.kill_daemon(path)
            # Somebody else, at the next daemon.
            ffrfs.announce(path, range(600))
            wait_until(lambda: self.counters(path)["is_full"])
            yield 2

        ffrfs.announce(path, order(), replace=True)
        # Nobody reads: what finds no room waits until it is dropped.
        self.assertGreater(self.counters(path)["waiting"], 100)

    def test_warmup_waits_until_samples_are_in_the_page_cache(self):
        # Once more if the host has dropped its caches meanwhile.
        for _ in range(20):
            dropped, path = caches_dropped(), self.mounted()
            ffrfs.warmup(path, [path / "0005.bin", 6])
            self.assertEqual(self.counters(path)["done"], 2)
            ffrfs.warmup(path)
            self.assertEqual(self.counters(path)["waiting"], 0)
            before = ffrfs.stats(path)["requests"]["read"]
            for file in path.iterdir():
                file.name == ".ffrfs" or file.read_bytes()
            asked = ffrfs.stats(path)["requests"]["read"] - before
            if asked < SAMPLES / 2:
                return
            # The kernel counts at the end of it.
            wait_until(lambda: caches_dropped() != dropped, f"{asked} reads after the warm-up, and no caches were dropped")
        self.fail(f"{asked} reads after the warm-up; the host has dropped its caches in each of 20 tries")

    def test_a_path_outside_of_all_mounts_is_an_error(self):
        for call in (ffrfs.stats, ffrfs.warmup, lambda path: ffrfs.announce(path, [1])):
            with self.assertRaisesRegex(ffrfs.Error, "no dataset of ffrfs"):
                call(self.place.name)

    def test_a_sampler_announces_its_order_in_each_epoch(self):
        path = self.mounted()
        batches = [[4, 2], [0]]
        for sampler, announced in (([3, 1, 2], 3), (batches, 3), (numpy.array([5, 6]), 2)):
            before = self.counters(path)["announced"]
            wrapped = ffrfs.Announced(sampler, path)
            self.assertEqual([list(wrapped), len(wrapped)], [list(sampler), len(sampler)])
            self.assertEqual(self.counters(path)["announced"] - before, announced)
        self.assertEqual(len(pickle.loads(pickle.dumps(ffrfs.Announced(batches, path)))), 2)

    def test_batches_may_be_arrays(self):
        path = self.mounted()
        files = sorted(path.glob("*.bin"))
        indices = numpy.arange(12)
        for sampler in (numpy.split(indices, 3), indices.reshape(3, 4), list(indices)):
            for given in (None, files):
                before = self.counters(path)["announced"]
                shown = [numpy.asarray(item).tolist() for item in ffrfs.Announced(sampler, path, given)]
                self.assertEqual(shown, [numpy.asarray(item).tolist() for item in sampler])
                self.assertEqual(self.counters(path)["announced"] - before, 12)

    def test_the_next_epoch_replaces_an_order_that_was_given_up(self):
        path = self.mounted_large()
        first, other = ffrfs.Announced(range(600), path), ffrfs.Announced([598, 599], path)
        iter(first), iter(other)
        wait_until(lambda: self.counters(path)["is_full"])
        self.assertGreater(self.counters(path)["waiting"], 100)
        # The next epoch, of the same sampler; the other's order stays.
        first.sampler = [250, 240, 230]
        iter(first)
        wait_until(lambda: self.counters(path)["waiting"] == 0)
        # All orders.
        ffrfs.announce(path, range(600))
        wait_until(lambda: self.counters(path)["is_full"])
        self.assertEqual(ffrfs.announce(path, [], replace=True), 0)
        self.assertEqual(self.counters(path)["waiting"], 0)
        ffrfs.announce(path, range(600))
        wait_until(lambda: self.counters(path)["is_full"])
        subprocess.run([FFRFS, "warmup", "--drop", path], check=True)
        self.assertEqual(self.counters(path)["waiting"], 0)

    def test_indices_become_files_where_they_are_no_sample_numbers(self):
        path = self.mounted()
        files = sorted(path.glob("*.bin"), reverse=True)
        for given in (files, lambda index: files[index]):
            self.assertEqual(list(ffrfs.Announced(range(3), path, given)), [0, 1, 2])
        with self.assertRaisesRegex(IndexError, f"files has {SAMPLES} paths, and none for index {SAMPLES}"):
            list(ffrfs.Announced([SAMPLES], path, files))

    def test_samplers_of_pytorch_work_through_it(self):
        try:
            from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler
        except ImportError:
            self.skipTest("PyTorch is not installed")
        path, data = self.mounted(), list(range(SAMPLES))
        shared = DistributedSampler(data, num_replicas=2, rank=1, seed=3)
        wrapped = ffrfs.Announced(shared, path)
        orders = []
        for epoch in range(2):
            wrapped.set_epoch(epoch)
            orders.append(list(wrapped))
        self.assertEqual((shared.epoch, len(wrapped)), (1, SAMPLES // 2))
        self.assertNotEqual(*orders)
        random = RandomSampler(data)
        for how in ({"sampler": ffrfs.Announced(random, path), "batch_size": 7},
                    {"batch_sampler": ffrfs.Announced(BatchSampler(random, 7, False), path)}):
            before = self.counters(path)["announced"]
            seen = [int(item) for batch in DataLoader(data, num_workers=2, **how) for item in batch]
            self.assertEqual(sorted(seen), data)
            self.assertEqual(self.counters(path)["announced"] - before, SAMPLES)


if __name__ == "__main__":
    unittest.main()
