/* test_comm_nccl — the suite over NCCL's interface without a GPU: the tests' own libnccl.so.2
 * (fake_nccl.c) and a device that the host cannot touch (fake_device.h). It does not show NCCL's
 * order of sums, its speed, or its behaviour on real links.
 *
 * Tests of the suite that name missing ranks are left out: NCCL does not report them. */
#pragma GCC diagnostic ignored "-Wunused-function" /* not all of the suite is used here */
#include "comm/suite.h"

#include "comm/nccl/lib.h"
#include "suite_device.h"

#include "nccl_world.h"

static struct fake_nccl *knobs;

static const int layouts[][2] = {{1, 1}, {1, 2}, {3, 1}, {2, 2}};
static const struct suite suite_nccl = NCCL_WORLD_NCCL(layouts);

static void places_rank(struct suite_rank *me)
{
    CHECK(strcmp(comm_name(me->comm), "nccl 2.28.9") == 0, "%s", comm_name(me->comm));
    CHECK(memcmp(comm_place(me->comm), &me->place, sizeof me->place) == 0, "rank %d",
          me->place.rank);
    CHECK_OK(comm_barrier(me->comm));
}
static void places(void **state)
{
    suite_each(20000, 1, places_rank);
    nccl_world_check_clean(knobs);
}

/* RCCL has NCCL's functions: the suite's calls over a librccl.so.1. */
static void rccl_rank(struct suite_rank *me)
{
    CHECK(strcmp(comm_name(me->comm), "rccl 2.22.3") == 0, "%s", comm_name(me->comm));
    CHECK_OK(comm_barrier(me->comm));
}
static void rccl(void **state)
{
    nccl_lib_choose(true, NULL);
    struct fake_nccl *rccl_knobs = nccl_world_use("rccl", "librccl.so.1");
    assert_ptr_not_equal(rccl_knobs, knobs);
    suite_each(20000, 1, rccl_rank);
    suite_exact(state);
    suite_messages(state);
    suite_groups(state);
    nccl_world_check_clean(rccl_knobs);
    nccl_lib_choose(false, NULL);
    library_dir(nccl_world_dir("nccl"));
}

/* ---- failures in calls ---- */

/* The last rank never enters: the others fail in time, and the device is free again. */
static void missing_rank(struct suite_rank *me)
{
    float *data = calloc(SUITE_CALL_ELEMS, sizeof(float));
    int last = me->place.ranks - 1;
    CHECK_OK(comm_barrier(me->comm));
    if (me->place.rank != last) {
        int64_t begin = clock_ms();
        enum status st = suite_one_call(me, data, atomic_load(&suite_call));
        CHECK(st == ST_PEER && clock_ms() - begin >= 950 &&
                  clock_ms() - begin < harness_patience_ms(5000),
              "%s: %s", status_name(st), status_message());
        CHECK(strstr(status_message(), suite_call_names[atomic_load(&suite_call)]) != NULL &&
                  strstr(status_message(), "is not finished after") != NULL,
              "%s", status_message());
        status_clear();
        CHECK(comm_barrier(me->comm) == ST_PEER, "%s", status_message());
    }
    pthread_barrier_wait(&me->job->line_up);
    free(data);
}
static void missing(void **state)
{
    static const int calls[] = {SUITE_CALL_ALL_REDUCE, SUITE_CALL_SCATTER, SUITE_CALL_QUEUED,
                                SUITE_CALL_RECV};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        atomic_store(&suite_call, calls[i]);
        suite_run_late(&suite_nccl, 3, 1, 1000, missing_rank);
    }
    nccl_world_check_clean(knobs);
}

