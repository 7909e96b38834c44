/* static — the static stage on trees that stand for nodes: a good one has no row that warns or
 * fails, a bad one exactly the row that names its fault, with a remedy. */
#include "check/static_trees.h"

#include <sys/resource.h>

static struct static_tree trees[TREES_MAX];
static int trees_n;
static struct static_trees tree_dir;

static bool is_alarm(const struct check_row *row)
{
    return row->verdict == CHECK_VERDICT_WARN || row->verdict == CHECK_VERDICT_FAIL;
}

static int alarms(const struct check_rows *rows, const struct check_row **first)
{
    int n = 0;
    *first = NULL;
    for (int i = 0; i < rows->n; i++) {
        /* What every row owes its reader. */
        assert_int_equal(rows->row[i].stage, CHECK_STAGE_STATIC);
        assert_true(rows->row[i].node == 3 || rows->row[i].node == 0); /* 0: of a job of one node */
        assert_true(rows->row[i].name[0] != 0);
        if (rows->row[i].verdict == CHECK_VERDICT_MEASURED)
            assert_true(isfinite(rows->row[i].value));
        else
            assert_true(rows->row[i].why[0] != 0);
        if (is_alarm(&rows->row[i]))
            assert_true(rows->row[i].remedy[0] != 0);
        if (is_alarm(&rows->row[i]) && n++ == 0)
            *first = &rows->row[i];
    }
    return n;
}

static bool is_right(const struct static_tree *t)
{
    struct check_rows rows = {0};
    const struct check_row *first;
    static_trees_become(&tree_dir, t->name);
    static_trees_run(tree_dir.root, t->settings, &rows);
    int n = alarms(&rows, &first);
    bool is_good = strcmp(t->verdict, "none") == 0;
    bool ok = is_good ? n == 0
                      : n == 1 && (strcmp(check_row_verdict(first->verdict), t->verdict) == 0 &&
                                   strcmp(first->name, t->row) == 0 &&
                                   strcmp(first->subject, t->subject) == 0 &&
                                   strstr(first->remedy, t->remedy) != NULL &&
                                   strstr(first->why, t->why) != NULL);
    if (!ok) {
        print_message("# tree %s: expected %s %s '%s', %d alarms\n", t->name, t->verdict, t->row,
                      t->subject, n);
        static_trees_print(&rows);
    }
    check_row_free(&rows);
    return ok;
}

static int setup(void **state)
{
    trees_n = static_trees_list(trees);
    static_trees_open(&tree_dir);
    return 0;
}

TEST_WITH(every_tree, setup, NULL)
{
    int wrong = 0, good = 0;
    for (int i = 0; i < trees_n; i++) {
        good += strcmp(trees[i].verdict, "none") == 0;
        wrong += !is_right(&trees[i]);
    }
    print_message("# %d trees of good nodes, %d of bad ones\n", good, trees_n - good);
    assert_int_equal(wrong, 0);
    assert_true(good >= 8 && trees_n - good >= 15);
}

#define EIGHT "expected=8 used=8 locals=8 nodes=8"

static struct check_row row_now(const char *name, const char *settings)
{
    struct check_rows rows = {0};
    struct check_row found = {0};
    static_trees_run(tree_dir.root, settings, &rows);
    for (int i = 0; i < rows.n; i++)
        if (strcmp(rows.row[i].name, name) == 0)
            found = rows.row[i];
    check_row_free(&rows);
    return found;
}

static struct check_row memlock_now(void) { return row_now("memlock", EIGHT); }

/* The interface that carries the data is compared with those of the other nodes. */
TEST(main_interface)
{
    static const struct {
        const char *tree, *settings, *name;
        double mtu;
    } cases[] = {{"h100", EIGHT, "eth0", 9000},
                 {"ipv6", EIGHT, "eth0", 9000},
                 {"no-route", EIGHT, "eth0", 9000},
                 {"ipv6", EIGHT " data=cni0", "cni0", 1450},
                 {"ipv6", EIGHT " data=10.0.0.7", "eth0", 9000},
                 {"ipv6", EIGHT " data=../net/cni0", "eth0", 9000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static_trees_become(&tree_dir, cases[i].tree);
        struct check_row row = row_now("interface mtu", cases[i].settings);
        assert_string_equal(row.subject, cases[i].name);
        assert_true(row.value == cases[i].mtu);
    }
}

static int teardown(void **state)
{
    static_trees_close(&tree_dir);
    return 0;
}

/* The limits of this process itself, before and after the remedy, which needs a right. */
TEST_WITH(memlock_of_the_process, NULL, teardown)
{
    const struct rlimit little = {65536, 65536}, unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    char path[700];
    static_trees_become(&tree_dir, "h100");
    text_format(path, sizeof path, "%s/proc/self/limits", tree_dir.root);
    assert_true(unlink(path) == 0 && symlink("/proc/self/limits", path) == 0);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &little), 0);
    struct check_row row = memlock_now();
    assert_int_equal(row.verdict, CHECK_VERDICT_FAIL);
    assert_non_null(strstr(row.why, "64.0 KiB may be locked"));
    assert_string_equal(row.remedy, "ulimit -l unlimited");
    if (setrlimit(RLIMIT_MEMLOCK, &unlimited) != 0)
        HARNESS_SKIP("may not raise the limit: %s", strerror(errno));
    assert_int_equal(memlock_now().verdict, CHECK_VERDICT_PASS);
}

HARNESS_RUN_ALL()
