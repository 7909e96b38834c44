/* bucket — objects of an S3 bucket as local files: one object, all objects below a prefix, or those
 * that match a glob.
 *
 *   - CACHE_DIR/s3/STORE/BUCKET/objects/HASH is an object; the hash covers key, ETag and size. An
 *     object that did not change is fetched once, and a changed one is another file. STORE is
 *     s3_store_name.
 *   - CACHE_DIR/s3/STORE/BUCKET/folders/HASH/KEY… are links to the objects of one list. The folder
 *     has no objects that were removed from the bucket.
 *   - Keys that would leave the folder are refused: "..", absolute, controls, too long. Hidden
 *     keys, with a component that begins with '.', are skipped.
 *
 * It must not know the contents of the objects. */
#ifndef CONVOY_REMOTE_BUCKET_H
#define CONVOY_REMOTE_BUCKET_H

#include "remote/remote.h"

/* bucket_fetch — does remote_fetch for s3://bucket/key. */
enum status bucket_fetch(const struct remote_config *config, const char *name,
                         char path_out[FILE_PATH_MAX]);

#endif
