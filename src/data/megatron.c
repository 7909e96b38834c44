/* megatron — see megatron.h for the format. */
#include "data/megatron.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "index and ids are mapped as they are: little-endian");

static const uint8_t magic[9] = MEGATRON_MAGIC "\0";

static uint64_t read_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

int64_t megatron_offset(const struct megatron_info *info, int64_t sequence_i)
{
    return (int64_t)read_u64(info->offsets + 8 * sequence_i);
}

int64_t megatron_length(const struct megatron_info *info, int64_t sequence_i)
{
    int32_t v;
    memcpy(&v, info->lengths + 4 * sequence_i, sizeof v);
    return v;
}

int64_t megatron_first(const struct megatron_info *info, int64_t document_i)
{
    return (int64_t)read_u64(info->list + 8 * document_i);
}

static enum status fail_damaged(const char *name, const char *what, int64_t have, int64_t want)
{
    return FAIL(ST_BAD_DATA,
                "Megatron index %s is damaged: %s (%lld, limit %lld); copy or make it again", name,
                what, (long long)have, (long long)want);
}

static int width_of(enum megatron_type type) { return type == MEGATRON_TYPE_U16 ? 2 : 4; }

/* Checks sequence i, which follows `tokens` tokens. Megatron writes the sequences one after the
 * other without gaps, so a damaged length or offset, or a .bin of another data set, is detected. */
static enum status check_sequence(const struct megatron_info *info, int64_t i, int64_t tokens,
                                  int64_t most, const char *name)
{
    const int64_t bytes = width_of(info->type), n = megatron_length(info, i),
                  at = megatron_offset(info, i);
    if (n < 0 || n > most - tokens)
        return fail_damaged(name, "the lengths of its sequences do not fit its .bin", n,
                            most - tokens);
    if (at != tokens * bytes)
        return fail_damaged(
            name, "a sequence does not lie inside its .bin right after the sequence before it", at,
            tokens * bytes);
    return ST_OK;
}

/* Checks every sequence of a small index, and the last one of a large index. */
static enum status check_sequences(const struct megatron_info *info, int64_t bin_bytes,
                                   const char *name, int64_t *tokens_out)
{
    const int64_t bytes = width_of(info->type), most = bin_bytes / bytes;
    int64_t tokens = 0, i = 0;
    if (info->sequences > MEGATRON_CHECKED) {
        i = info->sequences - 1;
        tokens = megatron_offset(info, i) / bytes;
        if (tokens < 0 || tokens > most)
            return fail_damaged(name, "its last sequence does not lie inside its .bin", tokens,
                                most);
    }
    for (; i < info->sequences; i++) {
        TRY(check_sequence(info, i, tokens, most, name));
        tokens += megatron_length(info, i);
    }
    if (tokens * bytes != bin_bytes)
        return FAIL(ST_BAD_DATA,
                    "Megatron index %s counts %lld tokens, so %lld bytes are expected in its .bin, "
                    "but that has %lld; the two do not belong together, or one is damaged: copy or "
                    "make them again",
                    name, (long long)tokens, (long long)(tokens * bytes), (long long)bin_bytes);
    *tokens_out = tokens;
    return ST_OK;
}

static enum status check_list(const struct megatron_info *info, const char *name)
{
    const bool is_small = info->documents <= MEGATRON_CHECKED;
    for (int64_t d = 0; d <= (is_small ? info->documents : 0); d++) {
        const int64_t first = megatron_first(info, d),
                      least = d > 0 ? megatron_first(info, d - 1) : 0;
        if (first < least || first > info->sequences || (d == 0 && first != 0))
            return fail_damaged(name, "its document list does not ascend", first, info->sequences);
    }
    if (megatron_first(info, info->documents) != info->sequences)
        return fail_damaged(name, "its document list ends before its sequences",
                            megatron_first(info, info->documents), info->sequences);
    return ST_OK;
}

