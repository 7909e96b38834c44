/* Damaged data files: cuts at every byte, flipped bits and worse. No reader crashes, and none takes
 * a damaged file for a good one.
 *
 * What "damaged" means depends on what a format can show:
 *   token file of ours, cached shard  any byte, for there is a checksum; but words of the header
 *                                     that no reader uses
 *   token file of llm.c               length and header; an id is as good as any other below the
 *                                     vocabulary
 *   Megatron                          every byte of the index but where documents part; the .bin by
 *                                     its length
 *   JSON lines                        what makes a line no JSON object with a text: marks, keys,
 *                                     escapes, UTF-8, an end before the line's; another letter in a
 *                                     text is a text
 *   zstd                              any byte: frames carry a checksum, as the zstd command's do
 *
 * SQuAD's JSON has test_squad_damage, models of others test_model_damage, checkpoints
 * test_ckpt_damage. */
#include "fault/damage.h"

#include <dirent.h>

#include <zstd.h>

#include "data/megatron.h"
#include "data/shard.h"

/* ---- token files ---- */

static void write_shard(const char *name, int n)
{
    struct shard_writer *writer;
    uint32_t ids[IDS_MAX];
    for (int i = 0; i < n; i++)
        ids[i] = (uint32_t)draw(1000000 + (uint64_t)n, (uint64_t)i, TOKENIZER_GPT2_VOCAB);
    assert_int_equal(shard_create(in(name), TOKENIZER_GPT2_VOCAB, 2, &writer), ST_OK);
    assert_int_equal(shard_append(writer, ids, n), ST_OK);
    assert_int_equal(shard_commit(writer, (struct shard_key){{1, 2}}), ST_OK);
    shard_abandon(writer);
}

TEST(test_token_file)
{
    size_t n, n_other;
    write_shard("a.bin", 300);
    write_shard("b.bin", 301);
    uint8_t *good = get("a.bin", &n), *other = get("b.bin", &n_other);
    assert_int_equal(read_data("a.bin", &want), ST_OK);
    for (size_t cut = 1; cut < n; cut += cut < SHARD_HEADER_BYTES ? 7 : 1) {
        put("a.bin", good, cut);
        must_refuse(read_data("a.bin", &have), "token file cut", (int64_t)cut);
    }
    for (uint64_t injury = 0; injury < 3000; injury++) {
        const size_t from = injury % 2 ? SHARD_HEADER_BYTES : 0, to = injury % 2 ? n : 64;
        memcpy(copy, good, n);
        injure(injury, copy + from, to - from);
        put("a.bin", copy, n);
        const bool is_refused = judge(read_data("a.bin", &have), "token file", (int64_t)injury);
        assert_true(is_refused || from == 0 || memcmp(copy, good, n) == 0);
    }
    memcpy(copy, good, SHARD_HEADER_BYTES); /* the head of one, the ids of the other */
    memcpy(copy + SHARD_HEADER_BYTES, other + SHARD_HEADER_BYTES, n - SHARD_HEADER_BYTES);
    put("a.bin", copy, n);
    must_refuse(read_data("a.bin", &have), "swapped ids", 0);
    free(good), free(other);
    tell("token files with a checksum");
}

TEST(test_llmc_file)
{
    enum { N = 200, BYTES = SHARD_HEADER_BYTES + 2 * N };
    static uint8_t good[BYTES];
    const int32_t head[] = {SHARD_MAGIC, 1, N};
    memcpy(good, head, sizeof head);
    for (int i = 0; i < N; i++)
        memcpy(good + SHARD_HEADER_BYTES + 2 * i, &(uint16_t){(uint16_t)(i * 251)}, 2);
    put("l.bin", good, BYTES);
    assert_int_equal(read_data("l.bin", &want), ST_OK);
    for (size_t cut = 1; cut < BYTES; cut += 3) {
        put("l.bin", good, cut);
        must_refuse(read_data("l.bin", &have), "llm.c file cut", (int64_t)cut);
    }
    for (int bit = 0; bit < 96; bit++) {
        memcpy(copy, good, BYTES);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        put("l.bin", copy, BYTES);
        must_refuse(read_data("l.bin", &have), "llm.c header bit", bit);
    }
    memcpy(copy, good, BYTES);
    memset(copy + BYTES - 8, 0xff, 2); /* no such id */
    put("l.bin", copy, BYTES);
    must_refuse(read_data("l.bin", &have), "id beyond the vocabulary", 0);
    tell("token files of llm.c");
}

/* ---- the cache: what is damaged there is seen, and made again from the text ---- */

static bool find_cached(const char *suffix, char out[FILE_PATH_MAX])
{
    DIR *handle = opendir(in("cache/tokens"));
    bool is_found = false;
    assert_non_null(handle);
    for (struct dirent *entry; (entry = readdir(handle)) != NULL;)
        if (text_ends(entry->d_name, suffix)) {
            text_format(out, FILE_PATH_MAX, "cache/tokens/%s", entry->d_name);
            is_found = true;
        }
    closedir(handle);
    return is_found;
}

