/* ucx_choose — which driver carries messages: opened before the ranks know each other, chosen when
 * all addresses are there, by one rule on every rank. Must not know messages. Only ucx.c and
 * ucx_connect.c include it. */
#ifndef CONVOY_COMM_UCX_CHOOSE_H
#define CONVOY_COMM_UCX_CHOOSE_H

#include "comm/ucx_inside.h"

/* ucx_choose_open — the drivers that config.net allows. ucx_choose_pack — their addresses as
 * one. */
enum status ucx_choose_open(struct ucx *ucx);
enum status ucx_choose_pack(struct ucx *ucx, bool is_near, void *out, int64_t cap,
                            int64_t *bytes_out);
/* ucx_choose_take — from now on one driver: the others are closed. Errors: ST_DISAGREE, ST_PEER (an
 * address is damaged). ucx_choose_address — that rank's address for it; NULL: it has sent none. */
enum status ucx_choose_take(struct ucx *ucx, const struct ucx_world *world);
const void *ucx_choose_address(const struct ucx *ucx, const struct ucx_world *world, int rank,
                               int64_t *bytes_out);
void ucx_choose_close(struct ucx *ucx);
bool ucx_choose_reaches_gpu(const struct ucx *ucx);

#endif
