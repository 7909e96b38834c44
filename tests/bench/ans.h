/* ans — an entropy coder for bytes: range asymmetric numeral systems (rANS, Duda 2013) with a
 * static table for each chunk. Bytes of which some are frequent take fewer bits, as close to their
 * entropy as probabilities of 12 bits allow. bench_compress compares it with zstd, which took less
 * time and fewer bits, and which the program uses (docs/decisions/042-coded-gradients.md).
 *
 * A coded chunk is one of
 *   0, then n bytes              as they were: coding would not have made them fewer
 *   1, then one byte             n times this byte
 *   2, table, 4 states, words    coded
 * The table has the first and the last byte that occur, in the order of int8 from -128 on, and
 * the frequency of each byte between them, in 4096ths: one byte below 128, else two. States are 32
 * bits, words 16, both little-endian. Byte i belongs to state i mod 4. */
#ifndef CONVOY_TESTS_BENCH_ANS_H
#define CONVOY_TESTS_BENCH_ANS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ANS_CHUNK_BYTES 65536 /* of which a chunk is made, at most */

#define BITS 12
#define TOTAL (1 << BITS) /* sum of all frequencies */
#define STATES 4
#define STATE_LEAST (1u << 16) /* a state is at least this between bytes */
#define RECIPROCAL_BITS 44
#define TABLE_BYTES_MAX (2 + 2 * 256)
#define HEAD_BYTES_MAX (1 + TABLE_BYTES_MAX + STATES * 4)

enum mode { MODE_RAW, MODE_CONSTANT, MODE_CODED };

/* Index of a byte in the order of int8, so that small numbers of both signs are neighbours. */
static int ordered(int byte) { return byte ^ 0x80; }

/* ---- frequencies ---- */

/* Four tables, so that equal neighbours do not wait for each other. */
static void count_bytes(const uint8_t *in, int64_t n, uint32_t count[256])
{
    uint32_t partial[4][256] = {{0}};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            partial[k][in[i + k]]++;
    for (; i < n; i++)
        partial[0][in[i]]++;
    for (int b = 0; b < 256; b++)
        count[b] = partial[0][b] + partial[1][b] + partial[2][b] + partial[3][b];
}

static int most_frequent(const uint16_t freq[256])
{
    int at = 0;
    for (int b = 1; b < 256; b++)
        at = freq[b] > freq[at] ? b : at;
    return at;
}

/* Frequencies that add up to TOTAL; a byte that occurs has at least 1. At least two bytes occur. */
static void normalise(const uint32_t count[256], int64_t n, uint16_t freq[256])
{
    int32_t left = TOTAL;
    for (int b = 0; b < 256; b++) {
        uint32_t share = (uint32_t)((uint64_t)count[b] * TOTAL / (uint64_t)n);
        freq[b] = (uint16_t)(count[b] > 0 && share == 0 ? 1 : share);
        left -= freq[b];
    }
    const int most = most_frequent(freq);
    freq[most] = (uint16_t)(freq[most] + (left > 0 ? left : 0));
    for (; left < 0; left++) /* at most 255: bytes that were given 1 */
        freq[most_frequent(freq)]--;
}

/* ---- the table ---- */

static int64_t write_table(const uint16_t freq[256], uint8_t *out)
{
    int first = 0, last = 255;
    uint8_t *at = out + 2;
    while (freq[ordered(first)] == 0)
        first++;
    while (freq[ordered(last)] == 0)
        last--;
    out[0] = (uint8_t)first;
    out[1] = (uint8_t)last;
    for (int i = first; i <= last; i++) {
        uint16_t f = freq[ordered(i)];
        if (f >= 128)
            *at++ = (uint8_t)(0x80 | f >> 8);
        *at++ = (uint8_t)f;
    }
    return at - out;
}

/* Returns the bytes read; 0: not a table that write_table makes. */
static int64_t read_table(const uint8_t *in, int64_t n, uint16_t freq[256])
{
    int64_t at = 2;
    int32_t sum = 0;
    if (n < 2)
        return 0;
    memset(freq, 0, 256 * sizeof *freq);
    for (int i = in[0]; i <= in[1]; i++) {
        if (at >= n || (in[at] >= 0x80 && at + 1 >= n))
            return 0;
        bool is_long = in[at] >= 0x80;
        int32_t f = is_long ? (in[at] & 0x7f) << 8 | in[at + 1] : in[at];
        at += is_long ? 2 : 1;
        if (f >= TOTAL || (is_long && f < 128) || ((i == in[0] || i == in[1]) && f == 0))
            return 0;
        freq[ordered(i)] = (uint16_t)f;
        sum += f;
    }
    return sum == TOTAL ? at : 0;
}

