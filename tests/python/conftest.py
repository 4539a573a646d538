"""Fixtures: loose files, containers of them, and real mounts, with each transport that this machine has.

`scripts/test --full` runs these checks; FFRFS in the environment is the program under test.
"""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import samples

TRANSPORTS = ("devfuse", "uring")
MOUNTS = [(source, transport) for source in samples.MAKERS for transport in TRANSPORTS]
URING_SETTING = Path("/sys/module/fuse/parameters/enable_uring")


@pytest.fixture(scope="session")
def ffrfs():
    return os.environ["FFRFS"]


@pytest.fixture(scope="session")
def loose(tmp_path_factory):
    """The files themselves, on disk."""
    folder = tmp_path_factory.mktemp("loose")
    samples.make_folder(folder)
    return folder


def need(transport):
    if transport == "uring" and not (URING_SETTING.exists() and URING_SETTING.read_text().strip() == "Y"):
        pytest.skip("FUSE-over-io_uring is off on this machine, or not in its kernel")


@contextlib.contextmanager
def mount(ffrfs, arguments, transport, *options):
    """A mount that is gone in the end, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="mnt-") as point:
        subprocess.run([ffrfs, "mount", *arguments, point, "--transport", transport, *options], check=True)
        try:
            yield Path(point)
        finally:
            if subprocess.run([ffrfs, "umount", point]).returncode:
                subprocess.run([ffrfs, "umount", "--lazy", point], check=True)


@pytest.fixture(scope="session", params=MOUNTS, ids="-".join)
def mounted(request, ffrfs, loose, tmp_path_factory):
    """A mount of the same files: `folder`, beside the `source` it is of and its `container`."""
    source, transport = request.param
    need(transport)
    arguments = samples.make_container(ffrfs, source, loose, tmp_path_factory.mktemp(source))
    with mount(ffrfs, arguments, transport) as folder:
        yield SimpleNamespace(folder=folder, source=source, container=arguments[0])


@pytest.fixture(scope="session")
def web():
    """Starts nginx for a folder; gives a socket for curl."""
    @contextlib.contextmanager
    def serve(folder):
        with tempfile.TemporaryDirectory(prefix="web-") as place:
            socket, config = Path(place, "socket"), Path(place, "nginx.conf")
            temporary = "".join(f"{kind}_temp_path {place}/{kind};\n"
                                for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            config.write_text(f"""{'user root;' if os.geteuid() == 0 else ''}
                daemon off; worker_processes 2; pid {place}/pid; error_log {place}/error.log;
                events {{ }}
                http {{ sendfile on; access_log off; {temporary}
                        server {{ listen unix:{socket}; root {folder}; }} }}""")
            server = subprocess.Popen(["nginx", "-p", place, "-c", config], stderr=subprocess.DEVNULL)
            try:
                wait_for(socket, server, Path(place, "error.log"))
                yield socket
            finally:
                server.terminate()
                server.wait(20)
    return serve


def wait_for(socket, server, log):
    # curl itself tries again until somebody answers.
    patience = ["--retry", "50", "--retry-delay", "1", "--retry-all-errors", "--retry-max-time", "60"]
    done = subprocess.run(["curl", "--silent", "--output", "/dev/null", *patience, "--unix-socket", socket,
                           "http://localhost/"])
    assert server.poll() is None and done.returncode == 0, log.read_text() if log.exists() else "nginx did not start"
