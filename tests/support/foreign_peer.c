/* A simulator for tests that trusts nothing: it keeps a copy of the file, and books of all lives.
 *
 * foreign_peer --memory-path PATH --books FILE [--seed N]
 *
 * Two groups: `walker` (continuous) and `chooser` (discrete, with masks). At every take each byte is compared with the
 * copy: the driver may have changed turn, command, messages, and the actions of the rows that were there. At every give
 * nothing may have changed but what this program has written itself. Actions must be in range and allowed. At the end
 * FILE has a line for each life that has ended, `name length return truncated hand-over`, and as its last line the number
 * of hand-overs and of faults; faults are printed too.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LENGTH = 0, TURN = 8, COMMAND = 9, CAPACITY = 10, MESSAGE_BYTES = 14, AREA = 18 };
enum { DRIVER = 0, SIMULATOR = 1, STEP = 0, RESET = 1, CHANGE_FILE = 2, CLOSE = 3 };
enum { MOST_ROWS = 8, GROUPS = 2, MOST_CHOICES = 5 };

static char path[4096];
static unsigned char *file, *copy;
static size_t length;
static FILE *books;
static long handovers, faults;
static uint64_t state = 1;

struct life {
    int id, lives, steps; /* `lives`: it has begun and not ended */
    double total;
};

struct group {
    const char *name;
    int agents, rows, floats, actions, choices; /* agents that live; M; of an observation; A; of all branches */
    int branches[2];
    int row_done[MOST_ROWS], n;
    size_t n_at, observation, reward, done, max_step, id, mask, action;
    struct life life[MOST_ROWS];
    int next_id;
};

static struct group groups[GROUPS] = {
    {.name = "walker", .agents = 4, .rows = 8, .floats = 3, .actions = 2},
    {.name = "chooser", .agents = 3, .rows = 6, .floats = 2, .actions = 2, .choices = 5, .branches = {3, 2}},
};

static void die(const char *what) {
    fprintf(stderr, "foreign_peer: %s: %s\n", path, what);
    exit(1);
}

static void fault(const char *what, size_t at) {
    fprintf(stderr, "foreign_peer: hand-over %ld, byte %zu: %s\n", handovers, at, what);
    faults++;
}

static uint32_t draw(uint32_t choices) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)((state * 2685821657736338717ULL) >> 33) % choices;
}

static int32_t get_int(size_t at) {
    int32_t value;
    memcpy(&value, file + at, 4);
    return value;
}

static float get_float(size_t at) {
    float value;
    memcpy(&value, file + at, 4);
    return value;
}

static void put(size_t at, const void *data, size_t count) { memcpy(file + at, data, count), memcpy(copy + at, data, count); }
static void put_int(size_t at, int32_t value) { put(at, &value, 4); }
static void put_float(size_t at, float value) { put(at, &value, 4); }
static void put_byte(size_t at, int value) {
    unsigned char byte = (unsigned char)value;
    put(at, &byte, 1);
}

static void map_file(int descriptor) {
    struct stat found;
    if (descriptor < 0 || fstat(descriptor, &found) < 0) die("cannot be opened");
    length = (size_t)found.st_size;
    file = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (file == MAP_FAILED) die("cannot be mapped");
    close(descriptor);
    copy = realloc(copy, length);
    memcpy(copy, file, length);
}

static int may_change(size_t at) {
    size_t area_end = AREA - 4 + (size_t)get_int(CAPACITY);
    if (at == TURN || at == COMMAND || (at >= MESSAGE_BYTES && at < area_end)) return 1;
    for (int g = 0; g < GROUPS; g++) {
        size_t bytes = 4u * (size_t)(groups[g].actions * groups[g].n);
        if (groups[g].action && at >= groups[g].action && at < groups[g].action + bytes) return 1;
    }
    return 0;
}

static void compare(int taken) {
    for (size_t at = 0; at < length; at++)
        if (file[at] != copy[at] && !(taken && may_change(at))) fault(taken ? "changed" : "changed in my turn", at);
    memcpy(copy, file, length);
}

static void give(int command) {
    compare(0);
    put_byte(COMMAND, command);
    __sync_synchronize();
    copy[TURN] = DRIVER;
    file[TURN] = DRIVER;
}

static void end_program(void) {
    fprintf(books, "%ld %ld\n", handovers, faults);
    fclose(books);
    give(CLOSE);
    munmap(file, length);
    unlink(path);
    exit(faults ? 1 : 0);
}

static int await_turn(void) {
    for (int looks = 0;; looks++) {
        if (((volatile unsigned char *)file)[TURN] != DRIVER) {
            __sync_synchronize();
            int command = file[COMMAND];
            if (command == CHANGE_FILE) {
                munmap(file, length);
                unlink(path);
                strcat(path, "_");
                map_file(open(path, O_RDWR | O_NOFOLLOW));
                continue;
            }
            compare(1);
            if (command == CLOSE) end_program();
            if (command > RESET) fault("a command that is none", COMMAND);
            int32_t bytes = get_int(MESSAGE_BYTES);
            for (int32_t i = 0; i < bytes; i++) put_byte(AREA + (size_t)i, 0);
            put_int(MESSAGE_BYTES, 0);
            return command;
        }
        if (looks < 2000) {
            sched_yield();
        } else {
            struct timespec pause = {0, 100000};
            nanosleep(&pause, NULL);
        }
    }
}

