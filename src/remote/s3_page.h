/* s3_page — reads one page of a list of objects (ListObjectsV2) from its XML. A pure function for
 * hostile bytes; it must not know requests. */
#ifndef CONVOY_REMOTE_S3_PAGE_H
#define CONVOY_REMOTE_S3_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "remote/s3.h"

#define S3_PAGE_TOKEN_MAX 4096

/* The rest of a list: the token of its next page. */
struct s3_page {
    bool is_truncated; /* there is another page */
    char token[S3_PAGE_TOKEN_MAX];
};

/* s3_page_read — appends the page's objects to a list, without sorting them, and replaces *page. On
 * entry *page has the token of this page (""; the first). name: the list in messages. ST_BAD_DATA:
 * the bytes are no such page; a key does not begin with the prefix, is empty or too long; the token
 * does not change; or the list exceeds S3_LIST_MAX objects. The caller frees the list. */
enum status s3_page_read(const char *xml, size_t n, const char *prefix, const char *name,
                         struct s3_list *list, struct s3_page *page);

#endif
