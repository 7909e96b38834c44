/* ledger_file — a ledger over several processes: what is appended, cut, moved aside; a disk
 * that is full. */
#include "harness.h"

#include <sys/resource.h>

#include "train/trainer/ledger_file.h"

static char dir[600], path[700];

static void begin(const char *name)
{
    text_format(dir, sizeof dir, "%s/%s", harness_tmpdir(), name);
    text_format(path, sizeof path, "%s/" LEDGER_NAME, dir);
    assert_int_equal(mkdir(dir, 0777), 0);
}

static const struct ledger_run unknown = {.steps = 0};

static struct ledger_file *open_behind(int64_t after, const struct ledger_run *done)
{
    struct ledger_file *f = NULL;
    const struct ledger_start start = {.after = after, .sample = 8 * after, .data = 5};
    assert_int_equal(ledger_file_open(dir, &start, "{\"version\":\"t\"}", done, &f), ST_OK);
    return f;
}
static struct ledger_file *open_at(int64_t after) { return open_behind(after, &unknown); }

/* steps first … last, of 8 samples each */
static struct ledger_run run_of(int64_t first, int64_t last, enum ledger_outcome outcome)
{
    return (struct ledger_run){.step = first,
                               .steps = last - first + 1,
                               .sample = 8 * (first - 1),
                               .samples = 8,
                               .outcome = outcome};
}

static void add(struct ledger_file *f, int64_t first, int64_t last, enum ledger_outcome outcome)
{
    for (int64_t step = first; step <= last; step++) {
        const struct ledger_run one = run_of(step, step, outcome);
        ledger_file_add(f, &one);
    }
}

/* add_and_die — in a process that is killed behind the last step. */
static void add_and_die(struct ledger_file *f, int64_t first, int64_t last,
                        enum ledger_outcome outcome)
{
    int how;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        add(f, first, last, outcome);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    ledger_file_close(f); /* this process has no step to write */
}

static struct ledger_audit audit(void)
{
    struct ledger_audit a;
    assert_int_equal(ledger_audit(path, &a), ST_OK);
    return a;
}