static void register_groups(void) {
    size_t count_at = AREA - 4 + (size_t)get_int(CAPACITY), bytes = 0;
    for (int i = 0; i < GROUPS; i++) {
        const struct group *g = &groups[i];
        size_t row = 4u * (size_t)g->floats + 10 + (size_t)g->choices + 4u * (size_t)g->actions;
        bytes += 77 + (g->choices ? 4u * (size_t)g->actions : 0) + 12 + 4 + (size_t)g->rows * row;
    }
    unsigned char *old = file;
    size_t old_length = length;
    strcat(path, "_");
    int descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (descriptor < 0 || posix_fallocate(descriptor, 0, (off_t)(count_at + 4 + bytes)) != 0) die("cannot be made");
    int32_t two = GROUPS;
    memcpy(old + count_at, &two, 4);
    map_file(descriptor);
    put(0, old, count_at + 4);
    put_int(LENGTH, (int32_t)length);
    size_t at = count_at + 4;
    for (int i = 0; i < GROUPS; i++) {
        struct group *g = &groups[i];
        size_t rows = (size_t)g->rows;
        put_byte(at, (int)strlen(g->name));
        put(at + 1, g->name, strlen(g->name));
        put_int(at + 64, g->rows);
        put_byte(at + 68, !g->choices);
        put_int(at + 69, g->actions);
        at += 73;
        for (int branch = 0; g->choices && branch < g->actions; branch++, at += 4) put_int(at, g->branches[branch]);
        put_int(at, 1);
        put_int(at + 4, g->floats);
        g->n_at = at + 16;
        g->observation = g->n_at + 4;
        g->reward = g->observation + 4u * (size_t)g->floats * rows;
        g->done = g->reward + 4 * rows;
        g->max_step = g->done + rows;
        g->id = g->max_step + rows;
        g->mask = g->id + 4 * rows;
        g->action = g->mask + rows * (size_t)g->choices;
        at = g->action + 4 * rows * (size_t)g->actions;
    }
    old[COMMAND] = CHANGE_FILE;
    __sync_synchronize();
    old[TURN] = DRIVER;
    munmap(old, old_length);
}

static void check_actions(const struct group *g) {
    for (int row = 0; row < g->n; row++) {
        size_t at = g->action + 4u * (size_t)(row * g->actions), mask = g->mask + (size_t)(row * g->choices);
        for (int i = 0; i < g->actions; i++, at += 4) {
            if (g->choices == 0) {
                float value = get_float(at);
                if (!(value >= -1.0f && value <= 1.0f)) fault("an action out of range", at);
                continue;
            }
            int32_t choice = get_int(at);
            if (choice < 0 || choice >= g->branches[i]) fault("a choice that is none", at);
            else if (file[mask + (size_t)choice] && !g->row_done[row]) fault("a forbidden choice", at);
            mask += (size_t)g->branches[i];
        }
    }
}

static void write_row(struct group *g, int agent, float reward, int done, int max_step) {
    size_t row = (size_t)g->n;
    for (int i = 0; i < g->floats; i++)
        put_float(g->observation + 4u * (row * (size_t)g->floats + (size_t)i), (float)draw(1000) / 500.0f - 1.0f);
    put_float(g->reward + 4 * row, reward);
    put_byte(g->done + row, done);
    put_byte(g->max_step + row, max_step);
    put_int(g->id + 4 * row, g->life[agent].id);
    size_t mask = g->mask + row * (size_t)g->choices;
    for (int branch = 0; g->choices && branch < g->actions; branch++) {
        uint32_t allowed = draw((uint32_t)g->branches[branch]);
        for (int choice = 0; choice < g->branches[branch]; choice++)
            put_byte(mask++, choice == (int)allowed ? 0 : (int)draw(2));
    }
    g->row_done[g->n++] = done;
}

static void begin_life(struct group *g, int agent) {
    g->life[agent] = (struct life){.id = g->next_id++, .lives = 1, .steps = 1};
    write_row(g, agent, 0.0f, 0, 0);
}

/* Writes the rows of some agents; lives end now and then, and the next one may begin in the same hand-over. */
static void write_rows(struct group *g) {
    g->n = 0;
    for (int agent = 0; agent < g->agents; agent++) {
        struct life *life = &g->life[agent];
        if (draw(5) == 0) continue;
        if (life->lives) {
            float reward = (float)draw(64) / 8.0f - 4.0f;
            int done = draw(20) == 0, max_step = done && draw(2);
            life->total += reward;
            write_row(g, agent, reward, done, max_step);
            life->steps += !done;
            if (!done) continue;
            fprintf(books, "0/%s/%d %d %.17g %d %ld\n", g->name, life->id, life->steps, life->total, max_step, handovers);
            life->lives = 0;
            if (draw(2)) continue;
        }
        begin_life(g, agent);
    }
}

int main(int count, char **arguments) {
    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(arguments[i], "--memory-path")) snprintf(path, sizeof path - 256, "%s", arguments[i + 1]);
        if (!strcmp(arguments[i], "--books")) books = fopen(arguments[i + 1], "w");
        if (!strcmp(arguments[i], "--seed")) state = strtoull(arguments[i + 1], NULL, 10) | 1;
    }
    if (!books) die("--books is needed");
    map_file(open(path, O_RDWR | O_NOFOLLOW));
    int command = await_turn();
    register_groups();
    for (;;) {
        for (int g = 0; g < GROUPS; g++) {
            if (command == RESET)
                for (int agent = 0; agent < groups[g].agents; agent++) groups[g].life[agent].lives = 0;
            else
                check_actions(&groups[g]);
            put_int(groups[g].n_at, 0);
            write_rows(&groups[g]);
            put_int(groups[g].n_at, groups[g].n);
        }
        handovers++;
        give(STEP);
        command = await_turn();
    }
}
