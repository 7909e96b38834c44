/* bpe — the same ids as tiktoken's "gpt2", every byte decoded back, no text that takes too
 * long, and cuts that change nothing. */
#include "harness.h"

#include <sys/resource.h>

#include "base/rand.h"
#include "data/tokenizer/gpt2.h"

static struct tokenizer *gpt2;

static size_t encode(const void *text, size_t n, uint32_t *ids)
{
    size_t ids_n;
    assert_int_equal(tokenizer_encode(gpt2, text, n, true, ids, &ids_n), ST_OK);
    return ids_n;
}

static int open_gpt2(void **state) { return tokenizer_gpt2_open(&gpt2) == ST_OK ? 0 : -1; }

static int close_gpt2(void **state)
{
    tokenizer_close(gpt2);
    tokenizer_close(NULL);
    return 0;
}

/* ---- golden cases: one JSON object a line, {"text":"…","ids":[…]} ---- */

static uint32_t hex4(const char *p)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v = v * 16 + (uint32_t)(p[i] <= '9' ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
    return v;
}

static size_t put_utf8(uint8_t *out, uint32_t c)
{
    if (c < 0x80)
        return out[0] = (uint8_t)c, 1;
    const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)((0xf00 >> n) | c);
    return (size_t)n;
}

/* The JSON string that begins behind the quote at p, with NUL and astral characters, which cJSON
 * cannot hold. */
static const char *json_text(const char *p, uint8_t *out, size_t *n_out)
{
    size_t n = 0;
    while (*p != '"') {
        if (*p != '\\') {
            out[n++] = (uint8_t)*p++;
            continue;
        }
        const char c = p[1];
        p += 2;
        if (c == 'u') {
            uint32_t code = hex4(p);
            p += 4;
            if (code >= 0xd800 && code < 0xdc00) {
                code = 0x10000 + ((code - 0xd800) << 10) + (hex4(p + 2) - 0xdc00);
                p += 6;
            }
            n += put_utf8(out + n, code);
            continue;
        }
        out[n++] = (uint8_t)(c == 'n'   ? '\n'
                             : c == 't' ? '\t'
                             : c == 'r' ? '\r'
                             : c == 'b' ? '\b'
                             : c == 'f' ? '\f'
                                        : c);
    }
    *n_out = n;
    return p + 1;
}

TEST(test_golden)
{
    char *file;
    size_t bytes;
    int cases = 0;
    static uint8_t text[1 << 16];
    static uint32_t ids[1 << 16];
    assert_int_equal(file_read("tests/golden/bpe_cases.jsonl", 1 << 24, &file, &bytes), ST_OK);
    for (char *line = file; *line != '\0'; cases++) {
        size_t n;
        const char *p = strstr(line, "\"text\":\"");
        assert_non_null(p);
        p = strchr(json_text(p + 8, text, &n), '[') + 1;
        const size_t got = encode(text, n, ids);
        for (size_t i = 0; i < got; i++) {
            uint32_t want = 0;
            while (*p >= '0' && *p <= '9')
                want = want * 10 + (uint32_t)(*p++ - '0');
            if (ids[i] != want)
                fail_msg("case %d, id %zu: %u, expected %u", cases + 1, i, ids[i], want);
            p += *p == ',';
        }
        if (*p != ']')
            fail_msg("case %d: only %zu ids", cases + 1, got);
        line = strchr(line, '\n') + 1;
    }
    assert_int_equal(cases, 331);
    free(file);
}

/* Made with tiktoken 0.14: `n` characters drawn from `alphabet` by the generator below, the number
 * of ids, FNV-1a of the ids. */
