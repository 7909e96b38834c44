/* aws_xml — reads the small XML documents of S3 and STS: lists of objects, errors, identifiers.
 *
 * A strict reader of the part of XML that these services write: elements, attributes (skipped),
 * text, character references and the five entities, comments, the declaration. Document types,
 * CDATA and other entities are refused. Pure functions for hostile bytes; nothing recurses. It must
 * not know the requests. */
#ifndef CONVOY_REMOTE_AWS_XML_H
#define CONVOY_REMOTE_AWS_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AWS_XML_PATH_MAX 256   /* bytes of an element's path */
#define AWS_XML_TEXT_MAX 65536 /* bytes of an element's text */

/* aws_xml_walk — calls on_element at the end of each element, with its path such as
 * "ListBucketResult/Contents/Key" and its text; the text of an element with children is only that
 * after its last child. on_element returns false to stop. Returns false if it did, if the document
 * is malformed, or if a text, a path or the nesting is too long. */
bool aws_xml_walk(const char *bytes, size_t n,
                  bool (*on_element)(void *arg, const char *path, const char *text), void *arg);
/* aws_xml_get — copies the text of the first element with this path. false: there is none, or it
 * has cap bytes or more; out is "" then. */
bool aws_xml_get(const char *bytes, size_t n, const char *path, char *out, size_t cap);
/* aws_xml_decode_url — decodes %XX and '+' in place, as in lists with encoding-type=url. false: it
 * is malformed, or has a zero byte. */
bool aws_xml_decode_url(char *text);

#endif
