/* config_diff — compares two JSON objects of settings and reports each key that differs.
 *
 * Nodes compare their settings before they train; a run compares its settings with the settings of
 * the checkpoint from which it resumes. Pure. It must not know the meaning of a key or the wording
 * of a difference. */
#ifndef CONVOY_BASE_CONFIG_DIFF_H
#define CONVOY_BASE_CONFIG_DIFF_H

#include <stdbool.h>

#define CONFIG_DIFF_VALUE_BYTES 81 /* bytes of a value as text; longer values are cut */

/* Receives one difference. left, right: the values as text, strings without quotes; NULL: the
 * object lacks the key. All pointers are valid until config_diff_each returns (the values: until
 * this call returns). */
typedef void config_diff_found(void *arg, const char *key, const char *left, const char *right);

/* config_diff_each — calls found for every key whose values differ, in the order of left, then for
 * every key that only right has. Numbers compare by value; VIRTUAL_TP, which older versions wrote
 * in place of TP, is TP. Returns false, without a call, if one of the texts is no JSON object. */
bool config_diff_each(const char *left, const char *right, config_diff_found *found, void *arg);

#endif
