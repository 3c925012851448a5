/* A pursuit on a square, as a simulator that shares a file with the arena: C99 and POSIX, no libraries.
 *
 * A chaser (two numbers: its velocity) runs after a runner (one branch of five: stay, left, right, down, up). The chaser
 * gets 1 when it comes close, the runner gets 1 when it has lasted 100 steps; a little of the distance each step. Several
 * worlds are played side by side; both groups ask in the same hand-over.
 *
 * pursuit --memory-path PATH [--seed N] [--worlds N]
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

enum { LENGTH = 0, VERSION = 4, TURN = 8, COMMAND = 9, CAPACITY = 10, AREA = 18 };
enum { DRIVER = 0, SIMULATOR = 1 };
enum { STEP = 0, RESET = 1, CHANGE_FILE = 2, CLOSE = 3 };
enum { CHASER = 0, RUNNER = 1, OBSERVATIONS = 4, CHOICES = 5, LIMIT = 100, MOST_WORLDS = 64 };

/* ---------------------------------------------------------------------------------------------------- the file */

static char path[4096];
static unsigned char *file;
static size_t mapped;

static void fail(const char *what) {
    fprintf(stderr, "pursuit: %s: %s\n", path, what);
    exit(1);
}

static int32_t get_int(size_t at) {
    int32_t value;
    memcpy(&value, file + at, 4);
    return value;
}

static void put_int(size_t at, int32_t value) { memcpy(file + at, &value, 4); }
static void put_float(size_t at, float value) { memcpy(file + at, &value, 4); }

static float get_float(size_t at) {
    float value;
    memcpy(&value, file + at, 4);
    return value;
}

static void map_file(int descriptor) {
    struct stat found;
    if (descriptor < 0 || fstat(descriptor, &found) < 0 || found.st_size < 22) fail("cannot be opened");
    mapped = (size_t)found.st_size;
    file = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (file == MAP_FAILED) fail("cannot be mapped");
    close(descriptor);
    if (get_int(VERSION) != 0) fail("another version than 0");
}

static void give(int command) {
    file[COMMAND] = (unsigned char)command;
    __sync_synchronize(); /* the driver sees all that was written before the turn */
    file[TURN] = DRIVER;
}

