/* The search for NVIDIA's libraries, in trees like those of virtual environments, conda, system
 * Pythons and CUDA's packages, with libraries of the tests' own. */
#include "harness.h"

#include "dev/nvidia/library.h"

struct fake {
    int (*fake_answer)(void);
    int (*fake_version)(void);
};

/* Returns false and the reason if the version is less than 7. */
static bool fits(const void *opened, char *why, size_t cap)
{
    const struct fake *table = opened;
    if (table->fake_version() >= 7)
        return true;
    text_format(why, cap, "version %d is too old", table->fake_version());
    return false;
}

static const struct library_symbol symbols[] = {LIBRARY_SYMBOL(fake, fake_answer),
                                                LIBRARY_SYMBOL(fake, fake_version)};
static const char *const names[] = {"libconvoy_fake.so.2", "libconvoy_fake.so.1", NULL};
static const struct library_spec spec = {.what = "Fake",
                                         .names = names,
                                         .packages = "convoy-fake",
                                         .symbols = symbols,
                                         .symbols_n = sizeof symbols / sizeof *symbols,
                                         .fits = fits};

/* Returns a path in this test's tree. Valid until eight more calls. */
static const char *in_tree(const char *path)
{
    static char out[8][800];
    static int next;
    next = (next + 1) % 8;
    text_format(out[next], sizeof out[next], "%s%s", harness_tmpdir(), path);
    return out[next];
}

/* Makes the folders of a path. */
static void make_folders(const char *path)
{
    char prefix[800];
    text_copy(prefix, sizeof prefix, path);
    for (char *slash = strchr(prefix + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(prefix, 0700);
        *slash = '/';
    }
}

/* Puts a copy of the library `kind` (good, old or lacks) at a path of the tree. A copy, because the
 * loader takes two links to one file for the same library. */
static void put(const char *kind, const char *path)
{
    static char data[1 << 20];
    char from[800];
    ssize_t n = readlink("/proc/self/exe", from, 512);
    assert_true(n > 0);
    from[n] = 0;
    text_format(strrchr(from, '/'), 200, "/library/%s.so", kind);
    FILE *in = fopen(from, "rb");
    assert_non_null(in);
    size_t bytes = fread(data, 1, sizeof data, in);
    fclose(in);
    make_folders(in_tree(path));
    FILE *out = fopen(in_tree(path), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, bytes, out), bytes);
    fclose(out);
}

static enum status find(struct library *out)
{
    struct fake table = {0};
    enum status st = library_open(&spec, out, &table);
    if (st == ST_OK)
        assert_int_equal(table.fake_answer(), 42);
    return st;
}

static void expect_path(const char *path)
{
    struct library l;
    enum status st = find(&l);
    if (st != ST_OK || strcmp(l.path, in_tree(path)) != 0)
        fail_msg("want %s, found %s", in_tree(path), st == ST_OK ? l.path : status_message());
    library_close(&l);
}

static void remove_file(const char *path) { assert_int_equal(unlink(in_tree(path)), 0); }

#define FILE_1 "/libconvoy_fake.so.1"
#define FILE_2 "/libconvoy_fake.so.2"