enum status megatron_parse(const uint8_t *bytes, size_t size, int64_t bin_bytes, const char *name,
                           struct megatron_info *out)
{
    if (size < sizeof magic || memcmp(bytes, magic, sizeof magic) != 0)
        return FAIL(ST_BAD_DATA,
                    "%s is not a Megatron index: it does not begin with MMIDIDX; check the path",
                    name);
    if (size < MEGATRON_HEADER_BYTES)
        return FAIL(ST_BAD_DATA,
                    "Megatron index %s is cut off: it has %zu bytes, but a header has %d; copy or "
                    "make it again",
                    name, size, MEGATRON_HEADER_BYTES);
    if (read_u64(bytes + 9) != 1)
        return FAIL(ST_BAD_DATA, "Megatron index %s has version %llu, expected 1; make it again",
                    name, (unsigned long long)read_u64(bytes + 9));
    if (bytes[17] != MEGATRON_TYPE_U16 && bytes[17] != MEGATRON_TYPE_I32)
        return FAIL(
            ST_BAD_DATA,
            "Megatron index %s has ids of type %d; only 8 (uint16) and 4 (int32) are supported",
            name, bytes[17]);
    const uint64_t sequences = read_u64(bytes + 18), entries = read_u64(bytes + 26),
                   rest = size - MEGATRON_HEADER_BYTES;
    if (entries < 1)
        return fail_damaged(name, "its document list is empty", (int64_t)entries, 1);
    if (sequences > rest / 12 || entries > rest / 8 || 12 * sequences + 8 * entries > rest)
        return FAIL(ST_BAD_DATA,
                    "Megatron index %s is cut off or damaged: its %zu bytes cannot hold %llu "
                    "sequences and a list of %llu documents; copy or make it again",
                    name, size, (unsigned long long)sequences, (unsigned long long)entries);
    /* with a mode byte for each sequence */
    if (12 * sequences + 8 * entries != rest && 13 * sequences + 8 * entries != rest)
        return FAIL(ST_BAD_DATA,
                    "Megatron index %s is damaged: %llu sequences and %llu document entries need "
                    "%llu bytes, but it has %zu; copy or make it again",
                    name, (unsigned long long)sequences, (unsigned long long)entries,
                    (unsigned long long)(MEGATRON_HEADER_BYTES + 12 * sequences + 8 * entries),
                    size);
    struct megatron_info info = {.type = (enum megatron_type)bytes[17],
                                 .sequences = (int64_t)sequences,
                                 .documents = (int64_t)entries - 1,
                                 .lengths = bytes + MEGATRON_HEADER_BYTES};
    info.offsets = info.lengths + 4 * sequences;
    info.list = info.offsets + 8 * sequences;
    TRY(check_sequences(&info, bin_bytes, name, &info.tokens));
    TRY(check_list(&info, name));
    *out = info;
    return ST_OK;
}

enum status megatron_begin(const struct megatron_info *info, int64_t document_i, const char *name,
                           int64_t *token_i_out)
{
    const int64_t first = megatron_first(info, document_i), bytes = width_of(info->type),
                  least = document_i > 0 ? megatron_first(info, document_i - 1) : 0;
    if (first < least || least < 0 || first > info->sequences)
        return fail_damaged(name, "its document list does not ascend", first, info->sequences);
    *token_i_out = info->tokens;
    if (first == info->sequences)
        return ST_OK;
    *token_i_out = megatron_offset(info, first) / bytes;
    if (first == 0)
        return check_sequence(info, 0, 0, info->tokens, name);
    const int64_t before = megatron_offset(info, first - 1) / bytes;
    if (before < 0 || before > info->tokens)
        return fail_damaged(name, "a sequence does not lie inside its .bin", before, info->tokens);
    TRY(check_sequence(info, first - 1, before, info->tokens, name));
    return check_sequence(info, first, before + megatron_length(info, first - 1), info->tokens,
                          name);
}

enum status megatron_open(const char *idx_path, const char *bin_path, struct megatron *out)
{
    struct megatron megatron = {0};
    enum status st;
    TRY(file_map_open(idx_path, &megatron.idx));
    TRY_OR(file_map_open(bin_path, &megatron.bin), out_close);
    TRY_OR(megatron_parse(megatron.idx.data, megatron.idx.bytes, (int64_t)megatron.bin.bytes,
                          idx_path, &megatron.info),
           out_close);
    *out = megatron;
    return ST_OK;
out_close:
    megatron_close(&megatron);
    return st;
}

void megatron_close(struct megatron *megatron)
{
    file_map_close(&megatron->idx);
    file_map_close(&megatron->bin);
    *megatron = (struct megatron){0};
}

/* ---- writing ---- */

/* One of the two files. */
struct megatron_file {
    int fd; /* -1: not open */
    bool is_committed;
    char path[FILE_PATH_MAX], tmp_path[FILE_PATH_MAX];
};

