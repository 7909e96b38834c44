/* s3_page — see s3_page.h. */
#include "remote/s3_page.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "remote/aws_xml.h"

/* The page while it is read. */
struct page {
    struct s3_list *list;
    struct s3_page *next;
    char *key;     /* the current object's; NULL: none yet */
    int64_t bytes; /* -1: none yet */
    char etag[S3_ETAG_MAX];
    bool is_encoded, is_list, is_too_long;
};

/* Copies an ETag, in quotes. */
static bool read_etag(char out[S3_ETAG_MAX], const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            return false;
    const char *quote = text[0] == '"' ? "" : "\"";
    return text_format(out, S3_ETAG_MAX, "%s%s%s", quote, text, quote);
}

/* Adds the object whose element has ended. */
static bool add_object(struct page *page)
{
    struct s3_list *list = page->list;
    if (page->key == NULL || page->bytes < 0)
        return false;
    page->is_too_long = list->n == S3_LIST_MAX;
    if (page->is_too_long)
        return false;
    size_t cap = (size_t)list->cap;
    list->item = memory_grow(list->item, (size_t)list->n, &cap, sizeof *list->item);
    list->cap = (int64_t)cap;
    struct s3_object *item = &list->item[list->n++];
    *item = (struct s3_object){.key = page->key, .bytes = page->bytes};
    memcpy(item->etag, page->etag, sizeof item->etag);
    page->key = NULL;
    page->bytes = -1;
    page->etag[0] = '\0';
    return true;
}

static bool read_element(void *arg, const char *path, const char *text)
{
    struct page *page = arg;
    if (!text_starts(path, "ListBucketResult"))
        return false;
    path += strlen("ListBucketResult");
    if (path[0] == '\0') {
        page->is_list = true;
        return true;
    }
    if (strcmp(path, "/Contents/Key") == 0) {
        free(page->key);
        page->key = memory_text(text);
        return true;
    }
    if (strcmp(path, "/Contents/Size") == 0)
        return text_parse_i64(text, 0, INT64_MAX, &page->bytes) == TEXT_OK;
    if (strcmp(path, "/Contents/ETag") == 0)
        return read_etag(page->etag, text);
    if (strcmp(path, "/Contents") == 0)
        return add_object(page);
    if (strcmp(path, "/EncodingType") == 0)
        page->is_encoded = strcmp(text, "url") == 0;
    if (strcmp(path, "/IsTruncated") == 0)
        page->next->is_truncated = strcmp(text, "true") == 0;
    if (strcmp(path, "/NextContinuationToken") == 0)
        return text_copy(page->next->token, sizeof page->next->token, text);
    return true;
}

/* Decodes and checks the keys of the page, the objects from `first` on. */
static bool check_keys(const struct page *page, int64_t first, const char *prefix)
{
    for (int64_t i = first; i < page->list->n; i++) {
        char *key = (char *)page->list->item[i].key;
        if ((page->is_encoded && !aws_xml_decode_url(key)) || key[0] == '\0' ||
            strlen(key) >= S3_KEY_MAX || !text_starts(key, prefix))
            return false;
    }
    return true;
}

enum status s3_page_read(const char *xml, size_t n, const char *prefix, const char *name,
                         struct s3_list *list, struct s3_page *next)
{
    struct page page = {.list = list, .next = next, .bytes = -1};
    const int64_t first = list->n;
    char token[S3_PAGE_TOKEN_MAX];
    memcpy(token, next->token, sizeof token);
    *next = (struct s3_page){0};
    const bool is_good = aws_xml_walk(xml, n, read_element, &page) && page.is_list &&
                         check_keys(&page, first, prefix);
    free(page.key);
    if (page.is_too_long)
        return FAIL(ST_BAD_DATA, "%s has more than %d objects; use a longer prefix", name,
                    S3_LIST_MAX);
    if (!is_good ||
        (next->is_truncated && (next->token[0] == '\0' || strcmp(next->token, token) == 0)))
        return FAIL(ST_BAD_DATA,
                    "cannot list %s: the answer is not a list of objects of S3; check "
                    "AWS_ENDPOINT_URL",
                    name);
    return ST_OK;
}

#ifdef FUZZ
#include "base/assert.h"

/* Reads a page as a store might send it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct s3_list list = {0};
    struct s3_page page = {0};
    const enum status st = s3_page_read((const char *)data, size, "a", "s3://b/a", &list, &page);
    for (int64_t i = 0; i < list.n; i++) {
        ASSERT(list.item[i].bytes >= 0 && strlen(list.item[i].etag) < S3_ETAG_MAX);
        ASSERT(st != ST_OK ||
               (list.item[i].key[0] == 'a' && strlen(list.item[i].key) < S3_KEY_MAX));
        free((char *)list.item[i].key);
    }
    ASSERT(st != ST_OK || !page.is_truncated || page.token[0] != '\0');
    free(list.item);
    return 0;
}
#endif
