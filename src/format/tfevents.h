/* tfevents — TENSORBOARD_DIR: scalars in an event file that stock TensorBoard reads.
 *
 * Every run writes a file of its own, events.out.tfevents.<seconds>.<host>.<pid>.convoy: a sequence
 * of records (u64 length, masked CRC-32C of these eight bytes, message, masked CRC-32C of the
 * message; little-endian), each message an Event of TensorBoard's event.proto and summary.proto.
 * TensorBoard reads the files of a folder in the order of their names; the second event says from
 * which step on this file counts, and older files lose what they have from that step on. A full
 * disk costs scalars, not the run: warned about once and counted. Must not know where the numbers
 * come from. */
#ifndef CONVOY_FORMAT_TFEVENTS_H
#define CONVOY_FORMAT_TFEVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TFEVENTS_SCALARS_MAX 16 /* of one event */
#define TFEVENTS_TAG_MAX 48     /* bytes of a tag */

struct tfevents;

struct tfevents_scalar {
    const char *tag;
    double value; /* NAN: not known, left out; TensorBoard keeps 32 bits */
};

/* tfevents_open — a new file in dir, which is made when it is missing. step_next: the first step to
 * be told. dir "" or NULL: *out is NULL, and every call below does nothing; a disk that is full
 * already is warned about and ends so too. Fails: ST_BAD_SETTING when dir cannot be written,
 * ST_STORE when it cannot be made. */
enum status tfevents_open(const char *dir, int64_t step_next, struct tfevents **out);
/* tfevents_add — one event with n scalars. Goes to a buffer; at most every two seconds the buffer
 * goes to the file in one write. */
void tfevents_add(struct tfevents *file, int64_t step, const struct tfevents_scalar *scalar, int n);
void tfevents_flush(struct tfevents *file); /* before something that takes long */
void tfevents_close(struct tfevents *file); /* accepts NULL */

const char *tfevents_path(const struct tfevents *file);
int64_t tfevents_lost(const struct tfevents *file); /* events for which there was no room */

/* tfevents_crc32c — CRC-32C (Castagnoli; RFC 3720, appendix B.4). Pure. */
uint32_t tfevents_crc32c(const void *bytes, size_t n);

#endif