TEST(test_cached_shard)
{
    enum { INJURIES = 120 };
    static char text[3000], shard[FILE_PATH_MAX], memo[FILE_PATH_MAX];
    size_t n, memo_n, now_n;
    int healed_n = 0;
    assert_int_equal(file_remove_tree(in("cache")), ST_OK);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "abcdefgh \n"[draw(2000000, i, 10)];
    put("t.txt", text, sizeof text);
    /* until then the file counts as still being written, and its key is not kept */
    clock_sleep_ms(2100);
    assert_int_equal(read_data("t.txt", &want), ST_OK);
    assert_true(find_cached(".bin", shard) && find_cached(".key", memo));
    uint8_t *good = get(shard, &n), *key = get(memo, &memo_n);
    for (uint64_t injury = 0; injury < INJURIES; injury++) {
        const bool in_memo = injury % 5 == 0, in_head = injury % 5 == 1, is_cut = injury % 5 == 2;
        const size_t whole = in_memo ? memo_n : n, left = is_cut ? draw(injury, 7, whole) : whole;
        memcpy(copy, in_memo ? key : good, whole);
        injure(injury, copy, in_head ? 36 : whole);
        put(in_memo ? memo : shard, copy, left);
        assert_int_equal(read_data("t.txt", &have), ST_OK);
        assert_true(is_same());
        uint8_t *now = get(in_memo ? memo : shard, &now_n);
        const bool is_hurt = left != whole || memcmp(copy, in_memo ? key : good, whole) != 0;
        const bool is_healed = now_n == whole && memcmp(now, in_memo ? key : good, whole) == 0;
        free(now);
        if (!is_healed) { /* only where nobody reads: words of the header that are 0 */
            assert_true(!in_memo && left == n && memcmp(copy, good, 36) == 0 &&
                        memcmp(copy + SHARD_HEADER_BYTES, good + SHARD_HEADER_BYTES,
                               n - SHARD_HEADER_BYTES) == 0);
            put(shard, good, n);
        }
        healed_n += is_hurt && is_healed;
    }
    free(good), free(key);
    refused_n = healed_n;
    assert_true(healed_n >= INJURIES / 2);
    tell("cached shards, made again");
}

/* ---- Megatron ---- */

/* Both with and without the index of documents. */
static enum status read_pair(struct content *out)
{
    const struct corpus_config config = {.data = in("m.idx"), .vocab = TOKENIZER_GPT2_VOCAB};
    int64_t tokens;
    out->n = 0;
    TRY(corpus_visit(&config, append, out, &tokens));
    return read_data("m.idx", out);
}

static void write_pair(const char *name, int n)
{
    struct megatron_writer *writer;
    uint32_t ids[IDS_MAX];
    for (int i = 0; i < n; i++)
        ids[i] = i % 17 == 16 ? TOKENIZER_GPT2_END : (uint32_t)draw(3000000, (uint64_t)i, 50000);
    assert_int_equal(megatron_create(in(name), TOKENIZER_GPT2_END, MEGATRON_TYPE_U16, &writer),
                     ST_OK);
    assert_int_equal(megatron_append(writer, ids, n), ST_OK);
    assert_int_equal(megatron_commit(writer), ST_OK);
    megatron_abandon(writer);
}

TEST(test_megatron)
{
    size_t idx_n, bin_n, other_n;
    write_pair("m.idx", 200);
    write_pair("o.idx", 202);
    uint8_t *idx = get("m.idx", &idx_n), *bin = get("m.bin", &bin_n),
            *other = get("o.bin", &other_n);
    assert_int_equal(read_pair(&want), ST_OK);
    for (size_t cut = 1; cut < idx_n; cut++) {
        put("m.idx", idx, cut);
        must_refuse(read_pair(&have), "index cut", (int64_t)cut);
    }
    for (uint64_t injury = 0; injury < 2000; injury++) {
        memcpy(copy, idx, idx_n);
        injure(injury, copy, idx_n);
        put("m.idx", copy, idx_n);
        judge(read_pair(&have), "index", (int64_t)injury);
    }
    put("m.idx", idx, idx_n);
    for (size_t cut = 1; cut < bin_n; cut += 3) {
        put("m.bin", bin, cut);
        must_refuse(read_pair(&have), ".bin cut", (int64_t)cut);
    }
    put("m.bin", other, other_n);
    must_refuse(read_pair(&have), "the .bin of another index", 0);
    free(idx), free(bin), free(other);
    tell("Megatron");
}

/* ---- JSON lines ---- */

static const char lines[] =
    "{\"id\":1,\"text\":\"Hello, world!\"}\n"
    "{\"meta\":{\"a\":[1,2.5e3,null,true]},\"text\":\"tab\\t quote \\\" pair \\ud83d\\ude00\"}\n"
    "\n"
    "  { \"text\" : \"na\xc3\xafve caf\xc3\xa9\", \"lang\" : \"fr\" }\n"
    "{\"text\":\"the last one\",\"score\":-0.5}\n";

static enum status read_lines(const void *bytes, size_t n)
{
    put("a.jsonl", bytes, n);
    return read_text("a.jsonl", DATA_FILE_KIND_JSONL, false, &have);
}

