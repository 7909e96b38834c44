/* test_spawn — a worker's state at its first instruction: the board on its descriptor, nothing else
 * open, signals ignored, bound to its parent. This program is its own worker: started as "convoy
 * worker I WORD" it does what WORD names. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/board.h"
#include "base/clock.h"
#include "node/process/spawn.h"

static int is_ignored(int signal_n)
{
    struct sigaction now;
    return sigaction(signal_n, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static int work(int argc, char **argv)
{
    if (argc != 4 || strcmp(argv[0], "convoy") != 0 || strcmp(argv[2], "7") != 0)
        return 1;
    if (strcmp(argv[3], "exit=5") == 0)
        return 5;
    if (strncmp(argv[3], "check=", 6) == 0) {
        bool has_share = argv[3][6] >= '2', has_copy = argv[3][6] == '3';
        char byte = 0;
        sigset_t blocked;
        sigprocmask(SIG_SETMASK, NULL, &blocked);
        if (pread(BOARD_FD, &byte, 1, 0) != 1 || byte != 'b')
            return 2;
        if (has_share && (pread(BOARD_SHM_FD, &byte, 1, 0) != 1 || byte != 's'))
            return 7;
        if (has_copy && (pread(BOARD_PEER_COPY_FD, &byte, 1, 0) != 1 || byte != 'c'))
            return 8;
        for (int fd = has_share ? BOARD_SHM_FD + 1 : BOARD_FD + 1; fd < 64; fd++)
            if (fcntl(fd, F_GETFD) >= 0 && (!has_copy || fd != BOARD_PEER_COPY_FD))
                return 3;
        if (!is_ignored(SIGINT) || !is_ignored(SIGTERM) || !is_ignored(SIGUSR1) ||
            !is_ignored(SIGPIPE))
            return 4;
        return sigismember(&blocked, SIGTERM) || sigismember(&blocked, SIGCHLD) ? 6 : 0;
    }
    for (;;)
        pause();
}

static int copy_fd = -1; /* of the next worker */

static enum status begin(char **args, int board_fd, int shm_fd, pid_t *pid)
{
    return spawn_worker(&(struct spawn_config){1, args, 7, board_fd, shm_fd, copy_fd}, pid);
}

/* run — one worker to its end; its wait status. */
static int run(const char *word, int board_fd, int shm_fd)
{
    char *args[] = {(char *)word};
    pid_t pid, reaped = 0;
    int wait_status = -1;
    assert_int_equal(begin(args, board_fd, shm_fd, &pid), ST_OK);
    while (!spawn_reap(&reaped, &wait_status))
        clock_sleep_ms(5);
    assert_int_equal(reaped, pid);
    assert_false(spawn_reap(&reaped, &wait_status));
    return wait_status;
}

static int file_of(const char *byte, int at_least)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", harness_tmpdir(), byte);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, byte, 1), 1);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, at_least);
    close(fd);
    return high;
}

static void test_exit_code(void **state)
{
    int fd = file_of("b", 3);
    int wait_status = run("exit=5", fd, -1);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 5);
    close(fd);
}

static void test_first_instruction(void **state)
{
    for (int at = 3; at < 40; at += 17) { /* also when the board already has its number */
        int fd = file_of("b", at), other = open("/dev/null", O_RDONLY);
        assert_int_equal(WEXITSTATUS(run("check=1", fd, -1)), 0);
        close(fd);
        close(other);
    }
    /* Two descriptors, whatever their numbers here, also each other's. */
    static const int at[][2] = {{3, 4}, {4, 3}, {3, 20}, {4, 20}, {20, 3}, {20, 4}, {20, 21}};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        int board = file_of("b", 40), share = file_of("s", 40);
        assert_int_equal(dup2(board, at[i][0]), at[i][0]);
        assert_int_equal(dup2(share, at[i][1]), at[i][1]);
        assert_int_equal(WEXITSTATUS(run("check=2", at[i][0], at[i][1])), 0);
        close(board), close(share), close(at[i][0]), close(at[i][1]);
    }
}

