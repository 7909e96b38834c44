/* megatron — Megatron-LM's indexed data: x.idx holds the division of the tokens of x.bin into
 * documents.
 *
 * x.idx, little-endian:
 *   - "MMIDIDX\0\0", u64 version 1, u8 type of an id, u64 sequences, u64 entries of the list;
 *   - for each sequence an i32 length in tokens, then for each an i64 offset in bytes in x.bin;
 *   - the document list: document d is the sequences [list[d], list[d+1]).
 *
 * x.bin has only the ids. Types read and written: uint16 (8), int32 (4). It must not know text,
 * caches or vocabularies. Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py. */
#ifndef CONVOY_DATA_MEGATRON_H
#define CONVOY_DATA_MEGATRON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

#define MEGATRON_MAGIC "MMIDIDX"
#define MEGATRON_HEADER_BYTES 34

enum megatron_type { MEGATRON_TYPE_I32 = 4, MEGATRON_TYPE_U16 = 8 };

struct megatron_info {
    enum megatron_type type;
    int64_t sequences, documents, tokens;
    const uint8_t *lengths, *offsets, *list; /* within the index; not aligned */
};

/* An index of more than MEGATRON_CHECKED entries is checked only at its ends when it is opened,
 * because the time to open data must not depend on their size; megatron_begin checks the other
 * entries when they are used. */
#define MEGATRON_CHECKED (1 << 18)
/* Parses an index of `size` bytes for a .bin of bin_bytes. The sequences fill the .bin one after
 * the other, and the document list increases from 0 to the last sequence. A pure function, external
 * for tests; name is for messages. Fails ST_BAD_DATA. */
enum status megatron_parse(const uint8_t *bytes, size_t size, int64_t bin_bytes, const char *name,
                           struct megatron_info *out);

struct megatron {
    struct file_map idx, bin;
    struct megatron_info info;
};
/* megatron_open — maps both files and checks the index. Zero-initialised is valid and empty. */
enum status megatron_open(const char *idx_path, const char *bin_path, struct megatron *out);
/* megatron_close — unmaps both files; the struct is valid and empty afterwards. */
void megatron_close(struct megatron *megatron);
/* Returns the offset of a sequence in the .bin, in bytes; external for tests. */
int64_t megatron_offset(const struct megatron_info *info, int64_t sequence_i);
/* Returns the tokens of a sequence; external for tests. */
int64_t megatron_length(const struct megatron_info *info, int64_t sequence_i);
/* Returns the first sequence of document_i ≤ documents; external for tests. */
int64_t megatron_first(const struct megatron_info *info, int64_t document_i);
/* Finds the first token of document_i ≤ documents. Fails ST_BAD_DATA: the entries of the index for
 * it contradict each other. */
enum status megatron_begin(const struct megatron_info *info, int64_t document_i, const char *name,
                           int64_t *token_i_out);

/* Two files being written: under temporary names next to their paths, then synced and renamed, the
 * index last. A document ends where the next record begins, and at the end; outside records it ends
 * with each <|endoftext|>, which belongs to it. */
struct megatron_writer;
/* megatron_create — creates both files. idx_path ends in ".idx"; the other is the same with ".bin".
 * end_id: <|endoftext|>. type: the type of an id; every id fits. */
enum status megatron_create(const char *idx_path, uint32_t end_id, enum megatron_type type,
                            struct megatron_writer **out);
/* Marks the beginning of a record at this position, or of ids without records, like
 * encode_sink.begin. */
enum status megatron_begin_record(struct megatron_writer *writer, int64_t token_i, bool is_record);
/* megatron_append — appends ids to the .bin. Fails ST_STORE if the file cannot be written. */
enum status megatron_append(struct megatron_writer *writer, const uint32_t *ids, int64_t n);
/* megatron_commit — ends the last document, writes the index, and gives both files their names,
 * durably. The caller then calls megatron_abandon, which frees the writer. */
enum status megatron_commit(struct megatron_writer *writer);
/* megatron_abandon — frees the writer and removes uncommitted files. Accepts NULL. */
void megatron_abandon(struct megatron_writer *writer);

#endif
