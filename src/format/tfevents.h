/* tfevents — TENSORBOARD_DIR: scalars in an event file that TensorBoard reads.
 *
 * Every process writes its own file, events.out.tfevents.<seconds>.<host>.<pid>.convoy. It is a
 * sequence of records: u64 length, masked CRC-32C of these eight bytes, message, masked CRC-32C of
 * the message; little-endian. A message is an Event of TensorBoard's event.proto and
 * summary.proto.
 *
 * TensorBoard reads the files of a folder in the order of their names. The second event holds the
 * step from which this file counts; older files lose their scalars from that step on. A full disk
 * loses scalars, not the run: a warning is logged once, and lost events are counted. It must not
 * know where the numbers come from. */
#ifndef CONVOY_FORMAT_TFEVENTS_H
#define CONVOY_FORMAT_TFEVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TFEVENTS_SCALARS_MAX 16 /* per event */
#define TFEVENTS_TAG_MAX 48     /* bytes of a tag */

struct tfevents;

struct tfevents_scalar {
    const char *tag;
    double value; /* NAN: unknown, left out; TensorBoard keeps 32 bits */
};

/* tfevents_open — creates a file in dir, and dir if it is missing. step_next: the first step that
 * will be added. dir "" or NULL: *out is NULL, and the functions below do nothing; the same, with a
 * warning, if the disk is full. ST_BAD_SETTING: dir cannot be written. ST_STORE: it cannot be
 * created. */
enum status tfevents_open(const char *dir, int64_t step_next, struct tfevents **out);
/* tfevents_add — adds one event with n scalars to a buffer; the buffer is written at most every two
 * seconds, in one write. */
void tfevents_add(struct tfevents *file, int64_t step, const struct tfevents_scalar *scalar, int n);
void tfevents_flush(struct tfevents *file); /* call it before a long operation */
void tfevents_close(struct tfevents *file); /* accepts NULL */

/* tfevents_path — for tests, as the next function: returns the path of the file. */
const char *tfevents_path(const struct tfevents *file);
int64_t tfevents_lost(const struct tfevents *file); /* events that were lost to a full disk */

/* tfevents_crc32c — computes CRC-32C (Castagnoli; RFC 3720, appendix B.4), for tests. Pure. */
uint32_t tfevents_crc32c(const void *bytes, size_t n);

#endif