struct megatron_writer {
    struct megatron_file idx, bin;
    uint32_t end_id;
    enum megatron_type type;
    int64_t tokens;
    int64_t begun;   /* first token of the current document */
    bool is_records; /* the ids so far end with a record, in which an end of text ends nothing */
    int32_t *length;
    int64_t documents;
    size_t documents_cap;
};

static enum status create_file(struct megatron_file *file, const char *path)
{
    if (!text_copy(file->path, sizeof file->path, path) ||
        !text_format(file->tmp_path, sizeof file->tmp_path, "%s.%ld-%llx.tmp", path, (long)getpid(),
                     (unsigned long long)clock_ns()))
        return FAIL(ST_BAD_SETTING, "the path %.80s… is over %d bytes long; choose a shorter one",
                    path, FILE_PATH_MAX - 40);
    file->fd = open(file->tmp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file->fd < 0)
        return FAIL(ST_STORE, "cannot create %s: %s; check that the folder is there and writable",
                    path, strerror(errno));
    return ST_OK;
}

static void abandon_file(struct megatron_file *file)
{
    if (file->fd < 0)
        return;
    close(file->fd);
    if (!file->is_committed)
        unlink(file->tmp_path);
}

enum status megatron_create(const char *idx_path, uint32_t end_id, enum megatron_type type,
                            struct megatron_writer **out)
{
    char bin_path[FILE_PATH_MAX];
    enum status st;
    ASSERTF(text_ends(idx_path, ".idx"), "%s", idx_path);
    struct megatron_writer *writer = memory_new(1, sizeof *writer);
    writer->idx.fd = writer->bin.fd = -1;
    writer->end_id = end_id;
    writer->type = type;
    text_format(bin_path, sizeof bin_path, "%.*s.bin", (int)strlen(idx_path) - 4, idx_path);
    TRY_OR(file_check_target(idx_path), out_abandon);
    TRY_OR(file_check_target(bin_path), out_abandon);
    TRY_OR(create_file(&writer->idx, idx_path), out_abandon);
    TRY_OR(create_file(&writer->bin, bin_path), out_abandon);
    *out = writer;
    return ST_OK;
out_abandon:
    megatron_abandon(writer);
    return st;
}

/* Lists and ids are written a chunk at a time. */
enum { MEGATRON_CHUNK = 4096 };

/* Ends the current document before token_i, unless it has no tokens. */
static enum status end_document(struct megatron_writer *writer, int64_t token_i)
{
    const int64_t tokens = token_i - writer->begun;
    if (tokens == 0)
        return ST_OK;
    if (tokens > INT32_MAX)
        return FAIL(
            ST_BAD_DATA,
            "%s: a document has %lld tokens, but Megatron's index counts at most %d; split it",
            writer->idx.path, (long long)tokens, INT32_MAX);
    writer->length = memory_grow(writer->length, (size_t)writer->documents, &writer->documents_cap,
                                 sizeof *writer->length);
    writer->length[writer->documents++] = (int32_t)tokens;
    writer->begun = token_i;
    return ST_OK;
}

enum status megatron_begin_record(struct megatron_writer *writer, int64_t token_i, bool is_record)
{
    if (is_record || writer->is_records)
        TRY(end_document(writer, token_i));
    writer->is_records = is_record;
    return ST_OK;
}

enum status megatron_append(struct megatron_writer *writer, const uint32_t *ids, int64_t n)
{
    for (int64_t at = 0, k; at < n; at += k) {
        k = n - at < MEGATRON_CHUNK ? n - at : MEGATRON_CHUNK;
        /* A few ids, in the form of the file. */
        const uint32_t *from = ids + at;
        const int width = width_of(writer->type);
        uint16_t narrow[MEGATRON_CHUNK];
        for (int64_t i = 0; width == 2 && i < k; i++)
            narrow[i] = (uint16_t)from[i];
        TRY(file_write_at(writer->bin.fd, writer->bin.tmp_path,
                          width == 2 ? (const void *)narrow : from, (size_t)(k * width),
                          width * writer->tokens));
        writer->tokens += k;
    }
    for (int64_t i = 0; !writer->is_records && i < n; i++)
        if (ids[i] == writer->end_id)
            TRY(end_document(writer, writer->tokens - n + i + 1));
    return ST_OK;
}

