/* The simulator of `shared_memory.py`: one group of agents that never end, through a file that is shared with the arena.
 *
 * link_peer --memory-path PATH [--agents M] [--rows N] [--floats F] [--actions A] [--work-us W] [--notes FILE]
 * link_peer --alone SECONDS [--work-us W]      computes without a link; prints steps and the 99th percentile in us
 *
 * In each hand-over the first N of at most M agents have F numbers each. W is processor time per step. FILE gets the
 * median microseconds from a give to the next turn.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LENGTH = 0, TURN = 8, COMMAND = 9, CAPACITY = 10, AREA = 18 };
enum { DRIVER = 0, STEP = 0, CHANGE_FILE = 2, CLOSE = 3, OFFERS = 2000, PAUSE_NS = 50000, MOST_TIMES = 1 << 20 };

static char path[4096];
static const char *notes;
static unsigned char *file;
static size_t mapped;
static int agents = 1, rows = 1, floats = 16, actions = 16;
static double work_us, times[MOST_TIMES];
static int time_count;

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void compute(void) {
    double end = seconds(CLOCK_PROCESS_CPUTIME_ID) + 1e-6 * work_us;
    while (work_us > 0 && seconds(CLOCK_PROCESS_CPUTIME_ID) < end) {
    }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(double share) {
    qsort(times, (size_t)time_count, sizeof *times, by_size);
    return time_count ? times[(int)(share * (time_count - 1))] : 0.0;
}

static void fail(const char *what) {
    fprintf(stderr, "link_peer: %s: %s\n", path, what);
    exit(1);
}

static int32_t get_int(size_t at) {
    int32_t value;
    memcpy(&value, file + at, 4);
    return value;
}

static void put_int(size_t at, int32_t value) { memcpy(file + at, &value, 4); }

static void map_file(int descriptor) {
    struct stat found;
    if (descriptor < 0 || fstat(descriptor, &found) < 0) fail("cannot be opened");
    mapped = (size_t)found.st_size;
    file = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (file == MAP_FAILED) fail("cannot be mapped");
    close(descriptor);
}

static void give(int command) {
    file[COMMAND] = (unsigned char)command;
    __sync_synchronize();
    file[TURN] = DRIVER;
}

static void end_program(void) {
    give(CLOSE);
    if (notes) {
        FILE *out = fopen(notes, "w");
        if (!out) fail("the notes cannot be written");
        fprintf(out, "%f\n", percentile(0.5));
        fclose(out);
    }
    exit(0);
}

static void await_turn(void) {
    for (int looks = 0;; looks++) {
        if (((volatile unsigned char *)file)[TURN] != DRIVER) {
            __sync_synchronize();
            if (file[COMMAND] == CLOSE) end_program();
            if (file[COMMAND] != CHANGE_FILE) return;
            munmap(file, mapped);
            unlink(path);
            strcat(path, "_");
            map_file(open(path, O_RDWR | O_NOFOLLOW));
        } else if (looks < OFFERS) {
            sched_yield();
        } else {
            struct timespec pause = {0, PAUSE_NS};
            nanosleep(&pause, NULL);
        }
    }
}

/* Makes the next file, with the group in it; returns the offset of its number of rows. */
static size_t register_group(void) {
    size_t count_at = AREA - 4 + (size_t)get_int(CAPACITY), most = (size_t)agents, old_bytes = mapped;
    size_t head = count_at + 4, n_at = head + 73 + 16;
    size_t length = n_at + 4 + most * (4u * (size_t)floats + 10 + 4u * (size_t)actions);
    unsigned char *old = file;
    put_int(count_at, 1);
    strcat(path, "_");
    int descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (descriptor < 0 || posix_fallocate(descriptor, 0, (off_t)length) != 0) fail("cannot be made");
    map_file(descriptor);
    memcpy(file, old, head);
    put_int(LENGTH, (int32_t)length);
    memcpy(file + head, "\5agent", 6);
    put_int(head + 64, agents);
    file[head + 68] = 1; /* continuous */
    put_int(head + 69, actions);
    put_int(head + 73, 1); /* one observation */
    put_int(head + 77, floats);
    old[COMMAND] = CHANGE_FILE;
    __sync_synchronize();
    old[TURN] = DRIVER;
    munmap(old, old_bytes);
    return n_at;
}

static void play_alone(double limit) {
    double end = seconds(CLOCK_MONOTONIC) + limit;
    long steps = 0;
    for (double begun = seconds(CLOCK_MONOTONIC); begun < end; steps++) {
        compute();
        double now = seconds(CLOCK_MONOTONIC);
        if (time_count < MOST_TIMES) times[time_count++] = 1e6 * (now - begun);
        begun = now;
    }
    printf("%ld %f\n", steps, percentile(0.99));
}

int main(int count, char **arguments) {
    double alone = 0;
    for (int i = 1; i + 1 < count; i += 2) {
        const char *value = arguments[i + 1];
        if (!strcmp(arguments[i], "--memory-path")) snprintf(path, sizeof path - 256, "%s", value);
        if (!strcmp(arguments[i], "--agents")) agents = atoi(value);
        if (!strcmp(arguments[i], "--rows")) rows = atoi(value);
        if (!strcmp(arguments[i], "--floats")) floats = atoi(value);
        if (!strcmp(arguments[i], "--actions")) actions = atoi(value);
        if (!strcmp(arguments[i], "--work-us")) work_us = atof(value);
        if (!strcmp(arguments[i], "--notes")) notes = value;
        if (!strcmp(arguments[i], "--alone")) alone = atof(value);
    }
    if (rows > agents) rows = agents;
    if (alone > 0) {
        play_alone(alone);
        return 0;
    }
    map_file(open(path, O_RDWR | O_NOFOLLOW));
    await_turn();
    size_t n_at = register_group(), most = (size_t)agents, observations = n_at + 4;
    size_t ids = observations + 4u * (size_t)floats * most + 6u * most;
    for (float number = 0;; number += 1) {
        compute();
        for (int row = 0; row < rows; row++) {
            size_t at = observations + 4u * (size_t)floats * (size_t)row;
            memset(file + at, 0x3f, 4u * (size_t)floats); /* 0.747 */
            memcpy(file + at, &number, 4);
            put_int(ids + 4u * (size_t)row, row);
        }
        put_int(n_at, rows);
        double begun = seconds(CLOCK_MONOTONIC);
        give(STEP);
        await_turn();
        if (time_count < MOST_TIMES) times[time_count++] = 1e6 * (seconds(CLOCK_MONOTONIC) - begun);
    }
}