/* A link fails between calls: NCCL reports it on every rank, which aborts and names its call. */
static void failing_rank(struct suite_rank *me)
{
    float x[100] = {0};
    struct tensor t = {x, DTYPE_F32};
    enum status st = ST_OK;
    int calls = 0;
    while (st == ST_OK && calls < 1000) {
        st = comm_all_reduce(me->comm, t, t, 100);
        calls++;
    }
    CHECK(st == (enum status)me->job->rank[0].st && calls < 1000, "%s after %d calls: %s",
          status_name(st), calls, status_message());
    CHECK(strstr(status_message(), "all_reduce") != NULL &&
              strstr(status_message(), "said by the fake") != NULL,
          "%s", status_message());
    pthread_barrier_wait(&me->job->line_up);
}
static atomic_int failing_st;
static void failing_as_rank(struct suite_rank *me)
{
    me->st = (enum status)atomic_load(&failing_st);
    pthread_barrier_wait(&me->job->line_up);
    failing_rank(me);
}
static void failing(void **state)
{
    static const struct {
        int result;
        enum status st;
    } cases[] = {{NCCL_REMOTE_ERROR, ST_PEER},
                 {NCCL_SYSTEM_ERROR, ST_PEER},
                 {NCCL_UNHANDLED_CUDA_ERROR, ST_FAULT},
                 {NCCL_INTERNAL_ERROR, ST_BUG}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        atomic_store(&failing_st, (int)cases[i].st);
        atomic_store(&knobs->fail_result, cases[i].result);
        atomic_store(&knobs->fail_after, 13);
        suite_run_on(&suite_nccl, 1, 3, harness_patience_ms(20000), failing_as_rank);
        atomic_store(&knobs->fail_after, -1);
    }
    nccl_world_check_clean(knobs);
}

/* NCCL refuses a call of a group on one rank; the other ranks end at their deadline. */
static void refused_rank(struct suite_rank *me)
{
    void *a;
    CHECK_OK(comm_alloc(me->comm, 4000, &a));
    struct tensor t = {a, DTYPE_F32};
    CHECK_OK(comm_barrier(me->comm));
    pthread_barrier_wait(&me->job->line_up);
    if (me->place.rank == 0)
        atomic_store(&knobs->refuses_next, NCCL_INVALID_USAGE);
    pthread_barrier_wait(&me->job->line_up);
    enum status st = me->place.rank == 0 ? comm_reduce_scatter(me->comm, t, t, 33) : ST_OK;
    CHECK(me->place.rank > 0 ||
              (st == ST_BAD_SETTING && strstr(status_message(), "a GPU of its own") != NULL),
          "%s: %s", status_name(st), status_message());
    pthread_barrier_wait(&me->job->line_up);
}
static void refused(void **state)
{
    suite_run_on(&suite_nccl, 1, 2, harness_patience_ms(20000), refused_rank);
    nccl_world_check_clean(knobs);
}

/* ---- failures in opening ---- */

static enum status open_hanging(struct suite_rank *me, const struct comm_config *config)
{
    int64_t begin = clock_ms();
    enum status st = nccl_world_open_as(me, config, COMM_KIND_NCCL);
    int64_t elapsed = clock_ms() - begin;
    CHECK(st == ST_PEER && elapsed < harness_patience_ms(5000), "%s after %lld ms: %s",
          status_name(st), (long long)elapsed, status_message());
    CHECK(strstr(status_message(), "open") != NULL, "%s", status_message());
    return ST_OK; /* as expected */
}
static void nothing_rank(struct suite_rank *me) { (void)me; }
static void init_hangs(void **state)
{
    struct suite hanging = suite_nccl;
    hanging.open = open_hanging;
    atomic_store(&knobs->init_hangs, 1);
    suite_run_on(&hanging, 1, 3, 300, nothing_rank);
    atomic_store(&knobs->init_hangs, 0);
    nccl_world_check_clean(knobs);
}

static enum status open_aborted(struct suite_rank *me, const struct comm_config *config)
{
    if (me->place.rank == 0) {
        clock_sleep_ms(50);
        atomic_store(&me->job->aborted, true);
    }
    return open_hanging(me, config);
}
static void init_aborted(void **state)
{
    struct suite hanging = suite_nccl;
    hanging.open = open_aborted;
    atomic_store(&knobs->init_hangs, 1);
    suite_run_on(&hanging, 2, 1, 60000, nothing_rank);
    atomic_store(&knobs->init_hangs, 0);
    nccl_world_check_clean(knobs);
}

