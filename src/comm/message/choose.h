/* p2p_choose — which driver carries messages. Drivers are opened before the ranks know each other;
 * one is chosen when all addresses are known, by one rule on every rank. Must not know messages.
 * Only p2p.c and p2p_connect.c include it. */
#ifndef CONVOY_COMM_P2P_CHOOSE_H
#define CONVOY_COMM_P2P_CHOOSE_H

#include "comm/message/inside.h"

/* p2p_choose_open — opens the drivers that config.net allows.
 * p2p_choose_pack — packs their addresses as one. */
enum status p2p_choose_open(struct p2p *p2p);
enum status p2p_choose_pack(struct p2p *p2p, bool is_intra_node, void *out, int64_t cap,
                            int64_t *bytes_out);
/* p2p_choose_select — chooses the driver and closes the others. Errors: ST_DISAGREE: ranks have
 * different settings; ST_PEER: an address is damaged.
 * p2p_choose_address — that rank's address for the chosen driver; NULL: it has sent none. */
enum status p2p_choose_select(struct p2p *p2p, const struct p2p_world *world);
const void *p2p_choose_address(const struct p2p *p2p, const struct p2p_world *world, int rank,
                               int64_t *bytes_out);
void p2p_choose_close(struct p2p *p2p);
bool p2p_choose_supports_gpu(const struct p2p *p2p);

#endif
