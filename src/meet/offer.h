/* offer — node 0's side of handing out data: the bills of what it has, and pieces of the files on
 * them. Only a file that is on a bill can be asked for, by its number. Must not know who asks, or
 * what is in the files. */
#ifndef CONVOY_MEET_OFFER_H
#define CONVOY_MEET_OFFER_H

#include "meet/bill.h"

struct evbuffer;
struct offer;

enum status offer_open(struct offer **out);
void offer_close(struct offer *offer); /* accepts NULL; buffers that were given out may live on */
/* offer_set — what node 0's worker wrote (bill_write, with paths), of any content. ST_BAD_DATA
 * leaves the former; where there is none yet, those who ask are told that there are no data to hand
 * out, and why. */
enum status offer_set(struct offer *offer, enum bill_kind kind, const char *bytes, size_t n);
/* offer_bill — as the others are to see it. */
void offer_bill(const struct offer *offer, enum bill_kind kind, struct text *out);

/* offer_piece — appends up to BILL_CHUNK_BYTES to out. Returns 200; 410 another bill stands now;
 * 503 ask again: too many pieces are on their way, or this process is short of memory or open
 * files; 500 the file cannot be read. With 500, and where files are short, status_message has a
 * sentence. */
int offer_piece(struct offer *offer, const struct bill_ask *ask, struct evbuffer *out);

#endif
