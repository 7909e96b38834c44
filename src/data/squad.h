/* squad — questions about paragraphs, as SQuAD v1.1 and v2.0 write them (JSON).
 *
 * An answer_start counts Unicode code points of the context; here it becomes bytes. An answer whose
 * text does not stand where its offset says is told about by the id of its question and used for
 * nothing; more than one question in ten like that and the file is refused. Must not know tokens
 * (squad_window.h cuts samples). Source: Rajpurkar et al. 2016 (v1.1), 2018 (v2.0). */
#ifndef CONVOY_DATA_SQUAD_H
#define CONVOY_DATA_SQUAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/data_file.h"

#define SQUAD_BYTES_MAX ((size_t)256 << 20) /* of one file; v2.0's training file has 42 MB */

struct squad_answer {
    const char *text; /* as the file gives it, UTF-8 */
    /* where it stands in the context; both -1: not where the file says */
    int64_t first_bytes, end_bytes;
};

struct squad_example {
    /* UTF-8, 0-terminated; of one paragraph the context is shared */
    const char *id, *question, *context;
    int64_t context_bytes;
    int64_t paragraph_i; /* counts contexts, from 0 */
    const struct squad_answer *answer;
    int64_t answers_n;  /* 0 when is_impossible */
    bool is_impossible; /* v2.0 says so, or there are no answers */
};

struct squad;
/* squad_parse — one document. A pure function; name is for messages. Fails ST_BAD_DATA: not JSON, a
 * field missing or of the wrong kind (named by its place), no questions, too many answers that do
 * not match. */
enum status squad_parse(const char *bytes, size_t n_bytes, const char *name, struct squad **out);
/* squad_open — every file that DATA names (data_file.h), in order, as one. */
enum status squad_open(const struct data_file_config *config, struct squad **out);
void squad_close(struct squad *squad); /* accepts NULL */
int64_t squad_examples(const struct squad *squad);
int64_t squad_paragraphs(const struct squad *squad);
/* squad_example — borrowed until squad_close. */
const struct squad_example *squad_example(const struct squad *squad, int64_t example_i);
/* squad_file — file file_i of those that squad_open read: where it lies, its size, and XXH3-64 of
 * its bytes. false: there are no more. */
bool squad_file(const struct squad *squad, int64_t file_i, const char **path_out,
                int64_t *bytes_out, uint64_t *sum_out);
/* questions none of whose answers stands in its place */
int64_t squad_mismatched(const struct squad *squad);

#endif
