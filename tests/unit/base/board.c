/* board: copies are whole, even those of writers killed in the middle; requests and heartbeats;
 * memory that is not a board is refused. */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/board.h"

TEST(phases_have_names)
{
    assert_string_equal(board_phase_text(BOARD_PHASE_STARTING), "starting");
    assert_string_equal(board_phase_text(BOARD_PHASE_FAILED), "failed");
    assert_string_equal(board_phase_text((enum board_phase)77), "failed");
    assert_string_equal(board_phase_text((enum board_phase) - 1), "failed");
    assert_int_equal(BOARD_PHASE_N, 10);
}

TEST(posts_are_copied)
{
    struct board *board, *same;
    struct board_node node;
    static struct board_worker worker, copy;
    assert_int_equal(board_create(3, 3, &board), ST_OK);
    assert_int_equal(board_attach(board_fd(board), &same), ST_OK);
    board_node_copy(same, &node);
    assert_int_equal(node.phase, BOARD_PHASE_STARTING); /* a node that has published nothing */
    node = (struct board_node){
        .node_id = 4, .workers_n = 3, .phase = BOARD_PHASE_RECOVERING, .restarts = 2};
    text_copy(node.version, sizeof(node.version), "1.2");
    board_node_publish(board, &node);
    memset(&node, 0xAA, sizeof(node));
    board_node_copy(same, &node);
    assert_int_equal(node.node_id, 4);
    assert_string_equal(node.version, "1.2");

    assert_false(board_worker_copy(board, 2, &copy));
    worker.step = 120;
    worker.loss = NAN;
    worker.phase = BOARD_PHASE_TRAINING;
    worker.error.code = 65;
    text_copy(worker.error.message, sizeof(worker.error.message), "last byte follows");
    board_worker_publish(same, 2, &worker);
    assert_true(board_worker_copy(board, 2, &copy));
    assert_memory_equal(&worker, &copy, sizeof(worker));
    assert_false(board_worker_copy(board, 1, &copy));
    board_heartbeat(same, 2);
    assert_in_range(board_heartbeat_ms(board, 2), clock_ms() - harness_patience_ms(1000),
                    clock_ms());
    board_worker_clear(board, 2);
    assert_false(board_worker_copy(board, 2, &copy));
    assert_int_equal(board_heartbeat_ms(board, 2), 0);
    worker.step = 121;
    board_worker_publish(same, 2, &worker);
    assert_true(board_worker_copy(board, 2, &copy) && copy.step == 121);
    board_close(same);
    board_worker_publish(board, 2, &worker); /* the descriptor stayed open */
    board_close(board);
    board_close(NULL);
}

TEST(requests_only_rise)
{
    struct board *board;
    assert_int_equal(board_create(1, 1, &board), ST_OK);
    assert_int_equal(board_requested(board), BOARD_REQUEST_NONE);
    board_request(board, BOARD_REQUEST_SAVE);
    board_request(board, BOARD_REQUEST_TERMINATE);
    board_request(board, BOARD_REQUEST_PREEMPT);
    assert_int_equal(board_requested(board), BOARD_REQUEST_TERMINATE);
    board_request_done(board, BOARD_REQUEST_SAVE);
    assert_int_equal(board_requested(board), BOARD_REQUEST_TERMINATE);
    board_request_done(board, BOARD_REQUEST_TERMINATE);
    assert_int_equal(board_requested(board), BOARD_REQUEST_NONE);
    board_close(board);
}

/* What another process orders reaches the worker that it names, until a new process takes its
 * place. */
