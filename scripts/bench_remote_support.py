"""Parts of bench-remote and the soak-… scripts: the store of the tests as a process, plain GETs, latencies of reads.

    bench_remote_support.py gets HOST:PORT PATH LENGTH CONNECTIONS       ranges of 8 MiB, in parallel: seconds
    bench_remote_support.py reads FOLDER COUNT READERS SEED READS        seconds, errors, and each read's milliseconds
    bench_remote_support.py boto3 ENDPOINT KEY COUNT BYTES READERS SEED READS
    bench_remote_support.py webdataset URL READS                         the latter two: seconds
"""

import concurrent.futures
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

BLOCK_BYTES = 8 << 20
BUCKET = "bucket"
# The speed of the store: milliseconds to the first byte (lognormal), and bytes a second of one connection.
MEDIAN_MS, SIGMA, BYTES_PER_SECOND = 30, 0.3, 87_000_000
MEAN_FIRST_BYTE_S = MEDIAN_MS / 1000 * 2.718281828 ** (SIGMA ** 2 / 2)
LINK = [{"fault": {"latency": {"median_ms": MEDIAN_MS, "sigma": SIGMA}}},
        {"fault": {"bandwidth": {"bytes": BYTES_PER_SECOND}}}]


def rule(fault, percent, seed=1):
    """The rule by which `percent` of all GETs suffer a fault."""
    return {"kind": "get", "percent": percent, "seed": seed, "fault": fault}


class StoreProcess:
    """The example `store`: serves the files below `root` by S3 and plain HTTP."""

    def __init__(self, command, root):
        self.root = root
        (root / BUCKET).mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen([*command, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().strip()
        if not self.endpoint:
            raise OSError(f"{command[0]} does not start")
        self.link()

    def stop(self):
        self.process.stdin.close()  # the store ends with its input
        self.process.wait(10)

    def put(self, path, key=None):
        """Shows a file as an object; gives its key."""
        place = self.root / BUCKET / (key or path.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            place.unlink()
        os.link(path, place)
        return str(place.relative_to(self.root / BUCKET))

    def s3(self, key):
        return f"s3://{BUCKET}/{key}"

    def http(self, key):
        return f"{self.endpoint}/{BUCKET}/{key}"

    def link(self, *faults):
        """Has requests suffer the latency and bandwidth of the link, and these faults."""
        self.request("PUT", "rules", json.dumps([*LINK, *faults]).encode())

    def forget(self):
        self.request("POST", "forget")

    def summary(self):
        return json.loads(self.request("GET", "summary"))

    def request(self, method, name, body=None):
        asked = urllib.request.Request(f"{self.endpoint}/-/{name}", body, method=method)
        with urllib.request.urlopen(asked) as answer:
            return answer.read()


def python(*command):
    """Runs one of the measurements below in a process of its own; gives its output."""
    done = subprocess.run([sys.executable, "-B", Path(__file__).resolve(), *map(str, command)], stdout=subprocess.PIPE,
                          text=True)
    if done.returncode:
        raise OSError(f"{command[0]} failed")
    return done.stdout


def share(count, work):
    """Runs `work(number)` in `count` threads that begin together; gives the seconds until all have ended."""
    ready = threading.Barrier(count + 1)

    def run(number):
        ready.wait()
        return work(number)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        running = [pool.submit(run, number) for number in range(count)]
        ready.wait()
        start = time.monotonic()
        for one in running:
            one.result()
        return time.monotonic() - start


def gets(address, path, length, connections):
    """Plain GETs through sockets; the bytes are thrown away."""
    host, port = address.split(":")
    offsets = iter(range(0, int(length), BLOCK_BYTES))
    guard = threading.Lock()

    def work(_):
        buffer = bytearray(1 << 20)
        with socket.create_connection((host, int(port))) as connection:
            while True:
                with guard:
                    offset = next(offsets, None)
                if offset is None:
                    return
                last = min(offset + BLOCK_BYTES, int(length)) - 1
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nRange: bytes={offset}-{last}\r\n\r\n".encode())
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(4096)
                if not head.startswith(b"HTTP/1.1 206"):
                    sys.exit(f"{head.splitlines()[0]}")
                left = last + 1 - offset - len(head.split(b"\r\n\r\n", 1)[1])
                while left:
                    got = connection.recv_into(buffer, min(left, len(buffer)))
                    if not got:
                        sys.exit("the connection ended")
                    left -= got

    print(share(int(connections), work))


def numbers(count, seed, reads):
    order = list(range(int(count)))
    random.Random(int(seed)).shuffle(order)
    return order[:int(reads)]


def reads(folder, count, readers, seed, number):
    order, times, errors = numbers(count, seed, number), [], []

    def work(first):
        for index in order[first::int(readers)]:
            start = time.monotonic()
            try:
                with open(f"{folder}/{index:06}", "rb", buffering=0) as file:
                    while file.read(1 << 20):
                        pass
            except OSError as error:
                errors.append(str(error))
            times.append((time.monotonic() - start) * 1000)

    seconds = share(int(readers), work)
    print(json.dumps({"seconds": seconds, "errors": errors, "times": sorted(times)}))


def boto3(endpoint, key, count, size, readers, seed, number):
    """Reads each sample of an .ffr by a GET of its range, as a program does that knows the offsets."""
    from boto3 import Session
    from botocore import UNSIGNED
    from botocore.config import Config
    config = Config(signature_version=UNSIGNED, max_pool_connections=int(readers), s3={"addressing_style": "path"})
    client = Session(region_name="us-east-1").client("s3", endpoint_url=endpoint, config=config)
    order, size, data = numbers(count, seed, number), int(size), 12 + 12 * int(count)

    def work(first):
        for index in order[first::int(readers)]:
            start = data + index * size
            got = client.get_object(Bucket=BUCKET, Key=key, Range=f"bytes={start}-{start + size - 1}")["Body"].read()
            if len(got) != size:
                sys.exit(f"{len(got)} bytes came")

    print(share(int(readers), work))


def webdataset(url, number):
    """Reads the first samples of a tar, in its order: webdataset knows no other."""
    import webdataset
    start = time.monotonic()
    samples = webdataset.WebDataset(f"pipe:curl -sf {url}", shardshuffle=False, empty_check=False)
    for place, _ in enumerate(samples, 1):
        if place == int(number):
            break
    print(time.monotonic() - start)


if __name__ == "__main__":
    {"gets": gets, "reads": reads, "boto3": boto3, "webdataset": webdataset}[sys.argv[1]](*sys.argv[2:])