/* Three descriptors, in all orders of the numbers that they are to have, and of others. */
static void test_three_descriptors(void **state)
{
    for (int i = 0; i < 6 * 6 * 6; i++) {
        const int at[] = {3 + i % 6, 3 + i / 6 % 6, 3 + i / 36};
        int fd[3];
        if (at[0] == at[1] || at[1] == at[2] || at[0] == at[2])
            continue;
        for (int k = 0; k < 3; k++) {
            static const char *const names[] = {"b", "s", "c"};
            int high = file_of(names[k], 40);
            fd[k] = dup2(high, at[k]);
            close(high);
            assert_int_equal(fd[k], at[k]);
        }
        copy_fd = fd[2];
        assert_int_equal(WEXITSTATUS(run("check=3", fd[0], fd[1])), 0);
        copy_fd = -1;
        close(fd[0]), close(fd[1]), close(fd[2]);
    }
}

/* The supervisor goes before others where it may; its workers never do. */
static void test_lift(void **state)
{
    char *args[] = {"sleep=1"};
    pid_t pid, reaped;
    int wait_status, fd = file_of("b", 3), before = getpriority(PRIO_PROCESS, 0),
                     by = spawn_raise_priority();
    assert_in_range(by, 0, 10);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before - by);
    assert_int_equal(spawn_raise_priority(), by); /* once */
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before - by);
    assert_int_equal(begin(args, fd, -1, &pid), ST_OK);
    for (int64_t until_ms = clock_ms() + harness_patience_ms(5000);
         getpriority(PRIO_PROCESS, (id_t)pid) != before && clock_ms() < until_ms;)
        clock_sleep_ms(5);
    assert_int_equal(getpriority(PRIO_PROCESS, (id_t)pid), before);
    kill(pid, SIGKILL);
    while (!spawn_reap(&reaped, &wait_status))
        clock_sleep_ms(5);
    close(fd);
}

static void test_state(void **state)
{
    char *args[] = {"sleep=1"};
    pid_t pid, reaped;
    int fd = file_of("b", 3), wait_status;
    assert_int_equal(begin(args, fd, -1, &pid), ST_OK);
    kill(pid, SIGSTOP);
    for (int64_t until_ms = clock_ms() + harness_patience_ms(5000);
         spawn_state(pid) != 'T' && clock_ms() < until_ms;)
        clock_sleep_ms(10);
    assert_int_equal(spawn_state(pid), 'T');
    kill(pid, SIGKILL);
    while (!spawn_reap(&reaped, &wait_status))
        clock_sleep_ms(5);
    assert_true(WIFSIGNALED(wait_status));
    assert_int_equal(spawn_state(pid), 0);
    close(fd);
}

/* A parent that dies takes its worker along. */
static void test_bound_to_parent(void **state)
{
    int pipe_fd[2], fd = file_of("b", 3);
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t parent = fork();
    if (parent == 0) {
        char *args[] = {"sleep=1"};
        pid_t worker = 0;
        if (begin(args, fd, -1, &worker) != ST_OK || write(pipe_fd[1], &worker, sizeof worker) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    pid_t worker;
    assert_int_equal(read(pipe_fd[0], &worker, sizeof worker), sizeof worker);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    char now = 'S';
    for (int64_t until_ms = clock_ms() + harness_patience_ms(5000);
         now != 0 && now != 'Z' && clock_ms() < until_ms;) {
        clock_sleep_ms(10);
        now = spawn_state(worker);
    }
    assert_true(now == 0 || now == 'Z');
    close(fd);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_exit_code),
    cmocka_unit_test(test_first_instruction),
    cmocka_unit_test(test_three_descriptors),
    cmocka_unit_test(test_state),
    cmocka_unit_test(test_lift),
    cmocka_unit_test(test_bound_to_parent),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        return work(argc, argv);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