static int64_t bytes_of(void)
{
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

static int files(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Steps that are all alike are written with a checkpoint or a step that is skipped. */
TEST(test_when)
{
    begin("when");
    struct ledger_file *f = open_at(0);
    add(f, 1, 1, LEDGER_OUTCOME_APPLIED);
    const int64_t first = bytes_of();
    assert_true(first > 0 && audit().last == 0);
    add(f, 2, 500, LEDGER_OUTCOME_APPLIED);
    assert_int_equal(bytes_of(), first);
    ledger_file_sync(f);
    assert_int_equal(audit().last, 500);
    int64_t bytes = bytes_of();
    ledger_file_sync(f);
    assert_int_equal(bytes_of(), bytes);
    add(f, 501, 501, LEDGER_OUTCOME_SPIKE);
    struct ledger_audit a = audit();
    assert_true(a.last == 501 && a.steps[LEDGER_OUTCOME_SPIKE] == 1);
    add(f, 502, 510, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    a = audit();
    assert_true(a.last == 510 && a.problem[0] == 0 && a.generations == 1);
    assert_true(bytes_of() < 700);
}

/* A process that returns to a checkpoint; one that begins, and does no step. */
TEST(test_generations)
{
    begin("generations");
    struct ledger_file *f = open_at(0);
    add(f, 1, 130, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    int64_t bytes = bytes_of();
    ledger_file_close(open_at(100));
    assert_int_equal(bytes_of(), bytes);
    f = open_at(100);
    add(f, 101, 150, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    struct ledger_audit a = audit();
    assert_true(a.last == 150 && a.again == 30 && a.generations == 2 && a.problem[0] == 0);
    ledger_file_add(NULL, &unknown);
    ledger_file_sync(NULL);
    ledger_file_close(NULL);
}

/* A process is killed with steps in its memory, and the next one goes on from the last of them. */
TEST(test_killed)
{
    begin("killed");
    add_and_die(open_at(0), 1, 130, LEDGER_OUTCOME_APPLIED);
    assert_int_equal(audit().last, 0);
    struct ledger_run done = run_of(1, 130, LEDGER_OUTCOME_APPLIED);
    struct ledger_file *f = open_behind(130, &done);
    add(f, 131, 140, LEDGER_OUTCOME_APPLIED);
    ledger_file_sync(f);
    add(f, 141, 141, LEDGER_OUTCOME_SPIKE);
    assert_true(audit().last == 141 && audit().generations == 2 && audit().problem[0] == 0);
    add_and_die(f, 142, 150, LEDGER_OUTCOME_APPLIED);
    done = run_of(142, 149, LEDGER_OUTCOME_APPLIED); /* the last step is done again */
    f = open_behind(149, &done);
    add(f, 150, 160, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    const struct ledger_audit a = audit();
    assert_true(a.last == 160 && a.end == 1280 && a.generations == 3 && a.problem[0] == 0);
    assert_true(a.steps[LEDGER_OUTCOME_SPIKE] == 1 && a.again == 0);
}

/* A process continues from copies of step 17, and the file has step 20: its line stays until step
 * 20 is done again, or an earlier checkpoint is saved. */
TEST(test_older_copies)
{
    begin("older");
    const struct ledger_run done = run_of(1, 17, LEDGER_OUTCOME_APPLIED);
    struct ledger_file *f = open_at(0);
    add(f, 1, 20, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    add_and_die(open_behind(17, &done), 18, 19, LEDGER_OUTCOME_APPLIED);
    add_and_die(open_behind(17, &done), 18, 18, LEDGER_OUTCOME_SPIKE);
    f = open_behind(17, &done);
    add(f, 18, 19, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    struct ledger_audit a = audit();
    assert_true(a.last == 20 && a.generations == 1);
    add_and_die(open_behind(17, &done), 18, 20, LEDGER_OUTCOME_APPLIED);
    a = audit();
    assert_true(a.last == 20 && a.generations == 2 && a.again == 3 && a.problem[0] == 0);
    f = open_behind(17, &done);
    add(f, 18, 18, LEDGER_OUTCOME_APPLIED);
    ledger_file_sync(f);
    assert_int_equal(audit().last, 18);
    ledger_file_close(f);
    f = open_at(18); /* from a checkpoint: data may have changed, so nothing is kept */
    add(f, 19, 30, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    f = open_at(25);
    add(f, 26, 26, LEDGER_OUTCOME_APPLIED);
    assert_int_equal(audit().last, 25);
    ledger_file_close(f);
    a = audit();
    assert_true(a.last == 26 && a.generations == 5 && a.problem[0] == 0);
}

/* A run in memory that does not join what the file has is not written. */
TEST(test_killed_unknown)
{
    const struct {
        int64_t first, last, sample;
    } done[] = {{12, 30, 88}, {1, 29, 0}, {1, 31, 0}, {1, 30, 8}};
    for (size_t i = 0; i < sizeof done / sizeof *done; i++) {
        char name[32];
        text_format(name, sizeof name, "unknown-%zu", i);
        begin(name);
        struct ledger_file *f = open_at(0);
        add(f, 1, 10, LEDGER_OUTCOME_APPLIED);
        ledger_file_close(f);
        struct ledger_run run = run_of(done[i].first, done[i].last, LEDGER_OUTCOME_APPLIED);
        run.sample = done[i].sample;
        f = open_behind(30, &run);
        add(f, 31, 40, LEDGER_OUTCOME_APPLIED);
        ledger_file_close(f);
        assert_string_equal(audit().problem, "steps 11 to 30 are missing");
    }
}

/* A crash at each byte of the last line, and a process that goes on. */
TEST(test_torn)
{
    begin("torn");
    struct ledger_file *f = open_at(0);
    add(f, 1, 100, LEDGER_OUTCOME_APPLIED);
    ledger_file_sync(f);
    const int64_t whole = bytes_of();
    add(f, 101, 130, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    const int64_t all = bytes_of();
    char *bytes = NULL;
    size_t bytes_n;
    assert_int_equal(file_read(path, 1 << 20, &bytes, &bytes_n), ST_OK);
    for (int64_t n = all - 1; n >= whole; n--) {
        assert_int_equal(file_replace(path, bytes, (size_t)n), ST_OK);
        f = open_at(100);
        assert_int_equal(bytes_of(), whole);
        add(f, 101, 200, LEDGER_OUTCOME_APPLIED);
        ledger_file_close(f);
        struct ledger_audit a = audit();
        assert_true(a.last == 200 && a.problem[0] == 0 && !a.is_torn);
        assert_true(bytes_of() > all);
    }
    free(bytes);
    assert_int_equal(files(), 1);
}

TEST(test_damaged)
{
    begin("damaged");
    struct ledger_file *f = open_at(0);
    add(f, 1, 100, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "9", 1, 20), 1);
    close(fd);
    f = open_at(100);
    add(f, 101, 110, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    assert_int_equal(files(), 2); /* the damaged one is kept */
    assert_non_null(strstr(audit().problem, "steps 1 to 100 are not in it"));
}

TEST(test_not_a_file)
{
    begin("folder");
    struct ledger_file *f = NULL;
    const struct ledger_start start = {.after = 0};
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_not_equal(ledger_file_open(dir, &start, "{\"version\":\"t\"}", &unknown, &f), ST_OK);
    assert_null(f);
    rmdir(path);
    assert_int_equal(symlink("elsewhere", path), 0); /* is not followed */
    assert_int_equal(ledger_file_open(dir, &start, "{\"version\":\"t\"}", &unknown, &f), ST_STORE);
    unlink(path);
}

/* A file that may not grow: nothing is half written, and all is there once it may. */
TEST(test_full)
{
    begin("full");
    struct rlimit old, low;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    struct ledger_file *f = open_at(0);
    add(f, 1, 100, LEDGER_OUTCOME_APPLIED);
    ledger_file_sync(f);
    const int64_t whole = bytes_of();
    low = (struct rlimit){(rlim_t)whole + 30, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
    add(f, 101, 101, LEDGER_OUTCOME_SPIKE);
    add(f, 102, 150, LEDGER_OUTCOME_APPLIED);
    ledger_file_sync(f);
    assert_int_equal(bytes_of(), whole);
    setrlimit(RLIMIT_FSIZE, &old);
    add(f, 151, 160, LEDGER_OUTCOME_APPLIED);
    ledger_file_close(f);
    struct ledger_audit a = audit();
    assert_true(a.last == 160 && a.problem[0] == 0 && a.steps[LEDGER_OUTCOME_SPIKE] == 1);
}

HARNESS_RUN_ALL()
