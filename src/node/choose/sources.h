/* sources — finds MODEL, TOKENIZER, ADAPTER and FROM on this machine before anything reads them:
 * fetches names of other machines (remote/remote.h) into CACHE_DIR, and decides which checkpoint of
 * a folder is used. For DATA and VAL_DATA it puts the commit into names of the Hugging Face hub.
 *
 * From then on conf_text returns the path, and conf_given the user's text. Of several nodes only
 * node 0 calls it; the others get the files from node 0 (node/worker/source_sync.h). Must not know
 * the board or the cluster. */
#ifndef CONVOY_NODE_SOURCES_H
#define CONVOY_NODE_SOURCES_H

#include "base/status.h"
#include "base/text.h"
#include "conf/conf.h"

/* Returns false to stop, which fails with ST_RETRY. */
typedef bool sources_progress(void *arg, int64_t bytes_done, int64_t bytes_total);

/* sources_find — finds them for train, on node 0. Blocks while files are fetched. A folder of
 * checkpoints becomes its newest checkpoint, which stays the model although the folder may get
 * newer ones. If the run resumes, its checkpoint replaces ADAPTER, and hf:// names keep the commits
 * that the checkpoint records. Fails like remote_fetch. progress: NULL allowed. */
enum status sources_find(struct conf *conf, sources_progress *progress, void *progress_arg);
/* sources_commits — appends the commits of all hf:// names as a JSON object by names; nothing if
 * there are none. */
void sources_commits(const struct conf *conf, struct text *out);
/* sources_find_for_command — the same for a command that reads them once. reads_weights: false for
 * a command that needs only dimensions and tokenizer of MODEL. */
enum status sources_find_for_command(struct conf *conf, bool reads_weights);
/* sources_find_local — the same without fetching anything, and without a word in the log. */
void sources_find_local(struct conf *conf);
/* sources_adapter_is_resumed — returns true if the checkpoint of the run has replaced ADAPTER. */
bool sources_adapter_is_resumed(const struct conf *conf);
/* sources_are_here — returns true if the model and the adapter can be read on this machine, so that
 * they need neither be fetched nor be given by node 0. On node 0 also if they do not exist. */
bool sources_are_here(const struct conf *conf);

/* sources_is_local — returns true if the setting names a model (CONF_MODEL) or an adapter
 * (CONF_ADAPTER) of this machine that does not change: no folder of checkpoints. */
bool sources_is_local(const struct conf *conf, enum conf_key key);

/* sources_write — appends the paths that were found, as JSON. */
void sources_write(const struct conf *conf, struct text *out);
/* sources_read — sets these paths. Returns false, and sets none, if one of them no longer exists.
 * Accepts bytes of any content. */
bool sources_read(struct conf *conf, const char *bytes, size_t n);

#endif
