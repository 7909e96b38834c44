/* normal — a list of steps that normalise texts, as tokenizer.json describes them.
 *
 * Bytes that are not UTF-8 stay, but in a text with such bytes patterns find nothing. It must not
 * know tokens. Source: Hugging Face's tokenizers 0.23, src/normalizers. */
#ifndef CONVOY_DATA_NORMAL_H
#define CONVOY_DATA_NORMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/encode_watch.h"
#include "data/tokenizer/normal_text.h"
#include "data/tokenizer/pattern.h"

#define NORMAL_STEPS_MAX 16
#define NORMAL_GROWTH_MAX 64 /* times the length of a text */

enum normal_kind {
    NORMAL_FORM,
    NORMAL_LOWERCASE,
    NORMAL_STRIP,   /* white space at the ends */
    NORMAL_ACCENTS, /* marks are left out */
    NORMAL_REPLACE,
    NORMAL_PREPEND
};
struct normal_step {
    enum normal_kind kind;
    enum normal_form form;
    bool left, right;        /* strip */
    struct pattern *pattern; /* replace; the list owns it */
    const char *content;     /* replace, prepend */
};

struct normal;
struct normal *normal_new(void);
void normal_close(struct normal *normal); /* accepts NULL */
/* normal_add — appends a step, at most NORMAL_STEPS_MAX. */
void normal_add(struct normal *normal, const struct normal_step *step);
/* normal_is_nfc — returns true if the only step is NFC. */
bool normal_is_nfc(const struct normal *normal);
/* normal_most — returns the most bytes of the normal forms of segments of n bytes in all. */
size_t normal_most(const struct normal *normal, size_t n);
/* normal_identity — returns a hash of the steps. */
uint64_t normal_identity(const struct normal *normal);
/* normal_has_edges — returns true if a text may be cut after any ASCII letter and before a space or
 * a line feed. */
bool normal_has_edges(const struct normal *normal);

/* The memory of one thread. */
struct normal_work;
/* normal_work_new — begins the normalisation of n_bytes of texts in all. */
struct normal_work *normal_work_new(const struct normal *normal, const struct encode_watch *watch,
                                    size_t n_bytes);
void normal_work_free(struct normal_work *work); /* accepts NULL */
/* normal_run — replaces the text by its normal form, which stays valid until the next call.
 * is_begin: its beginning is the place for NORMAL_PREPEND. Fails ST_RETRY, and as pattern_next. */
enum status normal_run(struct normal_work *work, bool is_begin, const uint8_t **text, size_t *n);

#endif