TEST(faults_are_ordered)
{
    struct board *board;
    struct board_flip done = {.choice = 7, .step = 3, .flip = {41, 30, 1, -1}}, got;
    assert_int_equal(board_create(2, 2, &board), ST_OK);
    board_flip_order(board, 1, 7);
    board_break(board, 1, 5);
    assert_int_equal(board_flip_ordered(board, 0), 0);
    assert_int_equal(board_broken(board, 0), 0);
    assert_int_equal(board_flip_ordered(board, 1), 7);
    assert_int_equal(board_broken(board, 1), 5);
    assert_false(board_flip_copy(board, 1, &got));
    board_flip_done(board, 1, &done);
    assert_int_equal(board_flip_ordered(board, 1), 0);
    assert_true(board_flip_copy(board, 1, &got));
    assert_int_equal(got.flip.elem, 41);
    board_flip_order(board, 1, 9);
    board_worker_clear(board, 1);
    assert_int_equal(board_flip_ordered(board, 1), 0);
    assert_false(board_flip_copy(board, 1, &got));
    assert_int_equal(board_broken(board, 1), 5); /* a later generation is not broken */
    board_close(board);
}

static void fill(struct board_worker *worker, int64_t n)
{
    worker->step = n;
    worker->phase = BOARD_PHASE_TRAINING;
    for (int i = 0; i < BOARD_STEPS_KEPT; i++)
        worker->step_ms[i] = (float)(n % 1000000 + i);
    memset(worker->error.message, 'a' + (int)(n % 26), sizeof(worker->error.message) - 1);
    worker->memory_bytes = -n;
}

static bool is_whole(const struct board_worker *worker)
{
    int64_t n = worker->step;
    for (int i = 0; i < BOARD_STEPS_KEPT; i++) {
        if (worker->step_ms[i] != (float)(n % 1000000 + i))
            return false;
    }
    for (size_t i = 0; i + 1 < sizeof(worker->error.message); i++) {
        if (worker->error.message[i] != 'a' + (int)(n % 26))
            return false;
    }
    return worker->memory_bytes == -n;
}

/* A process that publishes without pause is killed at 200 random moments, each after one of its
 * copies was seen; the next one continues where it stopped. */
TEST(killed_writers_leave_whole_copies)
{
    static struct board_worker copy, worker;
    struct board *board;
    int64_t last = 0, copies_n = 0;
    assert_int_equal(board_create(1, 1, &board), ST_OK);
    for (int round = 0; round < 200; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            for (int64_t n = last + 1;; n++) {
                fill(&worker, n);
                board_worker_publish(board, 0, &worker);
            }
        }
        const int64_t before = last, late = clock_ms() + harness_patience_ms(10000),
                      end = clock_ns() + 300000 + (int64_t)(round * 7919 % 1000) * 1000;
        while (clock_ns() < end || (last == before && clock_ms() < late)) {
            if (!board_worker_copy(board, 0, &copy))
                continue;
            copies_n++;
            assert_true(is_whole(&copy));
            assert_true(copy.step >= last);
            last = copy.step;
        }
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        if (board_worker_copy(board, 0, &copy)) {
            assert_true(is_whole(&copy));
            last = copy.step;
        }
    }
    assert_true(last > 200 && copies_n > 200);
    board_close(board);
}

static atomic_bool stop;
static void *post_without_pause(void *arg)
{
    static struct board_worker worker;
    for (int64_t n = 1; !atomic_load(&stop); n++) {
        fill(&worker, n);
        board_worker_publish(arg, 0, &worker);
        board_heartbeat(arg, 0);
    }
    return NULL;
}

