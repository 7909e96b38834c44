/* tfevents_read — a reader of TensorBoard's event files for tests, which shares nothing with the
 * writer. */
#ifndef CONVOY_TESTS_TFEVENTS_READ_H
#define CONVOY_TESTS_TFEVENTS_READ_H

#include "format/tfevents.h"
#include "harness.h"

/* Bit by bit, as the definition says. */
static inline uint32_t tfevents_read_slow_crc(const uint8_t *bytes, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint32_t out = (crc ^ (uint32_t)(bytes[i] >> bit)) & 1;
            crc = crc >> 1 ^ (out ? 0x82F63B78u : 0);
        }
    return ~crc;
}

static inline uint32_t tfevents_read_masked(const uint8_t *bytes, size_t n)
{
    uint32_t crc = tfevents_read_slow_crc(bytes, n);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

struct tfevents_cursor {
    const uint8_t *at, *end;
};

static inline uint64_t tfevents_read_fixed(struct tfevents_cursor *c, int n)
{
    uint64_t value = 0;
    assert_true(c->end - c->at >= n);
    for (int i = 0; i < n; i++)
        value |= (uint64_t)c->at[i] << 8 * i;
    c->at += n;
    return value;
}

static inline uint64_t tfevents_read_varint(struct tfevents_cursor *c)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        uint64_t byte = tfevents_read_fixed(c, 1);
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80)
            return value;
    }
    fail_msg("a varint without end");
    return 0;
}

static inline struct tfevents_cursor tfevents_read_inside(struct tfevents_cursor *c)
{
    uint64_t n = tfevents_read_varint(c);
    assert_true(n <= (uint64_t)(c->end - c->at));
    struct tfevents_cursor inner = {c->at, c->at + n};
    c->at += n;
    return inner;
}

struct tfevents_seen {
    double wall;
    int64_t step;
    char version[32];
    int status, scalars_n;
    char tag[TFEVENTS_SCALARS_MAX][64];
    float value[TFEVENTS_SCALARS_MAX];
};

static inline void tfevents_read_text_of(struct tfevents_cursor c, char *out, size_t cap)
{
    size_t n = (size_t)(c.end - c.at);
    assert_true(n < cap);
    memcpy(out, c.at, n);
    out[n] = 0;
}

static inline void tfevents_read_value(struct tfevents_cursor c, struct tfevents_seen *s)
{
    int i = s->scalars_n++;
    while (c.at < c.end) {
        uint64_t key = tfevents_read_varint(&c);
        if (key == (1 << 3 | 2)) {
            tfevents_read_text_of(tfevents_read_inside(&c), s->tag[i], sizeof s->tag[i]);
        } else {
            assert_int_equal(key, 2 << 3 | 5);
            uint32_t bits = (uint32_t)tfevents_read_fixed(&c, 4);
            memcpy(&s->value[i], &bits, 4);
        }
    }
}

static inline void tfevents_read_event(struct tfevents_cursor c, struct tfevents_seen *s)
{
    memset(s, 0, sizeof *s);
    s->status = -1;
    while (c.at < c.end) {
        uint64_t key = tfevents_read_varint(&c), bits;
        struct tfevents_cursor inner;
        switch (key) {
        case 1 << 3 | 1:
            bits = tfevents_read_fixed(&c, 8);
            memcpy(&s->wall, &bits, 8);
            break;
        case 2 << 3 | 0:
            s->step = (int64_t)tfevents_read_varint(&c);
            break;
        case 3 << 3 | 2:
            tfevents_read_text_of(tfevents_read_inside(&c), s->version, sizeof s->version);
            break;
        case 5 << 3 | 2:
            inner = tfevents_read_inside(&c);
            while (inner.at < inner.end) {
                assert_int_equal(tfevents_read_varint(&inner), 1 << 3 | 2);
                tfevents_read_value(tfevents_read_inside(&inner), s);
            }
            break;
        case 7 << 3 | 2:
            inner = tfevents_read_inside(&c);
            assert_int_equal(tfevents_read_varint(&inner), 1 << 3 | 0);
            s->status = (int)tfevents_read_varint(&inner);
            break;
        default:
            fail_msg("unknown field %llu", (unsigned long long)key);
        }
    }
}

/* The next record; false at the end of the file. */
static inline bool tfevents_read_next(struct tfevents_cursor *c, struct tfevents_seen *s)
{
    if (c->at == c->end)
        return false;
    uint32_t crc = tfevents_read_masked(c->at, 8);
    uint64_t n = tfevents_read_fixed(c, 8);
    assert_int_equal(tfevents_read_fixed(c, 4), crc);
    assert_true(n + 4 <= (uint64_t)(c->end - c->at));
    crc = tfevents_read_masked(c->at, n);
    tfevents_read_event((struct tfevents_cursor){c->at, c->at + n}, s);
    c->at += n;
    assert_int_equal(tfevents_read_fixed(c, 4), crc);
    return true;
}

#endif