static const struct {
    const char *alphabet;
    int n, tokens;
    uint64_t sum;
} drawn[] = {
    {"a", 257, 65, 0x3e501a38b0d9a82d},
    {"a", 5000, 1250, 0xd9ec12d48652a295},
    {"a", 60000, 15000, 0x25f4ebc58bb05565},
    {"ab", 257, 100, 0x6c540ccc4a06f823},
    {"ab", 5000, 2063, 0x7518ad7fb8f08828},
    {"ab", 60000, 24795, 0x1f0216227355aeec},
    {"ha", 257, 118, 0xa0292a1f107ff489},
    {"ha", 5000, 2118, 0x71e424e475909064},
    {"ha", 60000, 25491, 0x088e178d3770c81d},
    {"abcdefghijklmnopqrstuvwxyz", 257, 150, 0x08b73bd8ef2aa6bb},
    {"abcdefghijklmnopqrstuvwxyz", 5000, 2996, 0x1e358fceabb46894},
    {"abcdefghijklmnopqrstuvwxyz", 60000, 35757, 0x99a3c27a1ac38197},
    {"etaoinshr", 257, 112, 0x581c07128e06486c},
    {"etaoinshr", 5000, 2242, 0x1fd7266df45d1f8f},
    {"etaoinshr", 60000, 26958, 0x279f10f2d8e11d8b},
    {"日本語の一是不", 257, 363, 0x92e639762cbbb3af},
    {"日本語の一是不", 5000, 7067, 0xa2b445d21c6483eb},
    {"日本語の一是不", 60000, 85719, 0x876e095620d8b3b0},
    {"é", 257, 257, 0x22e7f856c1beff95},
    {"é", 5000, 5000, 0xeece25dbf846fea5},
    {"é", 60000, 60000, 0xb97680fd1d4e2d25},
    {"01", 257, 92, 0x2cd0b7e5eeaefb5b},
    {"01", 5000, 1751, 0x3b98cf3528248415},
    {"01", 60000, 20963, 0xfe1df887c56184d5},
    {"=-", 257, 123, 0x0876eaeca42bc5bc},
    {"=-", 5000, 2134, 0x059539ccfa645cb8},
    {"=-", 60000, 25489, 0xff94ec760404fbc9},
    {" ", 257, 257, 0x6b192f6738e3dde1},
    {" ", 5000, 5000, 0x155eca28df8191a5},
    {" ", 60000, 60000, 0x44a6996eca17b125},
    {"\n ", 257, 211, 0xc79f1c01e388db6b},
    {"\n ", 5000, 4191, 0xf25e1dcc30f966d3},
    {"\n ", 60000, 50034, 0x2b97e1f6783d4dbf},
    {"'srel ", 257, 145, 0xd33c8186af5eb08f},
    {"'srel ", 5000, 2713, 0x797ad529dc89a07e},
    {"'srel ", 60000, 32550, 0x41e94a298ea8919c},
};

static size_t draw(const char *alphabet, int n, uint8_t *out)
{
    const char *letter[64];
    int letters = 0;
    size_t bytes = 0;
    uint64_t x = 12345;
    for (const char *p = alphabet; *p != '\0'; p++)
        if ((*p & 0xc0) != 0x80)
            letter[letters++] = p;
    letter[letters] = alphabet + strlen(alphabet);
    for (int i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const int k = (int)((x >> 33) % (uint64_t)letters);
        const size_t len = (size_t)(letter[k + 1] - letter[k]);
        memcpy(out + bytes, letter[k], len);
        bytes += len;
    }
    return bytes;
}

static int check_drawn(int n_max)
{
    static uint8_t text[1 << 18];
    static uint32_t ids[1 << 18];
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++) {
        if (drawn[i].n > n_max)
            continue;
        const size_t bytes = draw(drawn[i].alphabet, drawn[i].n, text),
                     n = encode(text, bytes, ids);
        uint64_t sum = 0xcbf29ce484222325u;
        for (size_t k = 0; k < n; k++) {
            sum = (sum ^ (ids[k] & 255)) * 0x100000001b3u;
            sum = (sum ^ (ids[k] >> 8)) * 0x100000001b3u;
        }
        if (n != (size_t)drawn[i].tokens || sum != drawn[i].sum) {
            print_message("# row %zu: %zu ids, expected %d\n", i, n, drawn[i].tokens);
            return 1;
        }
    }
    return 0;
}

TEST(test_long_words) { assert_int_equal(check_drawn(1 << 20), 0); }

