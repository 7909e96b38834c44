/* tokenize.c — `convoy tokenize`: writes the tokens of DATA to OUT, one token file. Must not know
 * how text becomes tokens (data/corpus.h). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/corpus.h"
#include "data/feed.h"
#include "data/tokenizer/tokenizer.h"
#include "node/command.h"
#include "node/choose/chat_source.h"
#include "node/choose/config_map.h"
#include "node/process/print.h"
#include "node/process/process.h"
#include "node/choose/tokenizer_source.h"

#define TOKENIZE_REPORT_MS 5000
/* A conversation has 64 MiB of JSON at most, and a mark for each token. */
#define SHOWN_BYTES_MAX ((size_t)1 << 30)

/* go_on — checks for a signal between blocks, and logs the progress every few seconds. */
static bool go_on(void *arg, int64_t bytes_done, int64_t bytes_total)
{
    int64_t *reported_ms = arg;
    const int64_t now_ms = clock_ms();
    if (now_ms - *reported_ms >= TOKENIZE_REPORT_MS && bytes_total > 0) {
        char done[32], total[32];
        LOG_INFO("tokenised %s of %s", text_format_bytes(done, sizeof done, (double)bytes_done),
                 text_format_bytes(total, sizeof total, (double)bytes_total));
        *reported_ms = now_ms;
    }
    return process_noted() == 0;
}

/* print_conversations — prints the first conversations of DATA, with the trained tokens marked. */
static enum status print_conversations(const struct corpus *corpus,
                                       const struct tokenizer *tokenizer, int64_t n)
{
    const int64_t separator[2] = {-1, -1}, all = corpus_tokens(corpus);
    for (int64_t i = 0, at = 0, next; i < n && at < all; i++, at = next) {
        struct text line = {.limit = SHOWN_BYTES_MAX};
        TRY(corpus_next_document(corpus, at + 1, all, separator, &next));
        int32_t *ids = memory_new((size_t)(next - at), sizeof *ids);
        enum status st = corpus_read(corpus, at, next - at, ids);
        int64_t trained = 0;
        for (int64_t k = 0; k < next - at; k++)
            trained += ((uint32_t)ids[k] & CHAT_TRAINED) != 0;
        if (st == ST_OK)
            chat_show(tokenizer, ids, next - at, isatty(STDOUT_FILENO), &line);
        free(ids);
        text_add(&line, "\n-- conversation %lld: %lld tokens, %lld trained\n", (long long)i + 1,
                 (long long)(next - at), (long long)trained);
        if (st == ST_OK)
            st = print_text(&line);
        text_free(&line);
        TRY(st);
    }
    return ST_OK;
}

static enum status show_conversations(const struct conf *conf, const struct tokenizer *tokenizer,
                                      struct corpus_config config)
{
    struct corpus *corpus;
    struct chat *chat;
    TRY(chat_source_open(conf, tokenizer, NULL, &chat));
    config.chat = chat;
    enum status st = config_map_cache(conf);
    if (st == ST_OK)
        st = corpus_open(&config, &corpus);
    chat_close(chat);
    TRY(config_map_name_setting(st, false));
    st = print_conversations(corpus, tokenizer, conf_i64(conf, CONF_SHOW));
    corpus_close(corpus);
    return st;
}

enum status tokenize_main(const struct conf *conf)
{
    const char *data = conf_text(conf, CONF_DATA), *out_path = conf_text(conf, CONF_OUT);
    const int64_t began_ms = clock_ms();
    int64_t tokens;
    char count[32], human[32];
    struct tokenizer *tokenizer;
    if (data[0] == '\0' || strcmp(data, FEED_SYNTHETIC) == 0)
        return FAIL(ST_BAD_SETTING,
                    "DATA has no text to tokenise; set DATA to a text file, a folder or a glob%s",
                    data[0] != '\0' ? "; DATA=synthetic has no text" : "");
    TRY(tokenizer_source_open(conf, NULL, &tokenizer));
    process_note_signals(false);
    /* Write the file with this tokenizer. */
    const int64_t vocab = conf_i64(conf, CONF_VOCAB);
    int64_t reported_ms = clock_ms();
    const struct corpus_config config = {.data = conf_text(conf, CONF_DATA),
                                         .cache_dir = conf_text(conf, CONF_CACHE_DIR),
                                         .allows_local_urls = conf_i64(conf, CONF_ALLOW_LOCAL_URLS),
                                         .vocab = vocab > 0 ? vocab : tokenizer_vocab(tokenizer),
                                         .tokenizer = tokenizer,
                                         .progress = go_on,
                                         .progress_arg = &reported_ms};
    if (conf_i64(conf, CONF_SHOW) > 0) {
        const enum status shown = show_conversations(conf, tokenizer, config);
        tokenizer_close(tokenizer);
        return shown != ST_OK && process_noted() != 0 ? process_fail_noted(data, "not shown")
                                                      : shown;
    }
    if (conf_i64(conf, CONF_TASK) == CONF_TASK_CHAT) {
        tokenizer_close(tokenizer);
        return FAIL(ST_BAD_SETTING, "TASK=chat writes no token file: train and eval read the "
                                    "conversations themselves; set SHOW=3 to see some");
    }
    const enum status st = corpus_write(&config, conf_text(conf, CONF_OUT), &tokens);
    tokenizer_close(tokenizer);
    if (st != ST_OK && process_noted() != 0)
        return process_fail_noted(out_path, "not written");
    TRY(config_map_name_setting(st, false));
    log_console("%s  %s tokens  %s  %.1f s", out_path,
                text_format_count(count, sizeof count, (double)tokens),
                text_format_bytes(human, sizeof human, (double)file_bytes(out_path)),
                (double)(clock_ms() - began_ms) / 1e3);
    return ST_OK;
}