/* Addresses of another version, transport and vendor, and one without an id. */
static atomic_int address_case;
static enum status open_damaged_address(struct suite_rank *me, const struct comm_config *config)
{
    struct nccl_world *world = me->job->world;
    struct comm_config mine = *config;
    int32_t version = 21805, has_id = 0;
    int16_t is_rccl = 1;
    mine.kind = COMM_KIND_NCCL;
    mine.dev = suite_dev;
    CHECK_OK(comm_begin_open(&mine, &me->comm, world->addresses[me->place.rank],
                             &world->bytes[me->place.rank]));
    pthread_barrier_wait(&me->job->line_up);
    if (me->place.rank == 0) {
        if (atomic_load(&address_case) == 0)
            memcpy(world->addresses[1], &version, sizeof version);
        if (atomic_load(&address_case) == 1)
            world->bytes[1] = 77;
        if (atomic_load(&address_case) == 2)
            memcpy(world->addresses[0] + 4, &has_id, sizeof has_id);
        if (atomic_load(&address_case) == 3)
            memcpy(world->addresses[1] + 6, &is_rccl, sizeof is_rccl);
    }
    pthread_barrier_wait(&me->job->line_up);
    static const enum status want[] = {ST_DISAGREE, ST_DISAGREE, ST_BUG, ST_DISAGREE};
    static const char *const words[] = {"2.28.9 on rank 0, 2.18.5 on rank 1", "77 bytes",
                                        "no unique id", "GPUs of another vendor"};
    enum status st = comm_end_open(me->comm, 1, world->addresses, world->bytes);
    CHECK(st == want[atomic_load(&address_case)] &&
              strstr(status_message(), words[atomic_load(&address_case)]) != NULL,
          "%s: %s", status_name(st), status_message());
    return ST_OK;
}
static void damaged_addresses(void **state)
{
    struct suite suite = suite_nccl;
    suite.open = open_damaged_address;
    for (int i = 0; i < 4; i++) {
        atomic_store(&address_case, i);
        suite_run_on(&suite, 1, 2, harness_patience_ms(20000), nothing_rank);
    }
    nccl_world_check_clean(knobs);
}

/* Not on a CPU. */
static void on_cpu(void **state)
{
    struct dev *cpu;
    struct comm *comm;
    char address[COMM_ADDRESS_MAX];
    int64_t bytes;
    assert_int_equal(dev_cpu_open(1, CPU_ISA_N, &cpu), ST_OK);
    struct comm_config config = {.kind = COMM_KIND_NCCL,
                                 .place = {.ranks = 2, .nodes = 2, .locals = 1},
                                 .timeout_ms = 1000,
                                 .dev = cpu,
                                 .shm_fd = -1};
    assert_int_equal(comm_begin_open(&config, &comm, address, &bytes), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "GPUs only"));
    dev_close(cpu);
}

/* ---- the library ---- */

static bool asks_rccl;
static const void *asks_runtime;

/* In a process of its own, because the library stays loaded. Returns 0 if all is as expected. */
static int open_in_child(const char *kind, enum status want, const char *words)
{
    pid_t pid = fork();
    if (pid == 0) {
        const struct nccl_lib *table;
        library_dir(kind[0] == '/' ? kind : nccl_world_dir(kind));
        library_root("/nowhere"); /* this machine's own NCCL would be found after it */
        nccl_lib_choose(asks_rccl, asks_runtime);
        enum status st = nccl_lib_open(&table);
        if (st != want || (st != ST_OK && !strstr(status_message(), words)) ||
            (st == ST_OK && !strstr(nccl_lib_about(), words))) {
            fprintf(stderr, "# %s: %s: %s\n", kind, status_name(st), status_message());
            _exit(1);
        }
        _exit(0);
    }
    int ended = -1;
    return waitpid(pid, &ended, 0) == pid ? ended : -1;
}

static void library(void **state)
{
    assert_int_equal(open_in_child("nccl", ST_OK, "2.28.9 from "), 0);
    assert_int_equal(open_in_child("nccl_old", ST_NO_DEVICE, "2.14.3"), 0);
    /* As PyPI's packages lie: FOLDER/nccl/lib/libnccl.so.2. */
    char path[700], target[700];
    const char *folder = harness_tmpdir();
    for (const char *const *below = (const char *const[]){"/nccl", "/nccl/lib", "/cublas", NULL};
         *below; below++) {
        snprintf(path, sizeof path, "%s%s", folder, *below);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof path, "%s/nccl/lib/libnccl.so.2", folder);
    snprintf(target, sizeof target, "%s/libnccl.so.2", nccl_world_dir("nccl"));
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(open_in_child(folder, ST_OK, "2.28.9 from "), 0);
    unlink(path);
    assert_int_equal(open_in_child("nccl_old", ST_NO_DEVICE, "2.18.0 or newer"), 0);
    assert_int_equal(open_in_child("nccl_lacks", ST_NO_DEVICE, "has no ncclGetLastError"), 0);
    assert_int_equal(open_in_child("/nowhere", ST_NO_DEVICE, "libnccl.so.2"), 0);
}