/* Waits for the turn, follows changes of file, and ends the program when the driver closes. */
static int await_turn(void) {
    for (int looks = 0;; looks++) {
        if (((volatile unsigned char *)file)[TURN] != DRIVER) {
            __sync_synchronize();
            int command = file[COMMAND];
            if (command == CHANGE_FILE) {
                munmap(file, mapped);
                unlink(path);
                strcat(path, "_");
                map_file(open(path, O_RDWR | O_NOFOLLOW));
                continue;
            }
            if (command == CLOSE) {
                give(CLOSE);
                munmap(file, mapped);
                unlink(path);
                exit(0);
            }
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

/* -------------------------------------------------------------------------------------------------- the groups */

struct group {
    const char *name;
    int continuous, action_size, choices;
    int rows; /* M: the row that ends a life and the first one of the next life may come together */
    size_t n, observation, reward, done, max_step, id, mask, action; /* offsets */
};

static struct group groups[2] = {{.name = "chaser", .continuous = 1, .action_size = 2},
                                 {.name = "runner", .action_size = 1, .choices = CHOICES}};

static size_t group_bytes(const struct group *g) {
    size_t fixed = 77 + (g->continuous ? 0 : 4u * g->action_size) + 12;
    return fixed + 4 + (size_t)g->rows * (4 * OBSERVATIONS + 10 + g->choices + 4 * g->action_size);
}

static size_t write_group(struct group *g, size_t at) {
    file[at] = (unsigned char)strlen(g->name);
    memcpy(file + at + 1, g->name, strlen(g->name));
    put_int(at + 64, g->rows);
    file[at + 68] = (unsigned char)g->continuous;
    put_int(at + 69, g->action_size);
    at += 73;
    if (!g->continuous) put_int(at, g->choices), at += 4;
    put_int(at, 1); /* one observation */
    put_int(at + 4, OBSERVATIONS);
    size_t rows = (size_t)g->rows;
    g->n = at + 16;
    g->observation = g->n + 4;
    g->reward = g->observation + 4 * OBSERVATIONS * rows;
    g->done = g->reward + 4 * rows;
    g->max_step = g->done + rows;
    g->id = g->max_step + rows;
    g->mask = g->id + 4 * rows;
    g->action = g->mask + rows * (size_t)g->choices;
    return g->action + 4 * rows * (size_t)g->action_size;
}

/* Makes the next file, with both groups in it. */
static void register_groups(void) {
    int32_t capacity = get_int(CAPACITY);
    size_t count_at = AREA - 4 + (size_t)capacity;
    size_t length = AREA + (size_t)capacity + group_bytes(&groups[0]) + group_bytes(&groups[1]);
    unsigned char *old = file;
    size_t old_bytes = mapped;
    put_int(count_at, 2);
    strcat(path, "_");
    int descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (descriptor < 0 || posix_fallocate(descriptor, 0, (off_t)length) != 0) fail("cannot be made");
    map_file(descriptor);
    memcpy(file, old, count_at + 4);
    put_int(LENGTH, (int32_t)length);
    write_group(&groups[1], write_group(&groups[0], count_at + 4));
    old[COMMAND] = CHANGE_FILE;
    __sync_synchronize();
    old[TURN] = DRIVER; /* the driver removes the old file */
    munmap(old, old_bytes);
}

/* --------------------------------------------------------------------------------------------------- the game */

struct world {
    float place[2][2]; /* of the chaser, of the runner: -1 to 1 */
    int steps;
};

static struct world worlds[MOST_WORLDS];
static int world_count = 4, next_id, ids[MOST_WORLDS];
static uint64_t state;

static float draw(void) { /* xorshift64*: uniform in -1 to 1 */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (float)((state * 2685821657736338717ULL) >> 40) / 8388608.0f - 1.0f;
}

static void begin_world(int w) {
    for (int who = 0; who < 2; who++)
        for (int axis = 0; axis < 2; axis++) worlds[w].place[who][axis] = draw();
    worlds[w].steps = 0;
    ids[w] = next_id++;
}

static float distance(const struct world *world) {
    return hypotf(world->place[0][0] - world->place[1][0], world->place[0][1] - world->place[1][1]);
}

static void put_row(int who, int w, float reward, int done, int max_step) {
    struct group *g = &groups[who];
    int row = get_int(g->n);
    for (int axis = 0; axis < 2; axis++) {
        put_float(g->observation + 4u * (size_t)(OBSERVATIONS * row + axis), worlds[w].place[who][axis]);
        put_float(g->observation + 4u * (size_t)(OBSERVATIONS * row + 2 + axis), worlds[w].place[1 - who][axis]);
    }
    put_float(g->reward + 4u * (size_t)row, reward);
    file[g->done + (size_t)row] = (unsigned char)done;
    file[g->max_step + (size_t)row] = (unsigned char)max_step;
    put_int(g->id + 4u * (size_t)row, ids[w]);
    memset(file + g->mask + (size_t)(row * g->choices), 0, (size_t)g->choices); /* nothing is forbidden */
    put_int(g->n, row + 1);
}

static float clip(float value) { return value < -1 ? -1 : value > 1 ? 1 : value; }

/* Moves both, writes their rows, and begins anew after the end. `row`: of the world among the rows that have asked. */
static void step_world(int w, const float velocity[2], int choice) {
    static const float moves[CHOICES][2] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};
    struct world *world = &worlds[w];
    for (int axis = 0; axis < 2; axis++) {
        world->place[0][axis] = clip(world->place[0][axis] + 0.08f * clip(velocity[axis]));
        world->place[1][axis] = clip(world->place[1][axis] + 0.06f * moves[choice][axis]);
    }
    world->steps++;
    int caught = distance(world) < 0.15f, over = caught || world->steps == LIMIT;
    float reward = (caught ? 1.0f : over ? -1.0f : 0.0f) - 0.01f * distance(world);
    put_row(CHASER, w, reward, over, 0);
    put_row(RUNNER, w, -reward, over, 0);
    if (over) {
        begin_world(w);
        put_row(CHASER, w, 0, 0, 0);
        put_row(RUNNER, w, 0, 0, 0);
    }
}

int main(int count, char **arguments) {
    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(arguments[i], "--memory-path")) snprintf(path, sizeof path - 256, "%s", arguments[i + 1]);
        if (!strcmp(arguments[i], "--seed")) state = strtoull(arguments[i + 1], NULL, 10);
        if (!strcmp(arguments[i], "--worlds")) world_count = atoi(arguments[i + 1]);
    }
    if (world_count < 1 || world_count > MOST_WORLDS) fail("--worlds: 1 to 64 are allowed");
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    groups[0].rows = groups[1].rows = 2 * world_count;
    map_file(open(path, O_RDWR | O_NOFOLLOW));
    int command = await_turn();
    register_groups();
    for (;;) {
        if (command == RESET) {
            put_int(groups[0].n, 0);
            put_int(groups[1].n, 0);
            for (int w = 0; w < world_count; w++) {
                begin_world(w);
                put_row(CHASER, w, 0, 0, 0);
                put_row(RUNNER, w, 0, 0, 0);
            }
        } else {
            float velocity[MOST_WORLDS][2];
            int choice[MOST_WORLDS], w = 0;
            for (int row = 0; w < world_count; row++) { /* the rows that ask are in the order of the worlds */
                if (file[groups[0].done + (size_t)row]) continue;
                velocity[w][0] = get_float(groups[0].action + 8u * (size_t)row);
                velocity[w][1] = get_float(groups[0].action + 8u * (size_t)row + 4);
                choice[w++] = get_int(groups[1].action + 4u * (size_t)row);
            }
            put_int(groups[0].n, 0);
            put_int(groups[1].n, 0);
            for (w = 0; w < world_count; w++) step_world(w, velocity[w], choice[w]);
        }
        give(STEP);
        command = await_turn();
    }
}
