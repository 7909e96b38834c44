/* ferry — see ferry.h. */
#include "node/ferry.h"

#include <string.h>

#include "base/log.h"
#include "base/must.h"
#include "meet/bring.h"

static enum board_letter letter_of(bool is_validation)
{
    return is_validation ? BOARD_LETTER_VAL_DATA : BOARD_LETTER_DATA;
}

/* ---- node 0 ---- */

static enum status list_files(const struct feed *feed, struct bill *bill)
{
    struct feed_file from;
    for (int64_t i = 0; feed_file(feed, i, &from); i++) {
        struct bill_file file = {.part = from.part,
                                 .bytes = from.bytes,
                                 .skip = from.skip,
                                 .sum = from.sum,
                                 .path = (char *)(uintptr_t)from.path}; /* copied */
        text_copy(file.suffix, sizeof file.suffix, from.suffix);
        TRY(bill_add(bill, &file));
        bill->weights[from.part] = from.weight;
    }
    bill->state = bill->files_n > 0 ? BILL_STATE_READY : BILL_STATE_NONE;
    return ST_OK;
}

static void set_unfit(struct bill *bill, const char *why)
{
    bill_free(bill);
    bill->state = BILL_STATE_UNFIT;
    text_copy(bill->why, sizeof bill->why, why);
}

void ferry_write(struct board *board, bool is_validation, const struct feed *feed)
{
    struct bill bill = {.state = BILL_STATE_NONE};
    struct text out = {.limit = BILL_JSON_MAX};
    if (feed && list_files(feed, &bill) != ST_OK) {
        set_unfit(&bill, status_message());
        status_clear();
    }
    bill_write(&out, &bill, true);
    if (out.overflow) {
        text_free(&out);
        out = (struct text){.limit = BILL_JSON_MAX};
        set_unfit(&bill, "it has too many files to list");
        bill_write(&out, &bill, true);
    }
    if (!out.overflow)
        board_letter_post(board, letter_of(is_validation), out.data, out.len);
    text_free(&out);
    bill_free(&bill);
}

/* ---- the others ---- */

_Static_assert(BILL_JSON_MAX <= BOARD_LETTER_MAX, "a bill fits a letter");

static enum status read_pass(const struct board *board, struct secret *out)
{
    static char letter[BOARD_LETTER_MAX];
    size_t n;
    if (!board_letter_copy(board, BOARD_LETTER_PASS, letter, &n) || n != sizeof *out)
        return FAIL(ST_BUG, "the supervisor left no key to ask node 0 with");
    memcpy(out, letter, sizeof *out);
    explicit_bzero(letter, sizeof *out);
    return ST_OK;
}

static enum status bring(const struct ferry_config *config, struct text *out,
                         enum bill_state *state)
{
    const struct conf *conf = config->conf;
    struct secret secret;
    TRY(read_pass(config->board, &secret));
    const struct bring_config from = {.secret = &secret,
                                      .host = conf_text(conf, CONF_MASTER_ADDR),
                                      .port = (int)conf_i64(conf, CONF_MASTER_PORT),
                                      .node_id = (int)conf_i64(conf, CONF_NODE_ID),
                                      .kind = config->is_validation ? BILL_KIND_VAL_DATA
                                                                    : BILL_KIND_DATA,
                                      .cache_dir = conf_text(conf, CONF_CACHE_DIR),
                                      .progress = config->progress,
                                      .progress_arg = config->progress_arg};
    must_note("taking %s from node 0", config->is_validation ? "VAL_DATA" : "DATA");
    enum status st = bring_data(&from, out, state);
    secret_forget(&secret);
    return st;
}

enum status ferry_take(const struct ferry_config *config, struct text *out)
{
    const char *name = config->is_validation ? "VAL_DATA" : "DATA";
    const char *data = conf_text(config->conf, config->is_validation ? CONF_VAL_DATA : CONF_DATA);
    enum bill_state state;
    if (data[0] && feed_is_here(data))
        return ST_OK;
    if (data[0])
        LOG_DEBUG("%s=%s is not on this node: taking node 0's", name, data);
    enum status st = bring(config, out, &state);
    if (st == ST_NO_INPUT && data[0])
        return FAIL(ST_NO_INPUT, "%s=%.400s is not on this node, and %s", name, data,
                    status_message());
    TRY(st);
    if (data[0] && state == BILL_STATE_NONE)
        return FAIL(ST_NO_INPUT,
                    "%s=%.400s is not on this node, and node 0 has no file of %s to give; check "
                    "the path, or set it there",
                    name, data, name);
    if (state == BILL_STATE_NONE)
        text_add(out, FEED_SYNTHETIC);
    return ST_OK;
}