/* Writes value d of the offsets (in bytes), then of the document list (a document is one sequence,
 * so it counts up). */
static enum status write_list(const struct megatron_writer *writer, bool is_offsets)
{
    int64_t chunk[MEGATRON_CHUNK], offset = 0;
    const int64_t documents = writer->documents, n = is_offsets ? documents : documents + 1;
    int64_t at = MEGATRON_HEADER_BYTES + (is_offsets ? 4 : 12) * documents;
    for (int64_t done = 0, k; done < n; done += k, at += 8 * k) {
        k = n - done < MEGATRON_CHUNK ? n - done : MEGATRON_CHUNK;
        for (int64_t i = 0; i < k; i++) {
            chunk[i] = is_offsets ? offset : done + i;
            if (is_offsets)
                offset += width_of(writer->type) * (int64_t)writer->length[done + i];
        }
        TRY(file_write_at(writer->idx.fd, writer->idx.tmp_path, chunk, 8 * (size_t)k, at));
    }
    return ST_OK;
}

static enum status commit_fail(const struct megatron_file *file)
{
    return FAIL(ST_STORE, "cannot finish %s: %s; check the disk", file->path, strerror(errno));
}

/* Renames both files. An older index is removed first, so that an index is never next to ids of
 * another one. */
static enum status commit_files(struct megatron_file *bin, struct megatron_file *idx)
{
    if (fsync(bin->fd) != 0)
        return commit_fail(bin);
    if (fsync(idx->fd) != 0 || (unlink(idx->path) != 0 && errno != ENOENT))
        return commit_fail(idx);
    if (rename(bin->tmp_path, bin->path) != 0)
        return commit_fail(bin);
    bin->is_committed = true;
    if (rename(idx->tmp_path, idx->path) != 0)
        return commit_fail(idx);
    idx->is_committed = true;
    return ST_OK;
}

enum status megatron_commit(struct megatron_writer *writer)
{
    char dir[FILE_PATH_MAX];
    TRY(end_document(writer, writer->tokens));
    TRY(file_write_at(writer->idx.fd, writer->idx.tmp_path, writer->length,
                      4 * (size_t)writer->documents, MEGATRON_HEADER_BYTES));
    TRY(write_list(writer, true));
    TRY(write_list(writer, false));
    uint8_t header[MEGATRON_HEADER_BYTES] = {0};
    const uint64_t version = 1, sequences = (uint64_t)writer->documents, entries = sequences + 1;
    memcpy(header, magic, sizeof magic);
    memcpy(header + 9, &version, 8);
    header[17] = (uint8_t)writer->type;
    memcpy(header + 18, &sequences, 8);
    memcpy(header + 26, &entries, 8);
    TRY(file_write_at(writer->idx.fd, writer->idx.tmp_path, header, sizeof header, 0));
    TRY(commit_files(&writer->bin, &writer->idx));
    text_copy(dir, sizeof dir, writer->idx.path);
    char *slash = strrchr(dir, '/');
    if (slash != NULL)
        slash[slash == dir ? 1 : 0] = '\0';
    return file_sync_dir(slash != NULL ? dir : ".");
}

void megatron_abandon(struct megatron_writer *writer)
{
    if (writer == NULL)
        return;
    abandon_file(&writer->idx);
    abandon_file(&writer->bin);
    free(writer->length);
    free(writer);
}

#ifdef FUZZ
/* Two bytes of the size of the .bin, then the index; an accepted one can be traversed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct megatron_info info;
    if (size < 2)
        return 0;
    const int64_t bin_bytes = data[0] | data[1] << 8;
    if (megatron_parse(data + 2, size - 2, bin_bytes, "fuzz", &info) != ST_OK)
        return 0;
    int64_t tokens = 0;
    for (int64_t d = 0; d < info.documents; d++)
        for (int64_t s = megatron_first(&info, d); s < megatron_first(&info, d + 1); s++) {
            const int64_t bytes =
                megatron_length(&info, s) * (info.type == MEGATRON_TYPE_U16 ? 2 : 4);
            ASSERT(bytes >= 0 && megatron_offset(&info, s) >= 0 &&
                   megatron_offset(&info, s) + bytes <= bin_bytes);
            tokens += megatron_length(&info, s);
        }
    ASSERT(tokens == info.tokens);
    return 0;
}
#endif
