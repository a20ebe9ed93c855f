// A ground-truth server for benchmark clients: each token's text is the instant at which it was sent.
//
//     truth PORT TTFT_MS ITL_MS        port 0: any free one; the port is printed once it listens
//
// It speaks as much of OpenAI's API as benchmark clients need: /v1/models (one model, `truth`), and /v1/completions and
// /v1/chat/completions as event streams. The text of a token is the CLOCK_REALTIME nanosecond at which it was handed to
// send(); the first one is `ARRIVAL:SEND`, with the instant at which the request's last byte had come. So what a client
// reports can be held against what happened, on however noisy a machine.
//
// Pacing. The first token is due TTFT after the request's arrival, each further one ITL after the one before was *due*:
// deadlines are absolute, lateness doesn't add up, and what is late is late in the tokens, too. The arrival is the
// kernel's receive stamp, because a server that is busy sending to a thousand streams looks at its sockets late.
//
// One thread: epoll for the sockets, a heap for the deadlines, epoll_pwait2 for waits finer than a millisecond.

#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define MAX_FILES 65536
#define MAX_EVENTS 256
#define MAX_REQUEST_BYTES (16u << 20)
#define TOKENS_BETWEEN_READS 64  // so that a thousand tokens due at once don't keep requests waiting

typedef struct {
    int fd;
    bool chat, with_usage;
    bool streaming;  // it stands in the heap
    bool closed;     // the client left in mid-stream; freed when its deadline comes
    long asked, sent;
    int64_t arrived_ns;  // CLOCK_REALTIME, of the last bytes read
    int64_t due_ns;      // CLOCK_MONOTONIC, of the next token
    char *in;
    size_t in_len, in_size;
    char *out;  // what the socket did not take
    size_t out_len;
} Connection;

static int64_t ttft_ns, itl_ns;
static int epoll_fd;

static void *checked(void *memory) {
    if (!memory) {
        fputs("truth: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

// --- deadlines: a binary heap, the earliest first -----------------------------------------------------------------

static Connection *heap[MAX_FILES];
static int heap_len;

static void heap_sink(Connection *connection) {  // from the top, which is free
    int hole = 0;
    for (int child; (child = 2 * hole + 1) < heap_len; hole = child) {
        if (child + 1 < heap_len && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (connection->due_ns <= heap[child]->due_ns) break;
        heap[hole] = heap[child];
    }
    heap[hole] = connection;
}

static void heap_push(Connection *connection) {
    int hole = heap_len++;
    for (int parent; hole && heap[parent = (hole - 1) / 2]->due_ns > connection->due_ns; hole = parent)
        heap[hole] = heap[parent];
    heap[hole] = connection;
}

static void heap_pop(void) {
    Connection *last = heap[--heap_len];
    if (heap_len) heap_sink(last);
}

// --- connections --------------------------------------------------------------------------------------------------

static void watch(int operation, int fd, Connection *connection, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = connection};
    epoll_ctl(epoll_fd, operation, fd, &event);
}

static void connection_free(Connection *connection) {
    free(connection->in);
    free(connection->out);
    free(connection);
}

static void connection_close(Connection *connection) {
    close(connection->fd);
    if (connection->streaming)
        connection->closed = true;
    else
        connection_free(connection);
}

// Hands bytes to the socket. What it does not take waits in `out` until it has room: one client that doesn't read must
// not delay the others. A broken connection is noticed by the next read.
static void connection_send(Connection *connection, const char *bytes, size_t len) {
    if (!connection->out_len) {
        ssize_t taken = send(connection->fd, bytes, len, MSG_NOSIGNAL);
        if (taken < 0) {
            if (errno != EAGAIN) return;
            taken = 0;
        }
        if ((size_t)taken == len) return;
        bytes += taken;
        len -= taken;
        watch(EPOLL_CTL_MOD, connection->fd, connection, EPOLLIN | EPOLLOUT);
    }
    connection->out = checked(realloc(connection->out, connection->out_len + len));
    memcpy(connection->out + connection->out_len, bytes, len);
    connection->out_len += len;
}

static void connection_flush(Connection *connection) {
    ssize_t taken = send(connection->fd, connection->out, connection->out_len, MSG_NOSIGNAL);
    if (taken <= 0) return;
    connection->out_len -= taken;
    memmove(connection->out, connection->out + taken, connection->out_len);
    if (!connection->out_len) watch(EPOLL_CTL_MOD, connection->fd, connection, EPOLLIN);
}

// --- answers ------------------------------------------------------------------------------------------------------

static void send_document(Connection *connection, const char *status, const char *json) {
    char answer[1024];
    int len = snprintf(answer, sizeof answer,
                       "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", status,
                       strlen(json), json);
    connection_send(connection, answer, len);
}

static void send_error(Connection *connection, const char *status, const char *message) {
    char json[512];
    snprintf(json, sizeof json, "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\"}}", message);
    send_document(connection, status, json);
}

// One event as one HTTP chunk in one send, the way servers stream tokens.
static void send_event(Connection *connection, const char *json) {
    char chunk[1024];
    size_t event_len = strlen("data: ") + strlen(json) + strlen("\n\n");
    int len = snprintf(chunk, sizeof chunk, "%zx\r\ndata: %s\n\n\r\n", event_len, json);
    connection_send(connection, chunk, len);
}

#define EVENT_HEAD "{\"id\":\"cmpl-truth\",\"created\":1700000000,\"model\":\"truth\",\"object\":\"%s\","

static const char *object_of(const Connection *connection) {
    return connection->chat ? "chat.completion.chunk" : "text_completion";
}

static void send_token(Connection *connection) {
    bool first = connection->sent == 0, last = ++connection->sent == connection->asked;
    char text[64], json[512];
    int64_t now_ns = clock_ns(CLOCK_REALTIME);
    if (first)
        snprintf(text, sizeof text, " %lld:%lld", (long long)connection->arrived_ns, (long long)now_ns);
    else
        snprintf(text, sizeof text, " %lld", (long long)now_ns);
    snprintf(json, sizeof json,
             connection->chat
                 ? EVENT_HEAD "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":%s}]}"
                 : EVENT_HEAD "\"choices\":[{\"index\":0,\"text\":\"%s\",\"finish_reason\":%s}]}",
             object_of(connection), text, last ? "\"length\"" : "null");
    send_event(connection, json);
}

