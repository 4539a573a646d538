"""Read all samples in random order from Python processes; bench-engine's worker.

    bench_reader.py files FOLDER COUNT BYTES PROCESSES SEED       open().read(), one file a sample
    bench_reader.py ffrecord CONTAINER COUNT BYTES PROCESSES SEED the FFRecord package, batches of 64, checksums on

Prints the seconds from when all processes are ready until the last has ended.
"""

import multiprocessing
import random
import sys
import time

BATCH = 64


def files(folder, _size):
    def read(batch):
        for index in batch:
            with open(f"{folder}/{index:06}", "rb") as file:
                yield len(file.read())
    return read


def ffrecord(container, _size):
    from ffrecord import FileReader
    reader = FileReader(container, check_data=True)
    return lambda batch: (sample.nbytes for sample in reader.read(batch))


def work(kind, place, size, share, ready):
    read = KINDS[kind](place, size)
    ready.wait()
    for start in range(0, len(share), BATCH):
        batch = share[start:start + BATCH]
        if list(read(batch)) != [size] * len(batch):
            sys.exit(f"{place}: a sample is not {size} bytes long")


KINDS = {"files": files, "ffrecord": ffrecord}


def main():
    kind, place = sys.argv[1:3]
    count, size, processes, seed = map(int, sys.argv[3:])
    order = list(range(count))
    random.Random(seed).shuffle(order)
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(processes + 1)
    workers = [context.Process(target=work, args=(kind, place, size, order[first::processes], ready))
               for first in range(processes)]
    for worker in workers:
        worker.start()
    ready.wait(60)
    start = time.monotonic()
    for worker in workers:
        worker.join()
    print(time.monotonic() - start)
    sys.exit(any(worker.exitcode for worker in workers))


if __name__ == "__main__":
    main()
