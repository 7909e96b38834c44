/* tokenize.c — `convoy tokenize`: writes the tokens of DATA to OUT, one token file. Must not know
 * how text becomes tokens (data/corpus.h). */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "data/corpus.h"
#include "data/feed.h"
#include "data/tokenizer/tokenizer.h"
#include "node/command.h"
#include "node/choose/config_map.h"
#include "node/process/process.h"
#include "node/choose/tokenizer_source.h"

#define TOKENIZE_REPORT_MS 5000

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
