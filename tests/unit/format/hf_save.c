/* hf_save — a folder exists whole or not at all, and folders of others are not touched. */
#include "harness.h"

#include <sys/file.h>
#include <sys/resource.h>

#include "format/hf.h"

static const float weights[4] = {1, 2, 3, 4};
static const struct safetensors_source source[] = {
    {"transformer.wte.weight", DTYPE_F32, 2, {2, 2}, .data = weights}};
static const struct hf_save_file file[] = {{"config.json", "{}\n", 3}, {"empty", "", 0}};

static char dir[FILE_PATH_MAX], target[FILE_PATH_MAX];

static int setup(void **state)
{
    static int n;
    text_format(dir, sizeof(dir), "%s/%d", harness_tmpdir(), n++);
    text_format(target, sizeof(target), "%s/to", dir);
    return mkdir(dir, 0777);
}

static enum status save(const char *to)
{
    return hf_save(to, NULL, source, 1, file, 2, HF_SAVE_FILE_BYTES_MAX);
}

static void assert_whole(const char *to)
{
    char path[FILE_PATH_MAX], *bytes;
    size_t n;
    struct safetensors tensors;
    text_format(path, sizeof(path), "%s/model.safetensors", to);
    assert_int_equal(file_read(path, 1 << 20, &bytes, &n), ST_OK);
    assert_int_equal(safetensors_parse((uint8_t *)bytes, n, path, &tensors), ST_OK);
    assert_int_equal(tensors.entries_n, 1);
    assert_memory_equal(tensors.entry[0].data, weights, sizeof(weights));
    assert_string_equal(tensors.metadata_json, "{\"format\":\"pt\"}");
    safetensors_free(&tensors);
    free(bytes);
    text_format(path, sizeof(path), "%s/config.json", to);
    assert_int_equal(file_bytes(path), 3);
    text_format(path, sizeof(path), "%s/empty", to);
    assert_int_equal(file_bytes(path), 0);
}

/* assert_alone — dir holds `want` entries: nothing was left behind. */
static void assert_alone(int want)
{
    char command[FILE_PATH_MAX + 64];
    struct stat info;
    assert_int_equal(stat(dir, &info), 0);
    text_format(command, sizeof(command), "%s/to.tmp-%ld", dir, (long)getpid());
    assert_false(file_exists(command));
    assert_int_equal((int)info.st_nlink - 2, want); /* folders */
}

TEST_WITH(test_new, setup, NULL)
{
    char deep[FILE_PATH_MAX];
    assert_int_equal(hf_save_check(target), ST_OK);
    assert_int_equal(save(target), ST_OK);
    assert_whole(target);
    assert_alone(1);
    text_format(deep, sizeof(deep), "%s/a/b/c///", dir);
    assert_int_equal(save(deep), ST_OK);
    assert_whole(deep);
    assert_int_equal(mkdir(text_format(deep, sizeof(deep), "%s/empty", dir) ? deep : "", 0777), 0);
    assert_int_equal(hf_save_check(deep), ST_OK);
    assert_int_equal(save(deep), ST_OK);
    assert_whole(deep);
}

TEST_WITH(test_target_exists, setup, NULL)
{
    char path[FILE_PATH_MAX];
    static const char *const nameless[] = {"", "/", ".", "..", "a/..", "/tmp/.", "./"};
    for (size_t i = 0; i < sizeof(nameless) / sizeof(nameless[0]); i++)
        assert_int_equal(save(nameless[i]), ST_BAD_SETTING);
    assert_int_equal(save(target), ST_OK);
    assert_int_equal(save(target), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "not empty"));
    text_format(path, sizeof(path), "%s/to/config.json", dir);
    assert_int_equal(hf_save_check(path), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "as a file"));
    assert_int_equal(save(text_format(path, sizeof(path), "%s/to/config.json/x", dir) ? path : ""),
                     ST_STORE);
    text_format(path, sizeof(path), "%s/link", dir);
    assert_int_equal(symlink("nowhere", path), 0);
    assert_int_equal(save(path), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "symbolic link"));
    char *longer = malloc(5000);
    memset(longer, 'x', 4999);
    longer[4999] = 0;
    assert_int_equal(save(longer), ST_BAD_SETTING);
    free(longer);
    assert_whole(target);
    assert_alone(1);
}

