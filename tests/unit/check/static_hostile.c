/* static_hostile — the static stage on trees whose files are empty, huge, garbage, folders,
 * pipes, links or unreadable: it ends, and each row is fit for a report. */
#include "check/static_trees.h"

#include <dirent.h>

#include "base/rand.h"
#include "check/host/file.h"

#define FILES_MAX 1024

static struct static_trees tree_dir;
static const char *tree_name = "h100";
static uint64_t drawn;
static char files[FILES_MAX][256];
static int files_n;

static int list_file(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)walk;
    if (kind == FTW_F && files_n < FILES_MAX)
        text_copy(files[files_n++], sizeof files[0], path);
    return 0;
}

static uint64_t draw(uint64_t n) { return rand_below(17, RAND_STREAM(TEST, 0), drawn++, n); }

/* ---- what takes a file's place ---- */

static void put(const char *path, const char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void make_empty(const char *path) { put(path, "", 0); }
static void make_folder(const char *path) { assert_int_equal(mkdir(path, 0755), 0); }
static void make_pipe(const char *path) { assert_int_equal(mkfifo(path, 0644), 0); }
static void make_loop(const char *path) { assert_int_equal(symlink(path, path), 0); }
static void make_endless(const char *path) { assert_int_equal(symlink("/dev/zero", path), 0); }
static void make_lost(const char *path) { assert_int_equal(symlink("/nonexistent", path), 0); }
static void make_closed(const char *path)
{
    put(path, "4: ACTIVE\n", 10);
    assert_int_equal(chmod(path, 0), 0);
}
static void make_garbage(const char *path)
{
    char bytes[700];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 37 + 128);
    put(path, bytes, sizeof bytes);
}
static void make_numbers(const char *path)
{
    const char *text = "99999999999999999999999999999999 -9223372036854775808\n-1\n";
    put(path, text, strlen(text));
}
static void make_huge(const char *path)
{
    put(path, "x", 1);
    assert_int_equal(truncate(path, 1ll << 40), 0); /* zeros that take no space */
}

static void (*const makers[])(const char *path) = {
    make_empty, make_folder, make_pipe,    make_loop,    make_endless,
    make_lost,  make_closed, make_garbage, make_numbers, make_huge};
enum { MAKERS = sizeof makers / sizeof *makers };

/* ---- what comes out ---- */

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

static void looks_fit(void)
{
    struct check_rows rows = {0};
    static_trees_run(tree_dir.root, "expected=8 used=8 locals=8 nodes=8", &rows);
    assert_true(rows.n >= 10);
    for (int i = 0; i < rows.n; i++) {
        const struct check_row *row = &rows.row[i];
        bool is_alarm = row->verdict == CHECK_VERDICT_WARN || row->verdict == CHECK_VERDICT_FAIL;
        assert_true(is_plain(row->why) && is_plain(row->subject) && is_plain(row->remedy));
        assert_true(row->why[0] != 0 && row->name[0] != 0);
        assert_true(!is_alarm || row->remedy[0] != 0);
        assert_true(row->verdict != CHECK_VERDICT_MEASURED || isfinite(row->value));
    }
    check_row_free(&rows);
}

/* The kernel's log is read up to 64 MiB, which takes a second. base/cgroup and base/memory, which
 * also read the limits of all other runs, open their files without asking what they are. */
static bool is_left_out(const char *path, void (*make)(const char *path))
{
    bool has_no_end = make == make_huge || make == make_endless || make == make_pipe;
    return (make == make_huge && strstr(path, "kmsg")) ||
           (has_no_end && (strstr(path, "cgroup") || strstr(path, "meminfo")));
}

static void replace_all(void (*make)(const char *path))
{
    for (int i = 0; i < files_n; i++) {
        if (is_left_out(files[i], make))
            continue;
        assert_int_equal(file_remove_tree(files[i]), ST_OK);
        make(files[i]);
    }
}

static void restore(void)
{
    char command[700];
    assert_int_equal(file_remove_tree(tree_dir.root), ST_OK);
    text_format(command, sizeof command, TREES_UNPACK " '%s' %s", tree_dir.root, tree_name);
    assert_int_equal(system(command), 0);
}

static void take_tree(const char *name)
{
    tree_name = name;
    files_n = 0;
    restore();
    assert_int_equal(nftw(tree_dir.root, list_file, 16, FTW_PHYS), 0);
    assert_true(files_n > 100 && files_n < FILES_MAX);
}

static int setup(void **state)
{
    text_format(tree_dir.root, sizeof tree_dir.root, "%s/tree", harness_tmpdir());
    take_tree("h100");
    return 0;
}

TEST_WITH(each_kind, setup, NULL)
{
    for (int kind = 0; kind < MAKERS; kind++) {
        restore();
        replace_all(makers[kind]);
        looks_fit();
    }
}

/* Some files of any kind among whole ones. */
TEST(mixed_kinds)
{
    restore();
    for (int round = 0; round < 60; round++) {
        for (int k = 0; k < 8; k++) {
            const char *path = files[draw((uint64_t)files_n)];
            int kind = (int)draw(MAKERS - 1);
            if (is_left_out(path, makers[kind]))
                continue;
            assert_int_equal(file_remove_tree(path), ST_OK);
            makers[kind](path);
        }
        looks_fit();
    }
}

