/* peer_tcp — what the kernel's TCP carries between two processes of this machine, both ways at
 * once: each sends and receives GIB (the argument) over one connection, as the buffers allow, 256
 * KiB at a time, nothing is done with the bytes. Prints GB/s of each direction. Built by
 * tests/bench/comm.sh. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AT_A_TIME (256 << 10)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void settle_on_core(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
}

static int swap(int fd, long long bytes)
{
    static char out[AT_A_TIME], in[AT_A_TIME];
    long long sent = 0, came = 0;
    memset(out, 1, sizeof(out));
    while (sent < bytes || came < bytes) {
        ssize_t a = 0, b = 0;
        if (sent < bytes)
            a = send(fd, out, sizeof(out), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (came < bytes)
            b = recv(fd, in, sizeof(in), MSG_DONTWAIT);
        if (b == 0 && came < bytes)
            return 1;
        sent += a > 0 ? a : 0;
        came += b > 0 ? b : 0;
        if (a <= 0 && b <= 0)
            sched_yield();
    }
    return 0;
}

int main(int argc, char **argv)
{
    const long long bytes = (argc > 1 ? atoll(argv[1]) : 1) << 30;
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t where_n = sizeof(where);
    int yes = 1, fd = -1, code = 0, door = socket(AF_INET, SOCK_STREAM, 0);
    if (door < 0 || bind(door, (struct sockaddr *)&where, sizeof(where)) != 0 ||
        listen(door, 1) != 0 || getsockname(door, (struct sockaddr *)&where, &where_n) != 0)
        return perror("peer_tcp"), 1;
    pid_t child = fork();
    settle_on_core(child == 0);
    if (child == 0) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&where, sizeof(where)) != 0)
            _exit(1);
    } else {
        fd = accept(door, NULL, NULL);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    double begin = now();
    if (swap(fd, bytes) != 0)
        return 1;
    double elapsed = now() - begin;
    if (child == 0)
        _exit(0);
    waitpid(child, &code, 0);
    printf("%.3f\n", (double)bytes / elapsed * 1e-9);
    return code != 0;
}
