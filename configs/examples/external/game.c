/* A corridor of eleven cells with the goal in the middle, played over HTTP for corridor.yaml, by sockets alone.
 *
 * cc -O2 -o game game.c && ./game [PORT] [GAMES]
 *
 * The actor `raw` takes and gives bytes, little-endian: a tick is the reward since the last action (double) and the
 * observation (float), its answer the action (64-bit integer); an end is the reward, a byte of bits (1: truncated, 2: an
 * observation follows), and the observation.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 11, GOAL = 5, MOST_STEPS = 50 };

static int line = -1; /* the connection */
static int port = 8000;
static int answered = 0;

static void pause_a_little(void) {
    struct timespec time = {0, 200 * 1000 * 1000};
    nanosleep(&time, NULL);
}

static void connect_to_server(void) {
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (;;) {
        line = socket(AF_INET, SOCK_STREAM, 0);
        if (line >= 0 && connect(line, (struct sockaddr *)&place, sizeof place) == 0) return;
        if (line >= 0) close(line);
        if (answered) {
            puts("the run has ended");
            exit(0);
        }
        pause_a_little(); /* it has not begun */
    }
}

static int send_all(const char *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(line, data, size, MSG_NOSIGNAL);
        if (sent <= 0) return 0;
        data += sent;
        size -= (size_t)sent;
    }
    return 1;
}

/* Reads one answer; its status, or 0 if the connection is lost. The body, at most 1023 bytes, goes to `body`. */
static int receive(char *body, size_t *size) {
    char data[4096];
    size_t have = 0, length = 0;
    char *end = NULL;
    for (;;) {
        ssize_t got = recv(line, data + have, sizeof data - 1 - have, 0);
        if (got <= 0) return 0;
        have += (size_t)got;
        data[have] = 0;
        end = strstr(data, "\r\n\r\n");
        if (end == NULL) continue;
        for (char *at = data; at != NULL && at < end; at = strchr(at + 1, '\n'))
            if (strncasecmp(at + 1, "content-length:", 15) == 0) length = strtoul(at + 16, NULL, 10);
        if (length > 1023) return 0;
        if (have >= (size_t)(end + 4 - data) + length) break;
    }
    memcpy(body, end + 4, length);
    body[length] = 0;
    *size = length;
    return atoi(data + 9); /* HTTP/1.1 200 */
}

/* Sends one request and waits for its answer; the size of the body of the answer. */
static size_t step(const char *kind, const char *game, const void *data, size_t size, char *body) {
    char request[1024];
    int head = snprintf(request, sizeof request,
                        "POST /step HTTP/1.1\r\nhost: localhost\r\nstep_kind: %s\r\ngame_id: %s\r\n"
                        "content-length: %zu\r\n\r\n",
                        kind, game, size);
    memcpy(request + head, data, size);
    for (;;) {
        size_t found = 0;
        if (line < 0) connect_to_server();
        int status = send_all(request, (size_t)head + size) ? receive(body, &found) : 0;
        if (status == 200) {
            answered = 1;
            return found;
        }
        if (status == 0) { /* a run that has ended refuses the next connection */
            close(line);
            line = -1;
        } else if (status != 503) {
            fprintf(stderr, "%s of %s: %d %s\n", kind, game, status, body);
            exit(1);
        } else if (strstr(body, "\"over\"") != NULL || strstr(body, "\"draining\"") != NULL) {
            puts("the run has ended");
            exit(0);
        }
        if (status != 200) pause_a_little();
    }
}

int main(int count, char **arguments) {
    if (count > 1) port = atoi(arguments[1]);
    if (port <= 0) {
        fprintf(stderr, "usage: %s [PORT]\n", arguments[0]);
        return 2;
    }
    long games = count > 2 ? atol(arguments[2]) : -1; /* without a number: until the run ends */
    srand((unsigned)time(NULL));
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (long number = 1; games < 0 || number <= games; number++) {
        char game[64], body[1024], data[16];
        int cell = rand() % CELLS, steps = 0;
        double reward = 0.0, sum = 0.0;
        snprintf(game, sizeof game, "corridor-%ld-%ld", (long)getpid(), number);
        step("start", game, "", 0, body);
        while (steps == 0 || (cell != GOAL && steps < MOST_STEPS)) {
            float seen = (float)(cell - GOAL) / CELLS;
            int64_t action;
            memcpy(data, &reward, 8);
            memcpy(data + 8, &seen, 4);
            if (step("tick", game, data, 12, body) != 8) {
                fprintf(stderr, "an action has 8 bytes\n");
                return 1;
            }
            memcpy(&action, body, 8);
            cell += action == 1 ? 1 : -1;
            cell = cell < 0 ? 0 : cell >= CELLS ? CELLS - 1 : cell;
            reward = cell == GOAL ? 1.0 : -0.1;
            sum += reward;
            steps++;
        }
        float seen = (float)(cell - GOAL) / CELLS;
        memcpy(data, &reward, 8);
        data[8] = (char)((cell == GOAL ? 0 : 1) | 2);
        memcpy(data + 9, &seen, 4);
        step("end", game, data, 13, body);
        printf("game %ld: return %.1f in %d steps\n", number, sum, steps);
    }
    return 0;
}