static void send_end(Connection *connection) {
    if (connection->with_usage) {
        char json[512];
        snprintf(json, sizeof json, EVENT_HEAD "\"choices\":[],\"usage\":{\"completion_tokens\":%ld}}",
                 object_of(connection), connection->sent);
        send_event(connection, json);
    }
    static const char done[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    connection_send(connection, done, sizeof done - 1);
}

// --- requests -----------------------------------------------------------------------------------------------------

// The integer behind a key of a JSON object, -1 where it is absent. A key inside of a string can't be mistaken for one:
// its quotes are escaped there.
static long json_integer(const char *json, const char *key) {
    const char *at = strstr(json, key);
    if (!at) return -1;
    at += strlen(key);
    at += strspn(at, " :");
    char *end;
    long value = strtol(at, &end, 10);
    return end == at ? -1 : value;
}

static bool json_true(const char *json, const char *key) {
    const char *at = strstr(json, key);
    if (!at) return false;
    at += strlen(key);
    at += strspn(at, " :");
    return !strncmp(at, "true", 4);
}

static void begin_stream(Connection *connection, bool chat, const char *body) {
    long asked = json_integer(body, "\"max_tokens\"");
    if (asked < 0) asked = json_integer(body, "\"max_completion_tokens\"");
    if (asked < 1) {
        send_error(connection, "400 Bad Request", "max_tokens or max_completion_tokens of at least 1 is needed");
        return;
    }
    if (!json_true(body, "\"stream\"")) {
        send_error(connection, "400 Bad Request", "this server only streams");
        return;
    }
    if (heap_len == MAX_FILES) {  // clients that left lie in the heap until their next token is due
        send_error(connection, "503 Service Unavailable", "too many streams");
        return;
    }
    connection->chat = chat;
    connection->with_usage = json_true(body, "\"include_usage\"");
    connection->asked = asked;
    connection->sent = 0;
    static const char head[] =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    connection_send(connection, head, sizeof head - 1);
    int64_t ago_ns = clock_ns(CLOCK_REALTIME) - connection->arrived_ns;
    connection->due_ns = clock_ns(CLOCK_MONOTONIC) - ago_ns + ttft_ns;
    connection->streaming = true;
    heap_push(connection);
}

static void answer(Connection *connection, const char *request_line, const char *body) {
    if (!strncmp(request_line, "POST /v1/completions ", 21))
        begin_stream(connection, false, body);
    else if (!strncmp(request_line, "POST /v1/chat/completions ", 26))
        begin_stream(connection, true, body);
    else if (!strncmp(request_line, "GET /v1/models ", 15))
        send_document(connection, "200 OK",
                      "{\"object\":\"list\",\"data\":[{\"id\":\"truth\",\"object\":\"model\",\"max_model_len\":131072}]}");
    else if (!strncmp(request_line, "GET /health ", 12))
        send_document(connection, "200 OK", "{}");
    else
        send_error(connection, "404 Not Found", "not here");
}

// Answers the requests that have come whole. One that comes behind a stream waits for the stream's end.
static void take_requests(Connection *connection) {
    while (!connection->streaming && connection->in_len) {
        char *head_end = memmem(connection->in, connection->in_len, "\r\n\r\n", 4);
        if (!head_end) return;
        *head_end = '\0';
        const char *length = strcasestr(connection->in, "\r\ncontent-length:");
        size_t body_len = length ? strtoul(length + strlen("\r\ncontent-length:"), NULL, 10) : 0;
        char *body = head_end + 4;
        size_t whole = body - connection->in + body_len;
        if (connection->in_len < whole) {
            *head_end = '\r';
            return;
        }
        char next = connection->in[whole];  // the buffer has room for one more byte
        connection->in[whole] = '\0';
        answer(connection, connection->in, body);
        connection->in[whole] = next;
        connection->in_len -= whole;
        memmove(connection->in, connection->in + whole, connection->in_len);
    }
}

// When the kernel received what was read last; our own clock where it doesn't say.
static int64_t arrival_ns(struct msghdr *message) {
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control; control = CMSG_NXTHDR(message, control)) {
        if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec stamp;
            memcpy(&stamp, CMSG_DATA(control), sizeof stamp);
            return stamp.tv_sec * NS_PER_S + stamp.tv_nsec;
        }
    }
    return clock_ns(CLOCK_REALTIME);
}