TEST(test_memory_refused)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    HARNESS_SKIP("sanitizers need the address space that this test takes away");
#endif
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_AS, &none);
        void *kept = NULL; /* what malloc has left over */
        for (size_t n = 1 << 20; n > 64; n /= 2)
            for (void *p; (p = malloc(n)) != NULL; kept = p)
                *(void **)p = kept;
        static uint8_t text[5000];
        static uint32_t ids[5000];
        size_t n;
        memset(text, 'a', sizeof text);
        /* short words need no memory; what does is refused */
        const bool is_short = tokenizer_encode(gpt2, text, 64, true, ids, &n) == ST_OK;
        const enum status st = tokenizer_encode(gpt2, text, sizeof text, true, ids, &n);
        _exit(is_short && n < 100 && st == ST_RETRY ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(test_tinyshakespeare)
{
    const char *path = "../shared/data/tinyshakespeare.txt";
    char *text, command[1024], sum[65] = "";
    size_t bytes;
    if (!file_exists(path)) {
        print_message("# skipped: %s is not there\n", path);
        return;
    }
    assert_int_equal(file_read(path, 1 << 24, &text, &bytes), ST_OK);
    uint32_t *ids = malloc(bytes * sizeof *ids);
    const size_t n = encode(text, bytes, ids);
    assert_int_equal(n, 338025);
    text_format(command, sizeof command, "%s/ids", harness_tmpdir());
    uint16_t *narrow = (void *)ids; /* as the published checksum has them */
    for (size_t i = 0; i < n; i++)
        narrow[i] = (uint16_t)ids[i];
    assert_int_equal(file_replace(command, narrow, n * sizeof *narrow), ST_OK);
    text_format(command, sizeof command, "sha256sum %s/ids", harness_tmpdir());
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fread(sum, 1, 64, pipe), 64);
    pclose(pipe);
    assert_string_equal(sum, "25c01b32b32f41897a6359dd222ec114992dc30c357bcafbfe6c56672f76cd31");
    free(ids);
    free(text);
}

/* ---- any bytes ---- */

/* Text number `number`: raw bytes, or drawn from one of several alphabets. */
static size_t random_text(uint32_t number, uint8_t *out, size_t cap)
{
    static const char *const alphabets[] = {
        "abcdefghij ",
        " \n\t\r",
        "a'sdtmlrve '",
        "1234567890.,",
        "\xc2\xa0\xe3\x80\x80 a\n",
        "\xe6\x97\xa5\xe6\x9c\xac\xe3\x80\x82 \n",
        "aB9!' \n\xc3\xa9\xcc\x81",
        "\xf0\x9f\x98\x80 x",
        "\xc2\x85\xe2\x80\xa8 '",
        "the and ing ' s",
    };
    const uint64_t stream = RAND_STREAM(TEST, number);
    const size_t n = rand_u32(1, stream, 0) % cap, kind = rand_u32(1, stream, 1) % 12;
    for (size_t i = 0; i < n; i++) {
        const uint32_t r = rand_u32(1, stream, i + 2);
        const char *alphabet = alphabets[kind % 10];
        out[i] = kind >= 10 ? (uint8_t)r : (uint8_t)alphabet[r % strlen(alphabet)];
        /* mostly whole characters */
        if (kind < 10 && (alphabet[r % strlen(alphabet)] & 0xc0) == 0xc0)
            for (const char *p = alphabet + r % strlen(alphabet) + 1;
                 i + 1 < n && (*p & 0xc0) == 0x80; p++)
                out[++i] = (uint8_t)*p;
    }
    return n;
}

TEST(test_every_byte_comes_back)
{
    static uint8_t text[1024], back[1024];
    static uint32_t ids[1024];
    for (uint32_t number = 0; number < 5000; number++) {
        const size_t bytes = random_text(number, text, sizeof text), n = encode(text, bytes, ids);
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
            size_t len;
            const uint8_t *token = tokenizer_bytes(gpt2, ids[i], &len);
            assert_true(len > 0 && at + len <= bytes);
            memcpy(back + at, token, len);
            at += len;
        }
        assert_int_equal(at, bytes);
        assert_memory_equal(back, text, bytes);
    }
}