/* The same between threads, for a thread sanitizer to watch. */
TEST(threads_do_not_race)
{
    static struct board_worker copy;
    struct board *board;
    pthread_t thread;
    assert_int_equal(board_create(1, 1, &board), ST_OK);
    assert_int_equal(pthread_create(&thread, NULL, post_without_pause, board), 0);
    for (int n = 0; n < 2000;) {
        if (board_worker_copy(board, 0, &copy)) {
            assert_true(is_whole(&copy));
            n++;
        }
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    board_close(board);
}

/* How ranks connect: ready with an address, the world of a generation, its end; of collectives only
 * the last counts. */
TEST(ranks_meet)
{
    static struct board_address addresses[6], there[6];
    static struct board_ready ready, seen;
    struct board_call call = {.call = "all_reduce",
                              .sequence = 812,
                              .entered_ms = 5,
                              .published_ms = 7},
                      now;
    struct board *board, *same;
    struct board_world_place generation;
    assert_int_equal(board_create(2, 6, &board), ST_OK);
    assert_int_equal(board_attach(board_fd(board), &same), ST_OK);
    assert_int_equal(board_ranks(same), 6);
    assert_false(board_ready_copy(board, 1, &seen));
    ready.after = 4;
    ready.address.bytes = BOARD_ADDRESS_MAX;
    memset(ready.address.data, 0x5A, BOARD_ADDRESS_MAX);
    text_copy(ready.why, sizeof ready.why, "rank 3 is late");
    board_ready_publish(same, 1, &ready);
    assert_true(board_ready_copy(board, 1, &seen));
    assert_memory_equal(&seen, &ready, sizeof ready);
    assert_false(board_call_copy(board, 0, &now));
    board_call_publish(same, 0, &call);
    assert_true(board_call_copy(board, 0, &now));
    assert_memory_equal(&call, &now, sizeof call);

    for (int rank = 0; rank < 6; rank++) {
        addresses[rank].bytes = rank * 400;
        memset(addresses[rank].data, rank + 1, BOARD_ADDRESS_MAX);
    }
    assert_false(board_world_copy(same, 0, &generation, there));
    const struct board_world_place seven = {7, 3, 1}, eight = {8, 2, 0};
    board_world_publish(board, &seven, addresses, 6);
    /* the one it has been in already */
    assert_false(board_world_copy(same, 7, &generation, there));
    assert_true(board_world_copy(same, 6, &generation, there));
    assert_true(generation.generation == 7 && generation.nodes == 3 && generation.node == 1);
    assert_memory_equal(addresses, there, sizeof there);
    board_abort(board, 7);
    board_abort(board, 5); /* said late */
    assert_int_equal(board_aborted(same), 7);
    assert_false(board_world_copy(same, 6, &generation, there)); /* over */
    memset(there, 0, sizeof there);
    board_world_publish(board, &eight, addresses, 4); /* of fewer nodes */
    assert_true(board_world_copy(same, 7, &generation, there));
    assert_true(generation.generation == 8 && generation.nodes == 2 && generation.node == 0);
    assert_memory_equal(addresses, there, 4 * sizeof *there);
    assert_int_equal(there[4].bytes, 0);
    board_worker_clear(board, 1);
    assert_false(board_ready_copy(board, 1, &seen));
    board_close(same);
    board_close(board);
}

TEST(blobs_arrive_whole)
{
    static char out[BOARD_BLOB_MAX], big[BOARD_BLOB_MAX];
    struct board *board, *same;
    size_t n = 99;
    assert_int_equal(board_create(2, 5, &board), ST_OK);
    assert_int_equal(board_attach(board_fd(board), &same), ST_OK);
    assert_false(board_blob_copy(board, BOARD_BLOB_DATA, out, &n));
    assert_int_equal(board_blob_revision(board, BOARD_BLOB_DATA), 0);
    board_blob_publish(same, BOARD_BLOB_DATA, "first", 5);
    uint64_t turn = board_blob_revision(board, BOARD_BLOB_DATA);
    assert_int_not_equal(turn, 0);
    assert_true(board_blob_copy(board, BOARD_BLOB_DATA, out, &n));
    assert_int_equal(n, 5);
    assert_memory_equal(out, "first", 5);
    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (char)(i * 31);
    board_blob_publish(same, BOARD_BLOB_DATA, big, sizeof(big));
    assert_int_not_equal(board_blob_revision(board, BOARD_BLOB_DATA), turn);
    assert_true(board_blob_copy(board, BOARD_BLOB_DATA, out, &n));
    assert_int_equal(n, sizeof(big));
    assert_memory_equal(out, big, sizeof(big));
    assert_false(board_blob_copy(board, BOARD_BLOB_JOB_KEY, out, &n)); /* each is its own */
    board_blob_publish(same, BOARD_BLOB_JOB_KEY, "", 0);
    assert_true(board_blob_copy(board, BOARD_BLOB_JOB_KEY, out, &n));
    assert_int_equal(n, 0);
    board_close(same);
    board_close(board);
}

TEST(strangers_are_refused)
{
    struct board *board = NULL;
    assert_int_equal(board_attach(-1, &board), ST_BUG);
    assert_int_equal(board_attach(987, &board), ST_BUG);
    int fd = open("/dev/null", O_RDWR);
    assert_int_equal(board_attach(fd, &board), ST_BUG);
    close(fd);
    fd = memfd_create("other", 0);
    assert_int_equal(board_attach(fd, &board), ST_BUG);
    struct board *real;
    assert_int_equal(board_create(2, 2, &real), ST_OK);
    off_t bytes = lseek(board_fd(real), 0, SEEK_END);
    assert_int_equal(ftruncate(fd, bytes), 0); /* the size of a board, nothing in it */
    assert_int_equal(board_attach(fd, &board), ST_BUG);
    assert_null(board);
    close(fd);
    assert_int_not_equal(ftruncate(board_fd(real), 0), 0); /* sealed */
    board_close(real);
}

/* Garbage all over the memory: readers come back, strings end, phases exist. */
TEST(scribbles_are_survived)
{
    static struct board_worker copy;
    static struct board_ready ready;
    static struct board_address addresses[2];
    struct board_node node;
    struct board *board;
    struct board_world_place generation;
    assert_int_equal(board_create(2, 2, &board), ST_OK);
    size_t bytes = (size_t)lseek(board_fd(board), 0, SEEK_END);
    unsigned char *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, board_fd(board), 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    for (int fill_byte = 0xFC; fill_byte <= 0xFF; fill_byte++) {
        memset(memory, fill_byte, bytes);
        board_node_copy(board, &node);
        assert_true((unsigned)node.phase < BOARD_PHASE_N && node.workers_n <= 2);
        assert_true(strnlen(node.version, sizeof(node.version)) < sizeof(node.version));
        if (board_worker_copy(board, 1, &copy)) {
            assert_true((unsigned)copy.phase < BOARD_PHASE_N);
            assert_true(strnlen(copy.error.message, sizeof(copy.error.message)) <
                        sizeof(copy.error.message));
        }
        if (board_ready_copy(board, 1, &ready))
            assert_true(ready.address.bytes >= 0 && ready.address.bytes <= BOARD_ADDRESS_MAX);
        if (board_world_copy(board, -2, &generation, addresses))
            assert_true(addresses[1].bytes >= 0 && addresses[1].bytes <= BOARD_ADDRESS_MAX);
    }
    munmap(memory, bytes);
    board_close(board);
}

/* A board is found in a process that has it open, by its node; none before it is published. */
TEST(boards_of_processes_are_found)
{
    struct board *board;
    struct board_worker copy;
    assert_int_equal(board_create(1, 1, &board), ST_OK);
    assert_null(board_of_process(getpid(), 3));
    board_node_publish(board, &(struct board_node){.node_id = 3, .n_nodes = 4, .workers_n = 1});
    board_worker_publish(board, 0, &(struct board_worker){.step = 7});
    assert_null(board_of_process(getpid(), 2));
    struct board *found = board_of_process(getpid(), 3);
    assert_non_null(found);
    assert_true(board_worker_copy(found, 0, &copy));
    assert_int_equal(copy.step, 7);
    board_close(found);
    board_close(board);
    assert_null(board_of_process(getpid(), 3));
}

HARNESS_RUN_ALL()
