/* readbench: measures how fast threads read all samples of a folder in random order.
 *
 *   readbench FOLDER FILES THREADS SEED BYTES
 *   readbench --print-order FILES SEED
 *
 * The folder holds FILES files named 000000, 000001, ... of BYTES bytes each. Every file is opened, fstat-ed, read to
 * its end and closed, as image readers do. Another size, a short read or any error ends the run with status 1.
 * ORDER=forward in the environment reads the files in order instead; SUFFIX=/data reads 000000/data, 000001/data, ...
 * --print-order reads no file: it prints the order as 64-bit integers in the machine's byte order.
 * Prints one line: seconds, files a second, megabytes (10^6 bytes) a second, seconds of the slowest file. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20, MAX_THREADS = 256 };

struct run {
    const char *folder, *suffix;
    uint32_t *order;
    uint32_t files;
    int64_t bytes_each;
    size_t chunk_bytes;
    atomic_uint next;
    _Atomic uint64_t slowest_nanos;
};

static _Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "readbench: %s: %s\n", what, why);
    exit(1);
}

static uint64_t number(const char *text, uint64_t max) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || value > max) fail(text, "not a number in range");
    return value;
}

/* splitmix64: the same order for the same seed with every C library */
static uint64_t random_u64(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t *shuffled(uint32_t files, uint64_t seed) {
    uint32_t *order = malloc(sizeof *order * ((size_t)files + 1));
    if (!order) fail("order", strerror(errno));
    for (uint32_t i = 0; i < files; i++) { /* inside-out Fisher-Yates */
        uint32_t j = random_u64(&seed) % ((uint64_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

static uint32_t *forward(uint32_t files) {
    uint32_t *order = malloc(sizeof *order * ((size_t)files + 1));
    if (!order) fail("order", strerror(errno));
    for (uint32_t i = 0; i < files; i++) order[i] = i;
    return order;
}

static int print_order(uint32_t files, uint64_t seed) {
    uint32_t *order = shuffled(files, seed);
    for (uint32_t i = 0; i < files; i++) {
        uint64_t index = order[i];
        if (fwrite(&index, sizeof index, 1, stdout) != 1) fail("standard output", strerror(errno));
    }
    if (fflush(stdout)) fail("standard output", strerror(errno));
    return 0;
}

static void read_file(const struct run *run, uint32_t index, char *buffer) {
    char name[4096]; /* the whole path, as programs give it */
    snprintf(name, sizeof name, "%s/%06u%s", run->folder, index, run->suffix);
    int fd = open(name, O_RDONLY);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0) fail(name, strerror(errno));
    if (info.st_size != run->bytes_each) fail(name, "unexpected size");
    for (int64_t left = info.st_size; left > 0;) {
        ssize_t got = read(fd, buffer, left < (int64_t)run->chunk_bytes ? (size_t)left : run->chunk_bytes);
        if (got < 0) fail(name, strerror(errno));
        if (got == 0) fail(name, "ends early");
        left -= got;
    }
    close(fd);
}

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *reader(void *argument) {
    struct run *run = argument;
    char *buffer = aligned_alloc(4096, run->chunk_bytes);
    if (!buffer) fail("buffer", strerror(errno));
    memset(buffer, 1, run->chunk_bytes); /* its page faults are not to be measured */
    for (uint32_t i; (i = atomic_fetch_add(&run->next, 1)) < run->files;) {
        double start = now_seconds();
        read_file(run, run->order[i], buffer);
        uint64_t nanos = (uint64_t)((now_seconds() - start) * 1e9), slowest = atomic_load(&run->slowest_nanos);
        while (nanos > slowest && !atomic_compare_exchange_weak(&run->slowest_nanos, &slowest, nanos)) {}
    }
    free(buffer);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "--print-order"))
        return print_order((uint32_t)number(argv[2], 1u << 30), number(argv[3], UINT64_MAX));
    if (argc != 6) {
        fprintf(stderr, "usage: readbench FOLDER FILES THREADS SEED BYTES\n"
                        "       readbench --print-order FILES SEED\n");
        return 2;
    }
    struct run run = {
        .folder = argv[1],
        .suffix = getenv("SUFFIX") ? getenv("SUFFIX") : "",
        .files = (uint32_t)number(argv[2], 1u << 30),
        .bytes_each = (int64_t)number(argv[5], INT64_MAX),
    };
    /* No larger than a file needs, as each of many threads has a buffer. */
    run.chunk_bytes = run.bytes_each < CHUNK_BYTES ? ((size_t)run.bytes_each / 4096 + 1) * 4096 : CHUNK_BYTES;
    unsigned threads = (unsigned)number(argv[3], MAX_THREADS);
    const char *order = getenv("ORDER");
    uint64_t seed = number(argv[4], UINT64_MAX);
    run.order = order && !strcmp(order, "forward") ? forward(run.files) : shuffled(run.files, seed);

    pthread_t ids[MAX_THREADS];
    double start = now_seconds();
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, reader, &run)) fail("thread", "cannot be started");
    for (unsigned i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    double seconds = now_seconds() - start;

    printf("%.6f s %.0f files/s %.1f MB/s slowest %.6f s\n", seconds, run.files / seconds,
           (double)run.files * (double)run.bytes_each / seconds / 1e6, (double)run.slowest_nanos * 1e-9);
    return 0;
}