static void connection_read(Connection *connection) {
    if (connection->in_size - connection->in_len < 4096) {
        connection->in_size = connection->in_size ? 2 * connection->in_size : 16384;
        connection->in = checked(realloc(connection->in, connection->in_size));
    }
    char control[CMSG_SPACE(sizeof(struct timespec))];
    struct iovec room = {connection->in + connection->in_len, connection->in_size - connection->in_len - 1};
    struct msghdr message = {
        .msg_iov = &room, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t len = recvmsg(connection->fd, &message, 0);
    if (len < 0 && errno == EAGAIN) return;
    if (len <= 0 || connection->in_len + len > MAX_REQUEST_BYTES) {
        connection_close(connection);
        return;
    }
    connection->in_len += len;
    connection->arrived_ns = arrival_ns(&message);
    take_requests(connection);
}

// --- the loop -----------------------------------------------------------------------------------------------------

static void accept_all(int listener) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        Connection *connection = checked(calloc(1, sizeof *connection));
        connection->fd = fd;
        watch(EPOLL_CTL_ADD, fd, connection, EPOLLIN);
    }
}

static void send_due(void) {
    int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    for (int n = 0; n < TOKENS_BETWEEN_READS && heap_len && heap[0]->due_ns <= now_ns; n++) {
        Connection *connection = heap[0];
        if (!connection->closed) send_token(connection);
        if (!connection->closed && connection->sent < connection->asked) {
            connection->due_ns += itl_ns;
            heap_sink(connection);
            continue;
        }
        heap_pop();
        connection->streaming = false;
        if (connection->closed) {
            connection_free(connection);
        } else {
            send_end(connection);
            take_requests(connection);
        }
    }
}

static void serve(int listener) {
    static struct epoll_event events[MAX_EVENTS];
    for (;;) {
        struct timespec wait = {0}, *until_due = NULL;
        if (heap_len) {
            int64_t wait_ns = heap[0]->due_ns - clock_ns(CLOCK_MONOTONIC);
            if (wait_ns > 0) wait = (struct timespec){wait_ns / NS_PER_S, wait_ns % NS_PER_S};
            until_due = &wait;
        }
        int num = epoll_pwait2(epoll_fd, events, MAX_EVENTS, until_due, NULL);
        for (int i = 0; i < num; i++) {
            Connection *connection = events[i].data.ptr;
            if (!connection) {
                accept_all(listener);
                continue;
            }
            if (events[i].events & EPOLLOUT) connection_flush(connection);
            if (events[i].events & ~EPOLLOUT) connection_read(connection);
        }
        send_due();
    }
}

static int listen_on(int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(listener, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);  // accepted sockets inherit it
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, len) || listen(listener, 8192) ||
        getsockname(listener, (struct sockaddr *)&address, &len)) {
        perror("truth: listen");
        exit(1);
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fputs("usage: truth PORT TTFT_MS ITL_MS\n", stderr);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // never outlive whoever measures with us
    struct rlimit files = {MAX_FILES, MAX_FILES};
    if (setrlimit(RLIMIT_NOFILE, &files)) {
        getrlimit(RLIMIT_NOFILE, &files);
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    ttft_ns = (int64_t)(atof(argv[2]) * 1e6);
    itl_ns = (int64_t)(atof(argv[3]) * 1e6);
    epoll_fd = epoll_create1(0);
    int listener = listen_on(atoi(argv[1]));
    watch(EPOLL_CTL_ADD, listener, NULL, EPOLLIN);
    serve(listener);
}