/* With a library in every location the first counts; without that, the next. */
TEST(locations_have_an_order)
{
    static const char *const list[] = {
        "/user" FILE_2,
        "/user/nccl/lib" FILE_2,
        "/my [env]/lib/python3.11/site-packages/nvidia/nccl/lib" FILE_2,
        "/conda/lib/python3.9/site-packages/nvidia/cu13/lib" FILE_2,
        "/conda/targets/x86_64-linux/lib" FILE_2,
        "/conda/lib" FILE_2,
        "/usr/local/lib/python3.12/site-packages/nvidia/nccl/lib" FILE_2,
        "/usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib" FILE_2,
        "/usr/lib/python3/dist-packages/nvidia/nccl/lib" FILE_2,
        "/opt/conda/lib/python3.11/site-packages/nvidia/nccl/lib" FILE_2,
        "/opt/app/venv/lib/python3.10/site-packages/nvidia/nccl/lib" FILE_2,
        "/opt/app/.venv/lib/python3.10/site-packages/nvidia/nccl/lib" FILE_2,
        "/usr/local/cuda/targets/sbsa-linux/lib" FILE_2,
        "/usr/local/cuda/lib64" FILE_2,
        "/usr/local/cuda-13.0/lib64" FILE_2,
        "/usr/local/cuda-12.10/lib64" FILE_2,
        "/usr/local/cuda-12.8/targets/x86_64-linux/lib" FILE_2,
        "/usr/local/nvidia/lib64" FILE_2,
        "/usr/lib/x86_64-linux-gnu" FILE_2,
        "/opt/cuda/lib64" FILE_2,
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        put("good", list[i]);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        expect_path(list[i]);
        remove_file(list[i]);
    }
    struct library l;
    assert_int_equal(find(&l), ST_NO_DEVICE);
    assert_null(l.handle);
    for (const char *const *word =
             (const char *const[]){
                 "Fake is not here: install convoy-fake, or name its folder in "
                 "CONVOY_LIB_DIR; no libconvoy_fake.so.2 in ",
                 "/user, ", "/my [env], ", "/conda, ",
                 "Python's packages in /usr and /opt, CUDA's folders, ROCm's folders", NULL};
         *word; word++)
        if (!strstr(status_message(), *word))
            fail_msg("no \"%s\" in: %s", *word, status_message());
    assert_null(strstr(status_message(), "passed over"));
}

/* In one location the newest name counts, whatever its folder; a location that comes first counts
 * with an older one, too. */
TEST(newest_name_first)
{
    static const char new[] = "/usr/local/cuda-12.8/lib64" FILE_2,
                      old[] = "/usr/local/cuda-13.0/lib64" FILE_1,
                      own[] = "/my [env]/lib/python3.11/site-packages/nvidia/nccl/lib" FILE_1;
    put("good", old);
    expect_path(old);
    put("good", new);
    expect_path(new);
    put("good", own);
    expect_path(own);
    remove_file(old);
    remove_file(new);
    remove_file(own);
}

/* Files that cannot be used are named with their reasons, and a usable one after them is found. */
TEST(unusable_is_passed_over)
{
    struct library l;
    /* no path of a test before: the loader still has those */
    static const char lacks[] = "/user/lacks/lib" FILE_2, old[] = "/conda/targets/old/lib" FILE_2,
                      text[] = "/usr/local/cuda-11.8/lib64" FILE_2,
                      good[] = "/usr/local/cuda-11.7/lib64" FILE_2;
    put("lacks", lacks);
    put("old", old);
    make_folders(in_tree(text));
    FILE *file = fopen(in_tree(text), "w");
    assert_non_null(file);
    fputs("not a library\n", file);
    fclose(file);
    assert_int_equal(find(&l), ST_NO_DEVICE);
    assert_null(l.handle);
    for (const char *const *word =
             (const char *const[]){"no usable libconvoy_fake.so.2 in ", "; passed over: ",
                                   "/user/lacks/lib" FILE_2 ": has no fake_version; ",
                                   "/conda/targets/old/lib" FILE_2 ": version 6 is too old; ",
                                   "/usr/local/cuda-11.8/lib64" FILE_2 ": ", NULL};
         *word; word++)
        if (!strstr(status_message(), *word))
            fail_msg("no \"%s\" in: %s", *word, status_message());
    put("good", good);
    expect_path(good);
}

static int begin(void **state)
{
    library_dir(in_tree("/user"));
    library_root(harness_tmpdir());
    setenv("VIRTUAL_ENV", in_tree("/my [env]"), 1);
    setenv("CONDA_PREFIX", in_tree("/conda"), 1);
    return 0;
}

HARNESS_RUN_ALL_WITH(begin, NULL)
