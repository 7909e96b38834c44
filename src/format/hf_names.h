/* hf_names — the names of parameters in Hugging Face's files, by architecture. Must not know
 * shapes. */
#ifndef CONVOY_FORMAT_HF_NAMES_H
#define CONVOY_FORMAT_HF_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "format/hf.h"

struct hf_names {
    const char *title;                          /* for messages */
    const char *prefix;                         /* before all names but the head's */
    const char *layer;                          /* before a layer's number: "h." */
    const char *embedding;                      /* the token embedding */
    const char *head;                           /* the output layer */
    const char *layers_key;                     /* key of the number of layers in config.json */
    const char *const *single, *const *layered; /* the other names, up to NULL */
};

/* hf_names_of — returns the names of an architecture; valid as long as the program. */
const struct hf_names *hf_names_of(enum hf_arch arch);
/* hf_names_has — returns true if a name without prefix is a parameter, or a buffer that is computed
 * anew. */
bool hf_names_has(const struct hf_names *names, const char *name);
/* hf_names_layer — returns the number in "h.<number>.<anything>"; -1: another kind of name. Numbers
 * over 2^31 are treated alike. */
int64_t hf_names_layer(const struct hf_names *names, const char *name);
/* hf_names_full — writes the name with prefix, if one belongs to it; false: cut. */
bool hf_names_full(const struct hf_names *names, const char *name, char *out, size_t cap);

#endif
