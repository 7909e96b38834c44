/* squad — questions about paragraphs in the JSON format of SQuAD v1.1 and v2.0.
 *
 * An answer_start counts Unicode code points of the context; here it becomes bytes. A question
 * whose answer is not at its offset is logged with its id and not used. A file with more than
 * one such question in ten is refused. It must not know tokens (squad_window.h makes samples).
 * Sources: Rajpurkar et al. 2016 (v1.1), 2018 (v2.0). */
#ifndef CONVOY_DATA_SQUAD_H
#define CONVOY_DATA_SQUAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/data_file.h"

#define SQUAD_BYTES_MAX ((size_t)256 << 20) /* of one file; v2.0's training set has 42 MB */

struct squad_answer {
    const char *text; /* as in the file, UTF-8 */
    /* where it is in the context; both -1: not where the file says */
    int64_t first_bytes, end_bytes;
};

struct squad_example {
    /* UTF-8, 0-terminated; examples of one paragraph share its context */
    const char *id, *question, *context;
    int64_t context_bytes;
    int64_t paragraph_i; /* number of the context, from 0 */
    const struct squad_answer *answer;
    int64_t answers_n;  /* 0 when is_impossible */
    bool is_impossible; /* marked so in v2.0, or without answers */
};

struct squad;

/* squad_parse — parses one document. A pure function, external for tests; name is for messages.
 * Fails ST_BAD_DATA: not JSON, a field missing or of the wrong type (the message has its place),
 * no questions, or too many answers that do not match. */
enum status squad_parse(const char *bytes, size_t n_bytes, const char *name, struct squad **out);

/* squad_open — reads all files that DATA names (data_file.h), in order, as one set. */
enum status squad_open(const struct data_file_config *config, struct squad **out);
void squad_close(struct squad *squad); /* accepts NULL */
int64_t squad_examples(const struct squad *squad);
int64_t squad_paragraphs(const struct squad *squad);
/* squad_example — borrowed until squad_close. */
const struct squad_example *squad_example(const struct squad *squad, int64_t example_i);
/* squad_file — file file_i that squad_open has read: its path, size, and XXH3-64 of its bytes.
 * false: there are no more. */
bool squad_file(const struct squad *squad, int64_t file_i, const char **path_out,
                int64_t *bytes_out, uint64_t *sum_out);

/* squad_mismatched — for tests: questions of which no answer is at its offset. */
int64_t squad_mismatched(const struct squad *squad);

#endif