/* A limit on the size of files acts like a full disk and needs no rights; in a child process,
 * because it stays. */
TEST_WITH(test_no_room, setup, NULL)
{
    static float big[1 << 16];
    const struct safetensors_source large = {"a", DTYPE_F32, 1, {1 << 16}, .data = big};
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {100000, 100000};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(hf_save(target, NULL, &large, 1, file, 2, HF_SAVE_FILE_BYTES_MAX) == ST_STORE &&
                      strstr(status_message(), "model.safetensors")
                  ? 0
                  : 1);
    }
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_false(file_exists(target));
    assert_alone(0);
}

/* The next export removes what a killed one left; one that is running, and what only looks similar,
 * stays. */
TEST_WITH(test_left_behind, setup, NULL)
{
    static const char *const names[] = {"to.tmp-1",  "to.tmp-99999999", "to.tmp-77",
                                        "to.tmp-7x", "to.tmp-",         "too.tmp-7"};
    char path[FILE_PATH_MAX], inside[FILE_PATH_MAX];
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(file_join(path, sizeof(path), dir, names[i]), ST_OK);
        assert_int_equal(mkdir(path, 0777), 0);
        assert_int_equal(file_join(inside, sizeof(inside), path, "model.safetensors"), ST_OK);
        assert_int_equal(file_replace(inside, "half", 4), ST_OK);
    }
    assert_int_equal(file_join(path, sizeof(path), dir, names[2]), ST_OK);
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(file_join(path, sizeof(path), dir, "to.tmp-5"), ST_OK);
    assert_int_equal(symlink("too.tmp-7", path), 0);
    assert_int_equal(save(target), ST_OK);
    assert_whole(target);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(file_join(path, sizeof(path), dir, names[i]), ST_OK);
        assert_int_equal(file_is_dir(path), i >= 2);
    }
    assert_int_equal(file_join(path, sizeof(path), dir, "too.tmp-7/model.safetensors"), ST_OK);
    assert_true(file_exists(path));
    close(fd);
}

/* Above the limit several files and an index, which hf_open reads back; a tensor above the limit
 * has a file of its own. */
TEST_WITH(test_weight_files, setup, NULL)
{
    static const float a[16] = {1, 2}, b[4] = {3}, c[4] = {4}, d[3] = {5};
    static const struct safetensors_source many[] = {
        {"transformer.wte.weight", DTYPE_F32, 2, {4, 4}, .data = a},
        {"transformer.ln_f.weight", DTYPE_F32, 1, {4}, .data = b},
        {"transformer.ln_f.bias", DTYPE_F32, 1, {4}, .data = c},
        {"transformer.h.0.ln_1.bias", DTYPE_F32, 1, {3}, .data = d},
    };
    static const struct {
        int64_t file_bytes_max;
        int weight_files_n;
    } list[] = {{1 << 20, 1}, {108, 1}, {107, 2}, {32, 3}, {27, 4}, {1, 4}};
    const struct hf_config config = {.arch = HF_ARCH_GPT2, .is_tied = true};
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        char path[FILE_PATH_MAX];
        struct hf_model *hf;
        const struct safetensors_entry *entry;
        text_format(target, sizeof(target), "%s/to%zu", dir, i);
        assert_int_equal(hf_save(target, NULL, many, 4, file, 2, list[i].file_bytes_max), ST_OK);
        text_format(path, sizeof(path), "%s/model.safetensors", target);
        assert_int_equal(file_exists(path), list[i].weight_files_n == 1);
        text_format(path, sizeof(path), "%s/model-%05d-of-%05d.safetensors", target,
                    list[i].weight_files_n, list[i].weight_files_n);
        assert_int_equal(file_exists(path), list[i].weight_files_n > 1);
        assert_int_equal(hf_open(target, &config, &hf), ST_OK);
        assert_int_equal(hf_tensor(hf, "wte.weight", 2, (int64_t[]){4, 4}, &entry), ST_OK);
        assert_memory_equal(entry->data, a, sizeof(a));
        assert_int_equal(hf_tensor(hf, "h.0.ln_1.bias", 1, (int64_t[]){3}, &entry), ST_OK);
        assert_memory_equal(entry->data, d, sizeof(d));
        hf_close(hf);
    }
}

HARNESS_RUN_ALL()