/* RCCL is looked for under its own name, and its messages name ROCm. A library that has loaded
 * another AMD runtime than the process is refused. */
static void rccl_library(void **state)
{
    asks_rccl = true;
    assert_int_equal(open_in_child("rccl", ST_OK, "2.22.3 from "), 0);
    assert_int_equal(open_in_child("rccl_old", ST_NO_DEVICE, "2.17.1 is too old"), 0);
    assert_int_equal(open_in_child("nccl", ST_NO_DEVICE, "RCCL is not here: install rccl of ROCm"),
                     0);
    assert_int_equal(open_in_child("rccl_other", ST_OK, "2.22.3 from "), 0);
    int (*function)(const char *, enum status, const char *) = open_in_child; /* any of ours */
    memcpy(&asks_runtime, &function, sizeof asks_runtime);
    assert_int_equal(open_in_child("rccl", ST_OK, "2.22.3 from "), 0);
    assert_int_equal(open_in_child("rccl_other", ST_NO_DEVICE,
                                   "rccl_other/librccl.so.1 uses AMD's runtime from "),
                     0);
    assert_int_equal(open_in_child("rccl_other", ST_NO_DEVICE, "one version of ROCm"), 0);
    asks_runtime = NULL;
    asks_rccl = false;
    assert_int_equal(open_in_child("rccl", ST_NO_DEVICE, "NCCL is not here: install libnccl2"), 0);
}

/* NCCL would obey the variable, and block. */
static void blocking_is_refused(void **state)
{
    static const char *const refused[] = {"1", "", "true"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        setenv("NCCL_COMM_BLOCKING", refused[i], 1);
        assert_int_equal(open_in_child("nccl", ST_BAD_SETTING, "unset it, or set it to 0"), 0);
    }
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    assert_int_equal(open_in_child("nccl", ST_OK, "2.28.9"), 0);
    unsetenv("NCCL_COMM_BLOCKING");
}

static void versions(void **state)
{
    char text[24];
    assert_string_equal(nccl_lib_version_text(22809, text, sizeof text), "2.28.9");
    assert_string_equal(nccl_lib_version_text(2708, text, sizeof text), "2.7.8");
    assert_int_equal(nccl_lib_rounding(21805, 2 << 20), 0); /* no ncclMemAlloc */
    assert_int_equal(nccl_lib_rounding(21903, 2 << 20), 512 << 20);
    assert_int_equal(nccl_lib_rounding(22803, 2 << 20), 2 << 20);
    assert_int_equal(nccl_lib_rounding(22903, 0), 512 << 20);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(library),           cmocka_unit_test(blocking_is_refused),
        cmocka_unit_test(rccl_library),      cmocka_unit_test(rccl),
        cmocka_unit_test(versions),          cmocka_unit_test(places),
        cmocka_unit_test(suite_device),      cmocka_unit_test(suite_exact),
        cmocka_unit_test(suite_order),       cmocka_unit_test(suite_copies),
        cmocka_unit_test(suite_messages),    cmocka_unit_test(suite_queued),
        cmocka_unit_test(suite_jobs),        cmocka_unit_test(suite_splits),
        cmocka_unit_test(suite_groups),      cmocka_unit_test(suite_bad_arguments),
        cmocka_unit_test(suite_activity),    cmocka_unit_test(suite_aborted),
        cmocka_unit_test(suite_closing),     cmocka_unit_test(missing),
        cmocka_unit_test(failing),           cmocka_unit_test(refused),
        cmocka_unit_test(init_hangs),        cmocka_unit_test(init_aborted),
        cmocka_unit_test(damaged_addresses), cmocka_unit_test(on_cpu)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    knobs = nccl_world_begin();
    suite_this = &suite_nccl;
    int failed = cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
    fake_device_close(suite_dev);
    return failed;
}
