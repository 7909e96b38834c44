/* test_tfevents — an event file read back by a reader of its own: framing, both checksums, every field of ten thousand
 * events; names in order; a disk that is full for a while. */
#include "format/tfevents.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "harness.h"

/* ---- a reader that shares nothing with the writer ---- */

/* Bit by bit, as the definition says. */
static uint32_t slow_crc(const uint8_t *bytes, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint32_t out = (crc ^ (uint32_t)(bytes[i] >> bit)) & 1;
            crc = crc >> 1 ^ (out ? 0x82F63B78u : 0);
        }
    return ~crc;
}

static uint32_t masked(const uint8_t *bytes, size_t n)
{
    uint32_t crc = slow_crc(bytes, n);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

struct cursor {
    const uint8_t *at, *end;
};

static uint64_t fixed(struct cursor *c, int n)
{
    uint64_t value = 0;
    assert_true(c->end - c->at >= n);
    for (int i = 0; i < n; i++)
        value |= (uint64_t)c->at[i] << 8 * i;
    c->at += n;
    return value;
}

static uint64_t varint(struct cursor *c)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        uint64_t byte = fixed(c, 1);
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80)
            return value;
    }
    fail_msg("a varint without end");
    return 0;
}

static struct cursor inside(struct cursor *c)
{
    uint64_t n = varint(c);
    assert_true(n <= (uint64_t)(c->end - c->at));
    struct cursor part = {c->at, c->at + n};
    c->at += n;
    return part;
}

struct seen {
    double wall;
    int64_t step;
    char version[32];
    int status, scalars_n;
    char tag[TFEVENTS_SCALARS_MAX][64];
    float value[TFEVENTS_SCALARS_MAX];
};

static void text_of(struct cursor c, char *out, size_t cap)
{
    size_t n = (size_t)(c.end - c.at);
    assert_true(n < cap);
    memcpy(out, c.at, n);
    out[n] = 0;
}

static void read_value(struct cursor c, struct seen *s)
{
    int i = s->scalars_n++;
    while (c.at < c.end) {
        uint64_t key = varint(&c);
        if (key == (1 << 3 | 2)) {
            text_of(inside(&c), s->tag[i], sizeof s->tag[i]);
        } else {
            assert_int_equal(key, 2 << 3 | 5);
            uint32_t bits = (uint32_t)fixed(&c, 4);
            memcpy(&s->value[i], &bits, 4);
        }
    }
}

static void read_event(struct cursor c, struct seen *s)
{
    memset(s, 0, sizeof *s);
    s->status = -1;
    while (c.at < c.end) {
        uint64_t key = varint(&c), bits;
        struct cursor part;
        switch (key) {
        case 1 << 3 | 1:
            bits = fixed(&c, 8);
            memcpy(&s->wall, &bits, 8);
            break;
        case 2 << 3 | 0: s->step = (int64_t)varint(&c); break;
        case 3 << 3 | 2: text_of(inside(&c), s->version, sizeof s->version); break;
        case 5 << 3 | 2:
            part = inside(&c);
            while (part.at < part.end) {
                assert_int_equal(varint(&part), 1 << 3 | 2);
                read_value(inside(&part), s);
            }
            break;
        case 7 << 3 | 2:
            part = inside(&c);
            assert_int_equal(varint(&part), 1 << 3 | 0);
            s->status = (int)varint(&part);
            break;
        default: fail_msg("unknown field %llu", (unsigned long long)key);
        }
    }
}

/* The next record; false at the end of the file. */
static bool next(struct cursor *c, struct seen *s)
{
    if (c->at == c->end)
        return false;
    uint32_t crc = masked(c->at, 8);
    uint64_t n = fixed(c, 8);
    assert_int_equal(fixed(c, 4), crc);
    assert_true(n + 4 <= (uint64_t)(c->end - c->at));
    crc = masked(c->at, n);
    read_event((struct cursor){c->at, c->at + n}, s);
    c->at += n;
    assert_int_equal(fixed(c, 4), crc);
    return true;
}

