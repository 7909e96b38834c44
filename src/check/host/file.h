/* check_file — reads small text files of the kernel's below a folder that stands for "/", so that a
 * test can put a tree of its own in the machine's place.
 *
 * A path is given like printf's and begins with "/". What is no regular file is not opened: a pipe
 * or a device in the tree would block. Bytes that are not printable ASCII become '?', because they
 * end in reports. Must not know what the files mean. */
#ifndef CONVOY_CHECK_CHECK_FILE_H
#define CONVOY_CHECK_CHECK_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECK_FILE_NONE INT64_MIN
#define CHECK_FILE_NAMES_MAX 1024

struct check_file_names {
    int n;
    char name[CHECK_FILE_NAMES_MAX][40];
};

/* check_file_read — the first cap - 1 bytes of a file, without white space at the end. false: it is
 * missing or cannot be read, and out is "". */
bool check_file_read(const char *root, char *out, size_t cap, const char *path, ...)
    __attribute__((format(printf, 4, 5)));
/* check_file_number — the number that a file begins with, as far as the next blank;
 * CHECK_FILE_NONE: no file, or it begins with none. */
int64_t check_file_number(const char *root, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* check_file_is — does the path exist, as anything? */
bool check_file_is(const char *root, const char *path, ...) __attribute__((format(printf, 2, 3)));
/* check_file_list — the names in a folder in the order of their numbers ("mlx5_2" before
 * "mlx5_10"), at most CHECK_FILE_NAMES_MAX; longer names than 39 bytes are left out.
 * Bytes that a shell could misread become '?': names end in remedies. */
void check_file_list(const char *root, struct check_file_names *out, const char *path, ...)
    __attribute__((format(printf, 3, 4)));
/* check_file_is_name — has it none of these bytes, and at least one other? */
bool check_file_is_name(const char *name);
/* check_file_list_with — the same, only the names that begin with `prefix`. */
void check_file_list_with(const char *root, const char *prefix, struct check_file_names *out,
                          const char *path, ...) __attribute__((format(printf, 4, 5)));
/* check_file_lines — calls line(arg, text) for each line of a file, also of one that is long: up to
 * bytes_max of it. A line over 1023 bytes comes in parts. false: the file is missing or cannot be
 * read; errno has why. Also reads the log of the kernel, /dev/kmsg, up to its end. */
bool check_file_lines(const char *root, const char *path, int64_t bytes_max,
                      void (*line)(void *arg, char *text), void *arg);

/* check_file_word — the next word of *rest, up to a blank; NULL: there is none. Cuts the text. */
char *check_file_word(char **rest);

#endif
