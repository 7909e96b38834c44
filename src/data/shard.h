/* shard — one token file in llm.c's formats: 256 int32 header {20240520, 1, token count}, then
 * uint16 ids; or, as for Llama 3, {20240801, 7, token count}, then uint32 ids. Little-endian.
 *
 * Files written here also have, in header words that llm.c leaves 0 and ignores, a checksum and a
 * key that identifies their source. A checksum that is present is verified (shard_check).
 *
 * In the cache, records may follow the ids: the positions at which the records of JSON lines begin,
 * as uint32 from the next multiple of 4 bytes on, in rising order. llm.c refuses such files by
 * their size. It must not know text, caches or vocabularies. */
#ifndef CONVOY_DATA_SHARD_H
#define CONVOY_DATA_SHARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

#define SHARD_MAGIC 20240520
#define SHARD_MAGIC_WIDE 20240801 /* ids of 32 bits */
#define SHARD_HEADER_BYTES 1024
#define SHARD_TOKENS_MAX INT32_MAX /* the header counts in int32 */
#define SHARD_NARROW_VOCAB 65536   /* up to this vocabulary ids have 16 bits */

struct shard_key {
    uint64_t v[2]; /* XXH3-128 of the source of the ids; 0: unknown */
};

struct shard_info {
    int64_t tokens;
    int id_bytes; /* 2 or 4 */
    bool has_sum; /* only our own files have sum, key and records */
    uint64_t sum; /* XXH3-64 of all bytes after the header */
    struct shard_key key;
    int64_t records; /* 0: the file has none, and only its ids separate documents */
};

/* shard_parse — parses the header of a file of `size` bytes. bytes: at least the first min(size,
 * 1024). A pure function, external for tests; name is for messages. Fails ST_BAD_DATA: wrong
 * magic or version, or a count that does not match the size. */
enum status shard_parse(const uint8_t *bytes, size_t size, const char *name,
                        struct shard_info *out);

struct shard {
    struct file_map map;
    struct shard_info info;
    const void *ids;         /* info.tokens ids, until shard_close */
    const uint32_t *records; /* info.records positions of ids */
};

/* shard_open — maps the file and parses its header; does not read the ids. Zero-initialised is
 * valid and empty. */
enum status shard_open(const char *path, struct shard *out);
/* shard_close — unmaps the file; the struct is valid and empty afterwards. */
void shard_close(struct shard *shard);
/* shard_id — returns id i. */
uint32_t shard_id(const struct shard *shard, int64_t i);
/* shard_copy — copies the ids [first, first + n). */
void shard_copy(const struct shard *shard, int64_t first, int64_t n, uint32_t *out);
/* shard_width — returns the bytes of an id for a vocabulary of this size. */
int shard_width(int64_t vocab);

/* A pass over ids: their checksum, and the first id ≥ vocab. */
struct shard_facts {
    uint64_t sum;    /* XXH3-64 of the bytes */
    int64_t bad_i;   /* position of the first id ≥ vocab; -1: none */
    uint32_t bad_id; /* and that id */
};
struct shard_scan;
/* shard_scan_begin — begins a pass. End it with shard_scan_end. */
struct shard_scan *shard_scan_begin(int64_t vocab);
/* shard_scan_add — adds ids of id_bytes each to the pass. */
void shard_scan_add(struct shard_scan *scan, const void *ids, int id_bytes, int64_t n);
/* shard_scan_facts — returns the facts of the ids so far. */
struct shard_facts shard_scan_facts(const struct shard_scan *scan);
void shard_scan_end(struct shard_scan *scan); /* accepts NULL */

/* Reads the whole file and checks its checksum; keeps none of its pages in resident memory.
 * is_stopped: NULL, or set by another thread to end the call with ST_RETRY. Fails ST_BAD_DATA: the
 * checksum is wrong. */
enum status shard_check(const struct shard *shard, const char *path, const atomic_bool *is_stopped);

/* A token file being written: under a temporary name next to its path, then synced and renamed, so
 * that it exists complete or not at all. */
struct shard_writer;
/* shard_create — creates the file; id_bytes: 2 or 4. */
enum status shard_create(const char *path, int64_t vocab, int id_bytes, struct shard_writer **out);
/* shard_append — appends ids; every id fits in id_bytes. */
enum status shard_append(struct shard_writer *writer, const uint32_t *ids, int64_t n);
/* Notes that a record begins at this position, which may lie ahead of the ids so far. Positions
 * rise. */
void shard_begin_record(struct shard_writer *writer, int64_t token_i);
int64_t shard_written(const struct shard_writer *writer); /* tokens so far */
/* shard_commit — syncs and renames the file. Free the writer with shard_abandon. */
enum status shard_commit(struct shard_writer *writer, struct shard_key key);
/* shard_abandon — frees the writer and removes an uncommitted file. Accepts NULL. */
void shard_abandon(struct shard_writer *writer);

/* shard_writer_facts — returns the facts of the ids so far, for tests. */
struct shard_facts shard_writer_facts(const struct shard_writer *writer);

/* shard_checker — verifies the checksums of token files in the background, so that no start waits
 * until large data have been read.
 *
 * One thread of low priority reads the files one after the other. Several processes that check the
 * same files begin at different ones, and leave out files that another process has found to be
 * right (cache.h). It must not know the use of the ids. */

struct shard_checker_file {
    const struct shard *shard; /* borrowed until shard_checker_stop, like the path */
    const char *path;
};
struct shard_checker;
/* Starts the thread. The list is copied; cache_dir is as in cache_check. */
enum status shard_checker_start(const char *cache_dir, const struct shard_checker_file *files,
                                int64_t n, struct shard_checker **out);
/* Returns the failure that the thread has found (ST_BAD_DATA: a file is damaged), or ST_OK. Any
 * thread; accepts NULL. */
enum status shard_checker_found(const struct shard_checker *checker);
/* Stops the thread, within the time of reading a few MiB. Accepts NULL. */
void shard_checker_stop(struct shard_checker *checker);

#endif