/* ---- encoding ---- */

/* What encoding a byte takes. The quotient of a state by the frequency f is
 * state * reciprocal >> RECIPROCAL_BITS, exact for states below f << 20, where f < TOTAL. */
struct coder {
    uint64_t reciprocal;
    uint32_t limit;             /* f << 20: a state from here on gives a word first */
    uint16_t start, complement; /* sum of the frequencies before; TOTAL - f */
};

static void plan_coders(const uint16_t freq[256], struct coder coder[256])
{
    uint16_t start = 0;
    for (int b = 0; b < 256; b++) {
        uint16_t f = freq[b];
        if (f > 0)
            coder[b] = (struct coder){.reciprocal = ((uint64_t)1 << RECIPROCAL_BITS) / f + 1,
                                      .limit = (uint32_t)f << 20,
                                      .start = start,
                                      .complement = (uint16_t)(TOTAL - f)};
        start = (uint16_t)(start + f);
    }
}

/* Without a branch: whether a state gives a word is as good as random. */
static inline uint8_t *put_byte(uint32_t *state, const struct coder *c, uint8_t *at)
{
    uint32_t x = *state;
    const uint16_t word = (uint16_t)x;
    const bool gives = x >= c->limit;
    memcpy(at - 2, &word, sizeof word);
    at -= gives ? 2 : 0;
    x = gives ? x >> 16 : x;
    *state = x + c->start + (uint32_t)(x * c->reciprocal >> RECIPROCAL_BITS) * c->complement;
    return at;
}

/* Writes states and words so that they end at `end`. Returns where they begin; NULL: they would
 * begin before `floor`. The last byte is coded first, since decoding runs the other way. */
static uint8_t *put_bytes(const struct coder coder[256], const uint8_t *in, int64_t n,
                          const uint8_t *floor, uint8_t *end)
{
    uint32_t x[STATES] = {STATE_LEAST, STATE_LEAST, STATE_LEAST, STATE_LEAST};
    uint8_t *at = end;
    int64_t i = n;
    for (; i % STATES > 0; i--)
        at = put_byte(&x[(i - 1) % STATES], &coder[in[i - 1]], at);
    uint32_t a = x[0], b = x[1], c = x[2], d = x[3];
    for (; i > 0; i -= STATES) {
        if (at - floor < STATES * (2 + 4))
            return NULL;
        at = put_byte(&d, &coder[in[i - 1]], at);
        at = put_byte(&c, &coder[in[i - 2]], at);
        at = put_byte(&b, &coder[in[i - 3]], at);
        at = put_byte(&a, &coder[in[i - 4]], at);
    }
    x[0] = a, x[1] = b, x[2] = c, x[3] = d;
    if (at - floor < (int64_t)sizeof x)
        return NULL;
    memcpy(at - sizeof x, x, sizeof x);
    return at - sizeof x;
}

static int64_t encode_raw(const uint8_t *in, int64_t n, uint8_t *out)
{
    out[0] = MODE_RAW;
    if (n > 0)
        memcpy(out + 1, in, (size_t)n);
    return n + 1;
}

/* ans_encode — codes n bytes, at most ANS_CHUNK_BYTES, into `out`, which has n + 1 bytes.
 * Returns the bytes of the chunk. */
static int64_t ans_encode(const uint8_t *in, int64_t n, uint8_t *out)
{
    uint32_t count[256];
    uint16_t freq[256];
    struct coder coder[256];
    if (n < 2)
        return encode_raw(in, n, out);
    count_bytes(in, n, count);
    if (count[in[0]] == (uint64_t)n) {
        out[0] = MODE_CONSTANT;
        out[1] = in[0];
        return 2;
    }
    normalise(count, n, freq);
    if (n <= HEAD_BYTES_MAX)
        return encode_raw(in, n, out);
    out[0] = MODE_CODED;
    plan_coders(freq, coder);
    uint8_t *body = out + 1 + write_table(freq, out + 1), *end = out + n;
    const uint8_t *begin = put_bytes(coder, in, n, body, end);
    if (!begin)
        return encode_raw(in, n, out);
    memmove(body, begin, (size_t)(end - begin));
    return body - out + (end - begin);
}

