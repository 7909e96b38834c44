/* bucket_export — TO=s3://bucket/prefix: an export is written to CACHE_DIR, uploaded, and removed
 * there. Must not know the form of the export. */
#ifndef CONVOY_NODE_BUCKET_EXPORT_H
#define CONVOY_NODE_BUCKET_EXPORT_H

#include "base/status.h"
#include "conf/conf.h"

/* bucket_export — runs a command that writes the file or folder TO. If TO is a name of a bucket,
 * the command writes to a local path, which is then uploaded: the files of a folder below the
 * prefix, config.json last; a file as one object. ST_BAD_SETTING, before the command runs: there
 * are objects of that name already, or the bucket refuses. */
enum status bucket_export(struct conf *conf, enum status (*run)(const struct conf *conf));

#endif
