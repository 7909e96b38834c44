/* accord — see accord.h. Must not know what the settings mean. */
#include "cluster/accord.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"

#define SHOWN_MAX 3
#define VALUE_SHOWN 80

/* Differences found so far, for people. */
struct differ {
    const struct accord_side *mine, *theirs;
    char *out;
    size_t cap;
    int n;
    const char *keys[SHOWN_MAX]; /* told so far */
};

static void add(struct differ *d, const char *key, const char *mine, const char *theirs)
{
    size_t used;
    for (int i = 0; i < d->n && i < SHOWN_MAX; i++)
        if (strcmp(d->keys[i], key) == 0)
            return; /* some are compared as numbers, and stand among the settings, too */
    if (d->n < SHOWN_MAX)
        d->keys[d->n] = key;
    d->n++;
    if (d->n == 1)
        text_format(d->out, d->cap, "the nodes disagree: ");
    used = strlen(d->out);
    if (d->n <= SHOWN_MAX)
        text_format(d->out + used, d->cap - used, "%s%s is %.*s on node %d and %.*s on node %d",
                    d->n > 1 ? "; " : "", key, VALUE_SHOWN, mine, d->mine->node_id, VALUE_SHOWN,
                    theirs, d->theirs->node_id);
    else if (d->n == SHOWN_MAX + 1)
        text_format(d->out + used, d->cap - used, "; and more");
}

static void add_number(struct differ *d, const char *key, int64_t mine, int64_t theirs)
{
    char a[32], b[32];
    if (mine == theirs)
        return;
    text_format(a, sizeof(a), "%lld", (long long)mine);
    text_format(b, sizeof(b), "%lld", (long long)theirs);
    add(d, key, a, b);
}

static const char *value_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return item == NULL ? "(not known)" : cJSON_IsString(item) ? item->valuestring : "(not text)";
}

static void add_keys(struct differ *d, const cJSON *mine, const cJSON *theirs)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, mine)
    {
        if (!cJSON_Compare(item, cJSON_GetObjectItemCaseSensitive(theirs, item->string), true))
            add(d, item->string, value_of(mine, item->string), value_of(theirs, item->string));
    }
    cJSON_ArrayForEach(item, theirs)
    {
        if (cJSON_GetObjectItemCaseSensitive(mine, item->string) == NULL)
            add(d, item->string, "(not known)", value_of(theirs, item->string));
    }
}

static void add_objects(struct differ *d)
{
    const char *a = d->mine->agree_json, *b = d->theirs->agree_json;
    cJSON *mine = NULL, *theirs = NULL;
    if (strcmp(a, b) == 0)
        return;
    if (json_parse(a, strlen(a), "what must agree", &mine) == ST_OK &&
        json_parse(b, strlen(b), "what must agree", &theirs) == ST_OK && cJSON_IsObject(mine) &&
        cJSON_IsObject(theirs))
        add_keys(d, mine, theirs);
    else
        add(d, "the list of what must agree", "readable", "not");
    cJSON_Delete(mine);
    cJSON_Delete(theirs);
}

bool accord_is_same(const struct accord_side *mine, const struct accord_side *theirs, char *out,
                    size_t cap)
{
    struct differ d = {.mine = mine, .theirs = theirs, .out = out, .cap = cap};
    out[0] = 0;
    add_number(&d, "the protocol of meet", mine->protocol, theirs->protocol);
    if (d.n == 0) { /* of another protocol nothing more is known */
        add_number(&d, "N_NODES", mine->nodes_n, theirs->nodes_n);
        add_number(&d, "N_GPU_EACH_NODE", mine->workers_n, theirs->workers_n);
        add_objects(&d);
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

/* What another node says that it has: told in a sentence that fits, and the same whoever asks. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char out[512], back[512], *text = malloc(n + 1);
    if (text == NULL)
        return 0;
    memcpy(text, bytes, n);
    text[n] = 0;
    struct accord_side mine = {0, "here", 1,
                               2, 1,      "{\"SEED\":\"1\",\"LR\":\"3e-4\",\"device\":\"cpu\"}"};
    struct accord_side theirs = {1, "there", 1, 2, 1, text};
    bool is_same = accord_is_same(&mine, &theirs, out, sizeof(out));
    ASSERT(is_same == accord_is_same(&theirs, &mine, back, sizeof(back)));
    ASSERT(is_same == (out[0] == 0) && strlen(out) < sizeof(out));
    free(text);
    return 0;
}
#endif
