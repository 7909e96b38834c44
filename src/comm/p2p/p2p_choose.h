/* p2p_choose — which driver carries messages: opened before the ranks know each other, chosen when
 * all addresses are there, by one rule on every rank. Must not know messages. Only p2p.c and
 * p2p_connect.c include it. */
#ifndef CONVOY_COMM_P2P_CHOOSE_H
#define CONVOY_COMM_P2P_CHOOSE_H

#include "comm/p2p/p2p_inside.h"

/* p2p_choose_open — the drivers that config.net allows. p2p_choose_pack — their addresses as
 * one. */
enum status p2p_choose_open(struct p2p *p2p);
enum status p2p_choose_pack(struct p2p *p2p, bool is_intra_node, void *out, int64_t cap,
                            int64_t *bytes_out);
/* p2p_choose_take — from now on one driver: the others are closed. Errors: ST_DISAGREE, ST_PEER (an
 * address is damaged). p2p_choose_address — that rank's address for it; NULL: it has sent none. */
enum status p2p_choose_take(struct p2p *p2p, const struct p2p_world *world);
const void *p2p_choose_address(const struct p2p *p2p, const struct p2p_world *world, int rank,
                               int64_t *bytes_out);
void p2p_choose_close(struct p2p *p2p);
bool p2p_choose_supports_gpu(const struct p2p *p2p);

#endif
