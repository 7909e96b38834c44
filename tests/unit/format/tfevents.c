/* tfevents — an event file read back by a reader of this test: framing, both checksums, every
 * field of ten thousand events; names in order; a disk that is full for a while. */
#include "format/tfevents.h"

#include <sys/resource.h>

#include "harness.h"
#include "tfevents_read.h"

/* ---- tests ---- */

TEST(test_checksum)
{
    uint8_t bytes[32] = {0};
    assert_int_equal(tfevents_crc32c("", 0), 0);
    assert_int_equal(tfevents_crc32c("123456789", 9), 0xE3069283u);
    assert_int_equal(tfevents_crc32c(bytes, 32), 0x8A9136AAu); /* RFC 3720, B.4 */
    memset(bytes, 0xFF, 32);
    assert_int_equal(tfevents_crc32c(bytes, 32), 0x62A8AB43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(tfevents_crc32c(bytes, 32), 0x46DD794Eu);
}

static const char *folder(const char *name)
{
    static char path[FILE_PATH_MAX];
    assert_int_equal(file_join(path, sizeof path, harness_tmpdir(), name), ST_OK);
    return path;
}

static struct tfevents *begin(const char *dir, int64_t step, char *path)
{
    struct tfevents *file;
    assert_int_equal(tfevents_open(dir, step, &file), ST_OK);
    assert_non_null(file);
    memcpy(path, tfevents_path(file), strlen(tfevents_path(file)) + 1);
    return file;
}

static void read_head(struct tfevents_cursor *c, int64_t step_next)
{
    struct tfevents_seen s;
    assert_true(tfevents_read_next(c, &s));
    assert_string_equal(s.version, "brain.Event:2");
    assert_int_equal(s.step, 0);
    assert_true(fabs(s.wall - (double)clock_wall_ms() / 1000) < 60);
    assert_true(tfevents_read_next(c, &s));
    assert_int_equal(s.status, 1);
    assert_int_equal(s.step, step_next);
}

TEST(test_ten_thousand)
{
    enum { N = 10000 };
    char path[FILE_PATH_MAX];
    struct file_map map = {0};
    struct tfevents *file = begin(folder("many/below"), 1, path);
    for (int64_t i = 1; i <= N; i++)
        tfevents_add(file, i * i * i,
                     (struct tfevents_scalar[]){
                         {"loss", 1.0 / (double)i}, {"mfu", i % 3 ? NAN : 0.25}, {"lr", -1e300}},
                     3);
    assert_int_equal(tfevents_lost(file), 0);
    tfevents_close(file);
    assert_int_equal(file_map_open(path, &map), ST_OK);
    struct tfevents_cursor c = {map.data, map.data + map.bytes};
    struct tfevents_seen s;
    read_head(&c, 1);
    for (int64_t i = 1; i <= N; i++) {
        assert_true(tfevents_read_next(&c, &s));
        assert_int_equal(s.step, i * i * i);
        assert_int_equal(s.scalars_n, i % 3 ? 2 : 3);
        assert_string_equal(s.tag[0], "loss");
        assert_true(s.value[0] == (float)(1.0 / (double)i));
        assert_string_equal(s.tag[s.scalars_n - 1], "lr");
        assert_true(s.value[s.scalars_n - 1] == -INFINITY);
    }
    assert_false(tfevents_read_next(&c, &s));
    file_map_close(&map);
}

TEST(test_written_soon)
{
    char path[FILE_PATH_MAX];
    struct tfevents *file = begin(folder("soon"), 8, path);
    int64_t head = file_bytes(path);
    assert_true(head > 0); /* TensorBoard sees the run at once */
    tfevents_add(file, 8, &(struct tfevents_scalar){"loss", 1}, 1);
    assert_int_equal(file_bytes(path), head); /* the step waits for nothing */
    clock_sleep_ms(2100);
    tfevents_add(file, 9, &(struct tfevents_scalar){"loss", 1}, 1);
    int64_t two = file_bytes(path);
    assert_true(two > head);
    tfevents_add(file, 10, &(struct tfevents_scalar){"loss", 1}, 1);
    tfevents_flush(file);
    assert_int_equal(file_bytes(path) - two, (two - head) / 2);
    tfevents_flush(file);
    tfevents_close(file);
}

/* Runs that follow each other within a second, and one from the future, sort in the order of their
 * starts. */
TEST(test_names)
{
    const char *dir = folder("names");
    char path[4][FILE_PATH_MAX], host[128] = "", future[FILE_PATH_MAX];
    for (int i = 0; i < 3; i++)
        tfevents_close(begin(dir, i, path[i]));
    snprintf(future, sizeof future, "%s/events.out.tfevents.%lld.other.1", dir,
             (long long)clock_wall_ms() / 1000 + 5000);
    fclose(fopen(future, "w"));
    tfevents_close(begin(dir, 3, path[3]));
    for (int i = 1; i < 4; i++)
        assert_true(strcmp(path[i - 1], path[i]) < 0);
    assert_true(strcmp(future, path[3]) < 0);
    const char *name = strrchr(path[0], '/') + 1;
    assert_int_equal(strncmp(name, "events.out.tfevents.1", 21) == 0 ||
                         strncmp(name, "events.out.tfevents.2", 21) == 0,
                     1);
    assert_true(strlen(name) > 8 && strcmp(name + strlen(name) - 7, ".convoy") == 0);
    gethostname(host, sizeof host - 1);
    assert_non_null(strstr(name, host));
}

static void limit(rlim_t bytes)
{
    struct rlimit now;
    getrlimit(RLIMIT_FSIZE, &now);
    now.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
}

/* A file that may not grow acts like a full disk: what is in the buffer is written when there is
 * space again, what is not is counted, and the file holds whole records only. */
TEST(test_full_disk)
{
    char path[FILE_PATH_MAX];
    struct file_map map = {0};
    signal(SIGXFSZ, SIG_IGN);
    struct tfevents *file = begin(folder("full"), 1, path);
    limit(1001);
    for (int64_t i = 1; i <= 5000; i++)
        tfevents_add(file, i, &(struct tfevents_scalar){"loss", (double)i}, 1);
    tfevents_flush(file);
    assert_int_equal(file_bytes(path), 1001); /* a part of a record */
    int64_t lost = tfevents_lost(file);
    assert_true(lost > 0 && lost < 5000);
    limit(RLIM_INFINITY);
    tfevents_flush(file);
    tfevents_add(file, 5001, &(struct tfevents_scalar){"loss", 5001}, 1);
    tfevents_close(file);
    assert_int_equal(file_map_open(path, &map), ST_OK);
    struct tfevents_cursor c = {map.data, map.data + map.bytes};
    struct tfevents_seen s;
    int64_t n = 0;
    read_head(&c, 1);
    while (tfevents_read_next(&c, &s))
        assert_int_equal(s.step, ++n == 5001 - lost ? 5001 : n);
    assert_int_equal(n, 5001 - lost);
    file_map_close(&map);
}

TEST(test_full_to_the_end)
{
    char path[FILE_PATH_MAX];
    struct tfevents *file = begin(folder("end"), 1, path);
    int64_t head = file_bytes(path);
    limit((rlim_t)head + 10);
    for (int64_t i = 1; i <= 20; i++)
        tfevents_add(file, i, &(struct tfevents_scalar){"loss", (double)i}, 1);
    tfevents_close(file);
    limit(RLIM_INFINITY);
    assert_int_equal(file_bytes(path), head);
}

TEST(test_refused)
{
    struct tfevents *file = (struct tfevents *)1;
    assert_int_equal(tfevents_open("", 1, &file), ST_OK);
    assert_null(file);
    tfevents_add(file, 1, NULL, 0); /* nothing happens */
    tfevents_flush(file);
    tfevents_close(file);
    assert_int_equal(tfevents_open("/dev/null/x", 1, &file), ST_STORE);
    assert_null(file);
    assert_int_equal(tfevents_open("/proc/self", 1, &file), ST_BAD_SETTING);
    assert_null(file);
}

HARNESS_RUN_ALL()
