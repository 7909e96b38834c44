/* message_choose — which driver carries messages. Drivers are opened before the ranks know each
 * other; one is chosen when all addresses are known, by one rule on every rank. Must not know
 * messages. Only message.c and connect.c include it. */
#ifndef CONVOY_COMM_MESSAGE_CHOOSE_H
#define CONVOY_COMM_MESSAGE_CHOOSE_H

#include "comm/message/inside.h"

/* message_choose_open — opens the drivers that config.net allows.
 * message_choose_pack — packs their addresses as one. */
enum status message_choose_open(struct messenger *messenger);
enum status message_choose_pack(struct messenger *messenger, bool is_intra_node, void *out,
                                int64_t cap, int64_t *bytes_out);
/* message_choose_select — chooses the driver and closes the others. Errors: ST_DISAGREE: ranks have
 * different settings; ST_PEER: an address is damaged.
 * message_choose_address — that rank's address for the chosen driver; NULL: it has sent none. */
enum status message_choose_select(struct messenger *messenger, const struct message_world *world);
const void *message_choose_address(const struct messenger *messenger,
                                   const struct message_world *world, int rank, int64_t *bytes_out);
void message_choose_close(struct messenger *messenger);
bool message_choose_supports_gpu(const struct messenger *messenger);

#endif