/* Bytes of whole files, changed, doubled and cut. */
static void damage(const char *path)
{
    char *data, out[16384];
    size_t n, used = 0;
    if (file_read(path, sizeof out / 2, &data, &n) != ST_OK)
        return;
    for (size_t i = 0; i < n && used + 2 < sizeof out; i++) {
        uint64_t what = draw(40);
        if (what == 0)
            continue;
        out[used++] = what == 1 ? (char)draw(256) : data[i];
        if (what == 2)
            out[used++] = data[i];
    }
    free(data);
    put(path, out, draw(4) ? used : (size_t)draw(used + 1));
}

/* Damages drawn files, more of them from round to round. */
static void damage_in_rounds(void)
{
    for (int round = 0; round < 60; round++) {
        if (round % 20 == 0)
            restore();
        for (int k = 0; k < 40; k++)
            damage(files[draw((uint64_t)files_n)]);
        looks_fit();
    }
}

TEST(damaged) { damage_in_rounds(); }

/* Files of AMD's GPUs, but for those that show that the GPUs are there. */
static bool is_of_amd(const char *path)
{
    const char *end = strrchr(path, '/');
    bool is_device =
        strcmp(end, "/vendor") == 0 || strcmp(end, "/class") == 0 || strcmp(end, "/device") == 0;
    return (strstr(path, "/pci/devices/") && !is_device) ||
           (strstr(path, "/kfd/") && strstr(path, "/io_links/"));
}

TEST(amd)
{
    take_tree("mi300x");
    for (int kind = 0; kind < MAKERS; kind++) {
        restore();
        for (int i = 0; i < files_n; i++) {
            if (!is_of_amd(files[i]))
                continue;
            assert_int_equal(file_remove_tree(files[i]), ST_OK);
            makers[kind](files[i]);
        }
        looks_fit();
    }
    damage_in_rounds();
    take_tree("h100");
}

/* No file at all: nothing is known, so nothing is wrong on a machine that works alone. */
TEST(nothing)
{
    static const char *const roots[] = {"/nonexistent", "/dev/null", "/proc/self/fdinfo"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        struct check_rows rows = {0};
        static_trees_run(roots[i], "nodes=4 locals=1", &rows);
        check_row_free(&rows);
        static_trees_run(roots[i], "", &rows);
        assert_true(rows.n > 5);
        check_row_free(&rows);
    }
}

/* ---- the reader itself ---- */

TEST(numbers)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"12\n", 12},
                 {"-1\n", -1},
                 {"34.5 1\n", CHECK_FILE_NONE},
                 {"7 8 9\n", 7},
                 {"", CHECK_FILE_NONE},
                 {"\n\n", CHECK_FILE_NONE},
                 {"0x10de\n", CHECK_FILE_NONE},
                 {"9223372036854775807", INT64_MAX},
                 {"9223372036854775808", CHECK_FILE_NONE},
                 {"1\x80", CHECK_FILE_NONE}};
    char path[700];
    text_format(path, sizeof path, "%s/number", harness_tmpdir());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(path, cases[i].text, strlen(cases[i].text));
        assert_int_equal(check_file_number(harness_tmpdir(), "/%s", "number"), cases[i].value);
    }
    assert_int_equal(check_file_number(harness_tmpdir(), "/none"), CHECK_FILE_NONE);
}

static void count_line(void *arg, char *text)
{
    int64_t *n = arg;
    n[0]++;
    n[1] += (int64_t)strlen(text);
}

TEST(lines)
{
    int64_t n[2] = {0, 0};
    char path[700], *text = malloc(100000);
    assert_non_null(text);
    memset(text, 'a', 100000);
    text[50000] = '\n';
    text_format(path, sizeof path, "%s/lines", harness_tmpdir());
    put(path, text, 100000);
    assert_true(check_file_lines(harness_tmpdir(), "/lines", 1 << 20, count_line, n));
    assert_int_equal(n[1], 99999);
    assert_int_equal(n[0], 2 * (50000 / 1023 + 1));
    n[0] = n[1] = 0;
    assert_true(check_file_lines(harness_tmpdir(), "/lines", 1, count_line, n));
    assert_true(n[1] < 10000); /* of what is read at a time */
    assert_false(check_file_lines(harness_tmpdir(), "/none", 1, count_line, n));
    free(text);
}

/* In the order of their numbers, and fit for a command line. */
TEST(names)
{
    static const char *const made[] = {"mlx5_10", "mlx5_2", ".hidden", "a;b", "x"};
    static struct check_file_names found;
    char path[800];
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        text_format(path, sizeof path, "%s/names/%s", harness_tmpdir(), made[i]);
        assert_int_equal(file_make_dirs(path), ST_OK);
    }
    check_file_list(harness_tmpdir(), &found, "/names");
    assert_int_equal(found.n, 4);
    assert_string_equal(found.name[0], "a?b");
    assert_string_equal(found.name[1], "mlx5_2");
    assert_string_equal(found.name[2], "mlx5_10");
    check_file_list_with(harness_tmpdir(), "mlx5_", &found, "/names");
    assert_int_equal(found.n, 2);
    check_file_list(harness_tmpdir(), &found, "/names/x/none");
    assert_int_equal(found.n, 0);
}

HARNESS_RUN_ALL()