/* ---- tests ---- */

static void test_checksum(void **state)
{
    (void)state;
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

static void read_head(struct cursor *c, int64_t step_next)
{
    struct seen s;
    assert_true(next(c, &s));
    assert_string_equal(s.version, "brain.Event:2");
    assert_int_equal(s.step, 0);
    assert_true(fabs(s.wall - (double)clock_wall_ms() / 1000) < 60);
    assert_true(next(c, &s));
    assert_int_equal(s.status, 1);
    assert_int_equal(s.step, step_next);
}

static void test_ten_thousand(void **state)
{
    (void)state;
    enum { N = 10000 };
    char path[FILE_PATH_MAX];
    struct file_map map = {0};
    struct tfevents *file = begin(folder("many/below"), 1, path);
    for (int64_t i = 1; i <= N; i++)
        tfevents_add(file, i * i * i, (struct tfevents_scalar[]){{"loss", 1.0 / (double)i}, {"mfu", i % 3 ? NAN : 0.25}, {"lr", -1e300}},
                     3);
    assert_int_equal(tfevents_lost(file), 0);
    tfevents_close(file);
    assert_int_equal(file_map_open(path, &map), ST_OK);
    struct cursor c = {map.data, map.data + map.bytes};
    struct seen s;
    read_head(&c, 1);
    for (int64_t i = 1; i <= N; i++) {
        assert_true(next(&c, &s));
        assert_int_equal(s.step, i * i * i);
        assert_int_equal(s.scalars_n, i % 3 ? 2 : 3);
        assert_string_equal(s.tag[0], "loss");
        assert_true(s.value[0] == (float)(1.0 / (double)i));
        assert_string_equal(s.tag[s.scalars_n - 1], "lr");
        assert_true(s.value[s.scalars_n - 1] == -INFINITY);
    }
    assert_false(next(&c, &s));
    file_map_close(&map);
}

static void test_written_soon(void **state)
{
    (void)state;
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

/* Runs that follow each other within a second, and one from the future, sort in the order of their starts. */
static void test_names(void **state)
{
    (void)state;
    const char *dir = folder("names");
    char path[4][FILE_PATH_MAX], host[128] = "", future[FILE_PATH_MAX];
    for (int i = 0; i < 3; i++)
        tfevents_close(begin(dir, i, path[i]));
    snprintf(future, sizeof future, "%s/events.out.tfevents.%lld.other.1", dir, (long long)clock_wall_ms() / 1000 + 5000);
    fclose(fopen(future, "w"));
    tfevents_close(begin(dir, 3, path[3]));
    for (int i = 1; i < 4; i++)
        assert_true(strcmp(path[i - 1], path[i]) < 0);
    assert_true(strcmp(future, path[3]) < 0);
    const char *name = strrchr(path[0], '/') + 1;
    assert_int_equal(strncmp(name, "events.out.tfevents.1", 21) == 0 || strncmp(name, "events.out.tfevents.2", 21) == 0, 1);
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

/* A file that may not grow behaves as a full disk: what was in the buffer comes when there is room again, what was not
 * is counted, and the file holds whole records only. */
static void test_full_disk(void **state)
{
    (void)state;
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
    struct cursor c = {map.data, map.data + map.bytes};
    struct seen s;
    int64_t n = 0;
    read_head(&c, 1);
    while (next(&c, &s))
        assert_int_equal(s.step, ++n == 5001 - lost ? 5001 : n);
    assert_int_equal(n, 5001 - lost);
    file_map_close(&map);
}

static void test_full_to_the_end(void **state)
{
    (void)state;
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

static void test_refused(void **state)
{
    (void)state;
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_checksum),  cmocka_unit_test(test_ten_thousand),    cmocka_unit_test(test_written_soon),
    cmocka_unit_test(test_names),     cmocka_unit_test(test_full_disk),       cmocka_unit_test(test_full_to_the_end),
    cmocka_unit_test(test_refused),
};
HARNESS_MAIN(tests)