/* ---- decoding ---- */

/* An entry for each of the TOTAL values of a state's low bits: byte, its frequency, and how far the
 * value is from the byte's first one. */
static uint32_t slot_of(int byte, uint32_t freq, uint32_t offset)
{
    return (uint32_t)byte | freq << 8 | offset << 20;
}

static void plan_slots(const uint16_t freq[256], uint32_t slot[TOTAL])
{
    for (int b = 0, at = 0; b < 256; b++)
        for (uint32_t k = 0; k < freq[b]; k++)
            slot[at++] = slot_of(b, freq[b], k);
}

/* The state without its lowest byte, before a word is taken. */
static inline uint32_t decode_byte(const uint32_t slot[TOTAL], uint32_t x, uint8_t *out)
{
    uint32_t s = slot[x & (TOTAL - 1)];
    *out = (uint8_t)s;
    return (s >> 8 & (TOTAL - 1)) * (x >> BITS) + (s >> 20);
}

static inline const uint8_t *read_word(uint32_t *state, const uint8_t *at)
{
    uint16_t word;
    const bool reads = *state < STATE_LEAST;
    memcpy(&word, at, sizeof word);
    *state = reads ? *state << 16 | word : *state;
    return at + (reads ? 2 : 0);
}

/* The last bytes: each word is looked for before it is read. */
static bool decode_rest(const uint32_t slot[TOTAL], uint32_t x[STATES], const uint8_t *at,
                        const uint8_t *end, uint8_t *out, int64_t i, int64_t n)
{
    for (; i < n; i++) {
        uint32_t *state = &x[i % STATES];
        *state = decode_byte(slot, *state, out + i);
        if (*state < STATE_LEAST && end - at < 2)
            return false;
        if (*state < STATE_LEAST)
            at = read_word(state, at);
    }
    for (int k = 0; k < STATES; k++)
        if (x[k] != STATE_LEAST)
            return false;
    return at == end;
}

static bool decode_bytes(const uint32_t slot[TOTAL], const uint8_t *at, const uint8_t *end,
                         uint8_t *out, int64_t n)
{
    uint32_t x[STATES];
    int64_t i = 0;
    if (end - at < (int64_t)sizeof x)
        return false;
    memcpy(x, at, sizeof x);
    at += sizeof x;
    for (int k = 0; k < STATES; k++)
        if (x[k] < STATE_LEAST)
            return false;
    uint32_t a = x[0], b = x[1], c = x[2], d = x[3];
    for (; i + STATES <= n && end - at >= 2 * STATES; i += STATES) {
        a = decode_byte(slot, a, out + i);
        b = decode_byte(slot, b, out + i + 1);
        c = decode_byte(slot, c, out + i + 2);
        d = decode_byte(slot, d, out + i + 3);
        at = read_word(&a, at);
        at = read_word(&b, at);
        at = read_word(&c, at);
        at = read_word(&d, at);
    }
    x[0] = a, x[1] = b, x[2] = c, x[3] = d;
    return decode_rest(slot, x, at, end, out, i, n);
}

static bool decode_coded(const uint8_t *in, int64_t in_bytes, uint8_t *out, int64_t n)
{
    uint16_t freq[256];
    uint32_t slot[TOTAL];
    int64_t table_bytes = read_table(in, in_bytes, freq);
    if (table_bytes == 0)
        return false;
    plan_slots(freq, slot);
    return decode_bytes(slot, in + table_bytes, in + in_bytes, out, n);
}

/* ans_decode — n bytes from a chunk. false: it is not one that ans_encode makes of n bytes. */
static bool ans_decode(const uint8_t *coded, int64_t coded_bytes, uint8_t *out, int64_t n)
{
    if (coded_bytes < 1 || n < 0 || n > ANS_CHUNK_BYTES)
        return false;
    switch (coded[0]) {
    case MODE_RAW:
        if (n > 0 && coded_bytes == n + 1)
            memcpy(out, coded + 1, (size_t)n);
        return coded_bytes == n + 1;
    case MODE_CONSTANT:
        if (n > 0 && coded_bytes == 2)
            memset(out, coded[1], (size_t)n);
        return n > 1 && coded_bytes == 2;
    case MODE_CODED:
        return n > HEAD_BYTES_MAX && coded_bytes <= n &&
               decode_coded(coded + 1, coded_bytes - 1, out, n);
    default:
        return false;
    }
}

#endif
