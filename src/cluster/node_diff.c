/* node_diff — see node_diff.h. */
#include "cluster/node_diff.h"

#include <string.h>

#include "base/config_diff.h"
#include "base/text.h"

#define SHOWN_MAX 3

/* The sentence while it is written. */
struct differ {
    const struct node_diff_side *mine, *theirs;
    char *out;
    size_t cap;
    int n;                       /* differences found so far */
    const char *keys[SHOWN_MAX]; /* keys in the sentence */
};

static void add_difference(struct differ *d, const char *key, const char *mine, const char *theirs)
{
    size_t used;
    for (int i = 0; i < d->n && i < SHOWN_MAX; i++)
        if (strcmp(d->keys[i], key) == 0)
            return; /* N_NODES and N_GPU_EACH_NODE are compared as numbers and as settings */
    if (d->n < SHOWN_MAX)
        d->keys[d->n] = key;
    d->n++;
    if (d->n == 1)
        text_format(d->out, d->cap, "the nodes disagree: ");
    used = strlen(d->out);
    if (d->n <= SHOWN_MAX)
        text_format(d->out + used, d->cap - used, "%s%s is %s on node %d and %s on node %d",
                    d->n > 1 ? "; " : "", key, mine, d->mine->node_id, theirs, d->theirs->node_id);
    else if (d->n == SHOWN_MAX + 1)
        text_format(d->out + used, d->cap - used, "; and more");
}

static void add_number(struct differ *d, const char *key, int64_t mine, int64_t theirs)
{
    char a[32], b[32];
    if (mine == theirs)
        return;
    text_format(a, sizeof a, "%lld", (long long)mine);
    text_format(b, sizeof b, "%lld", (long long)theirs);
    add_difference(d, key, a, b);
}

static void add_setting(void *arg, const char *key, const char *mine, const char *theirs)
{
    add_difference(arg, key, mine ? mine : "(not known)", theirs ? theirs : "(not known)");
}

bool node_diff_is_same(const struct node_diff_side *mine, const struct node_diff_side *theirs,
                       char *out, size_t cap)
{
    struct differ d = {.mine = mine, .theirs = theirs, .out = out, .cap = cap};
    out[0] = 0;
    add_number(&d, "the version of the cluster protocol", mine->protocol, theirs->protocol);
    if (d.n == 0) { /* with another protocol the other fields may have another meaning */
        add_number(&d, "N_NODES", mine->nodes_n, theirs->nodes_n);
        add_number(&d, "N_GPU_EACH_NODE", mine->workers_n, theirs->workers_n);
        const char *a = d.mine->agree_json, *b = d.theirs->agree_json;
        if (strcmp(a, b) != 0 && !config_diff_each(a, b, add_setting, &d))
            add_difference(&d, "the list of settings to compare", "readable", "not");
    }
    if (d.n > 0 && theirs->host[0] != 0) {
        size_t used = strlen(out);
        text_format(out + used, cap - used, " (host %s); give all nodes the same", theirs->host);
    }
    return d.n == 0;
}

#ifdef FUZZ
#include <stdlib.h>

#include "base/assert.h"

/* Compares with the settings of another node: the sentence fits its buffer, and both directions
 * agree. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char out[512], back[512], *text = malloc(n + 1);
    if (!text)
        return 0;
    memcpy(text, bytes, n);
    text[n] = 0;
    struct node_diff_side mine = {0, "here", 1,
                                  2, 1,      "{\"SEED\":\"1\",\"LR\":\"3e-4\",\"device\":\"cpu\"}"};
    struct node_diff_side theirs = {1, "there", 1, 2, 1, text};
    bool is_same = node_diff_is_same(&mine, &theirs, out, sizeof out);
    ASSERT(is_same == node_diff_is_same(&theirs, &mine, back, sizeof back));
    ASSERT(is_same == (out[0] == 0) && strlen(out) < sizeof out);
    free(text);
    return 0;
}
#endif