TEST(test_jsonl)
{
    static uint8_t mark[sizeof lines];
    const size_t n = sizeof lines - 1;
    assert_int_equal(read_lines(lines, n), ST_OK);
    want = have;
    for (size_t cut = 1; cut < n; cut++) {
        const enum status st = read_lines(lines, cut);
        const char *line = memrchr(lines, '\n', cut); /* what is left of the last line */
        line = line != NULL ? line + 1 : lines;
        const size_t left = (size_t)(lines + cut - line);
        const bool is_line_end = strspn(line, " ") >= left || lines[cut] == '\n';
        assert_true(st == ST_BAD_DATA || (st == ST_OK && is_line_end && have.n <= want.n));
        refused_n += st != ST_OK;
    }
    mark_strings(lines, n, mark);
    for (uint64_t injury = 0; injury < 3000; injury++) {
        size_t at = draw(injury, 0, n);
        while (mark[at] == 2 && lines[at - 1] == '\\') /* another escape is another letter */
            at++;
        const uint8_t inside[] = {'"', 0, '\n', 0x1f, 0x80, 0xff, 0xc3, 0xed};
        const uint64_t kinds = (uint8_t)lines[at] < 0x80 ? sizeof inside : 4; /* é may become à */
        memcpy(copy, lines, n);
        copy[at] = mark[at] == 2 ? inside[draw(injury, 1, kinds)] : (uint8_t)draw(injury, 1, 256);
        judge(read_lines(copy, n), "JSON lines", (int64_t)injury);
    }
    tell("JSON lines");
}

/* What a look at single bytes would hardly find. */
TEST(test_jsonl_kinds)
{
    static const char *const bad[] = {"{\"text\":\"a\",\"text\":\"b\"}",
                                      "{\"text\":\"a\",\"te\\u0078t\":\"b\"}",
                                      "{\"text\":7}",
                                      "{\"text\":null}",
                                      "{\"text\":[\"a\"]}",
                                      "{\"Text\":\"a\"}",
                                      "{}",
                                      "[]",
                                      "\"text\"",
                                      "{\"text\":\"a\"}{\"text\":\"b\"}",
                                      "{\"text\":\"a\"},",
                                      "{\"text\":\"a\",}",
                                      "{\"text\" \"a\"}",
                                      "{text:\"a\"}",
                                      "{'text':'a'}",
                                      "{\"text\":\"\\x41\"}",
                                      "{\"text\":\"\\u12\"}",
                                      "{\"text\":\"\\\"}",
                                      "{\"text\":\"a\",\"n\":01}",
                                      "{\"text\":\"a\",\"n\":1.}",
                                      "{\"text\":\"a\",\"n\":nan}",
                                      "{\"text\":\"a\",\"n\":tru}",
                                      "{\"text\":\"\xc0\x80\"}",
                                      "{\"text\":\"\xed\xa0\x80\"}",
                                      "{\"text\":\"\xf5\x80\x80\x80\"}",
                                      "\xef\xbb{\"text\":\"a\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        must_refuse(read_lines(bad[i], strlen(bad[i])), bad[i], (int64_t)i);
    char deep[400] = "{\"text\":\"a\",\"n\":";
    size_t n = strlen(deep);
    memset(deep + n, '[', 70), memset(deep + n + 70, ']', 70);
    memcpy(deep + n + 140, "}", 2);
    must_refuse(read_lines(deep, n + 141), "nested 70 deep", 70);
    tell("JSON lines by kind");
}

TEST(test_packed)
{
    static uint8_t good[4096], text[4 * sizeof lines];
    size_t text_n = 0;
    for (int i = 0; i < 4; i++, text_n += sizeof lines - 1)
        memcpy(text + text_n, lines, sizeof lines - 1);
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
    const size_t n = ZSTD_compress2(zstd, good, sizeof good, text, text_n);
    ZSTD_freeCCtx(zstd);
    assert_false(ZSTD_isError(n));
    put("p.jsonl.zst", good, n);
    assert_int_equal(read_text("p.jsonl.zst", DATA_FILE_KIND_JSONL, true, &want), ST_OK);
    for (size_t cut = 1; cut < n; cut++) {
        put("p.jsonl.zst", good, cut);
        must_refuse(read_text("p.jsonl.zst", DATA_FILE_KIND_JSONL, true, &have), "packed file cut",
                    (int64_t)cut);
    }
    for (size_t bit = 0; bit < 8 * n; bit++) {
        memcpy(copy, good, n);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        put("p.jsonl.zst", copy, n);
        judge(read_text("p.jsonl.zst", DATA_FILE_KIND_JSONL, true, &have), "packed bit",
              (int64_t)bit);
    }
    assert_true(same_n < 64); /* bits of the frame's header that mean nothing for the content */
    memcpy(copy, good, n);
    memcpy(copy + n, "tail", 4);
    put("p.jsonl.zst", copy, n + 4);
    must_refuse(read_text("p.jsonl.zst", DATA_FILE_KIND_JSONL, true, &have),
                "something behind the frame", 0);
    tell("packed JSON lines");
}

int main(void) { return harness_run_all(__FILE__, setup, teardown); }