TEST(test_cuts_change_nothing)
{
    static uint8_t text[2048];
    static uint32_t whole[2048], chunks[2048];
    int cuts = 0;
    for (uint32_t number = 0; number < 5000; number++) {
        const size_t bytes = random_text(number, text, sizeof text),
                     want = encode(text, bytes, whole);
        size_t at = 0, n = 0;
        for (uint64_t i = 0; at < bytes; i++) {
            const size_t window = 1 + rand_u32(2, RAND_STREAM(TEST, number), i) % 200;
            const size_t seen = window < bytes - at ? window : bytes - at;
            size_t len = tokenizer_cut(gpt2, text + at, seen);
            assert_true(len <= seen);
            cuts += len > 0;
            if (len == 0)
                len = i % 3 == 2 ? bytes - at
                                 /* no place in the window: look further */
                                 : tokenizer_cut(gpt2, text + at, bytes - at);
            if (len == 0)
                len = bytes - at;
            n += encode(text + at, len, chunks + n);
            at += len;
        }
        if (n != want || memcmp(whole, chunks, n * sizeof *whole) != 0)
            fail_msg("text %u: other ids in chunks", number);
    }
    assert_true(cuts > 10000);
    assert_int_equal(tokenizer_cut(gpt2, "", 0), 0);
    assert_int_equal(tokenizer_cut(gpt2, "hello", 5), 0);
    assert_int_equal(tokenizer_cut(gpt2, "hello world", 11), 5);
    assert_int_equal(tokenizer_cut(gpt2, "it's", 4), 2);
    assert_int_equal(tokenizer_cut(gpt2, "\xe6\x97\xa5\xe6\x9c\xac\xe3\x80\x82\n", 10), 9);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LONG_BYTES 1000000
#else
#define LONG_BYTES 10000000
#endif

/* The limit is generous for a slow, shared machine: quadratic would take hours. */
TEST(test_no_text_takes_for_ever)
{
    enum { BYTES = LONG_BYTES };
    uint8_t *text = malloc(BYTES);
    uint32_t *ids = malloc(BYTES * sizeof *ids);
    const int64_t began_ms = clock_ms();
    memset(text, 'a', BYTES);
    /* "aaaa" is the longest */
    assert_int_equal(encode(text, BYTES, ids), BYTES / 4);
    memset(text, ' ', BYTES);
    assert_in_range(encode(text, BYTES, ids), 1, BYTES);
    for (int i = 0; i < BYTES; i++)
        text[i] = (uint8_t)('a' + rand_u32(3, RAND_STREAM(TEST, 0), (uint64_t)i) % 26);
    assert_in_range(encode(text, BYTES, ids), BYTES / 4, BYTES);
    assert_in_range(clock_ms() - began_ms, 0, harness_patience_ms(60000));
    free(text);
    free(ids);
}

TEST(test_vocabulary)
{
    size_t n;
    assert_memory_equal(tokenizer_bytes(gpt2, 0, &n), "!", 1);
    assert_int_equal(n, 1);
    assert_memory_equal(tokenizer_bytes(gpt2, 188, &n), "", 1);
    assert_int_equal(n, 1);
    assert_memory_equal(tokenizer_bytes(gpt2, 262, &n), " the", 4);
    assert_int_equal(n, 4);
    assert_memory_equal(tokenizer_bytes(gpt2, TOKENIZER_GPT2_END, &n), "<|endoftext|>", 13);
    assert_int_equal(n, 13);
    assert_null(tokenizer_bytes(gpt2, TOKENIZER_GPT2_VOCAB, &n));
    assert_null(tokenizer_bytes(gpt2, UINT32_MAX, &n));
    uint32_t none[1] = {77};
    assert_int_equal(encode("", 0, none), 0);
    assert_int_equal(none[0], 77);
}

HARNESS_RUN_ALL_WITH(open_gpt2, close_gpt2)
