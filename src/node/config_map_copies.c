/* config_map_copies — see config_map_copies.h. */
#include "node/config_map_copies.h"

/* clang-format off */
#define IS_PEER_COPIES(row, value, word) \
    CONF_CHOICE_IS(CONF_##row##_##value, PEER_COPY_MODE_##value)
CONF_PEER_COPIES_LIST(IS_PEER_COPIES)
/* clang-format on */

enum status config_map_copies(const struct conf *conf, struct trainer_config *out)
{
    const char *why = peer_copy_why(&out->step, (int)conf_i64(conf, CONF_N_NODES));
    out->peer_copies = (enum peer_copy_mode)conf_i64(conf, CONF_PEER_COPIES);
    out->peer_copy_fd = -1;
    out->ranks_max = conf_ranks(conf);
    out->ranks_min = conf_min_nodes(conf) * (int)conf_i64(conf, CONF_N_GPU_EACH_NODE);
    if (out->peer_copies != PEER_COPY_MODE_ON || !why)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "PEER_COPIES=1 (%s) cannot be had: %s; leave it out, and a loss costs the steps "
                "since the last checkpoint",
                conf_source(conf, CONF_PEER_COPIES), why);
}

bool config_map_copies_memory(const struct conf *conf)
{
    return conf_i64(conf, CONF_N_NODES) > 1 &&
           conf_i64(conf, CONF_PEER_COPIES) != CONF_PEER_COPIES_OFF;
}
