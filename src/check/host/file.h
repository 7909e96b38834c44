/* check_file — reads small text files of the kernel below a folder that replaces "/", so that a
 * test can use a tree of its own instead of the machine.
 *
 * A path is formatted like printf's and begins with "/". Only regular files are opened, because a
 * pipe or a device in the tree would block. Bytes that are not printable ASCII become '?', because
 * they appear in reports. Must not know the meaning of the files. */
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

/* check_file_read — reads the first cap - 1 bytes of a file, without white space at the end.
 * Returns false if it is missing or cannot be read; then out is "". */
bool check_file_read(const char *root, char *out, size_t cap, const char *path, ...)
    __attribute__((format(printf, 4, 5)));
/* check_file_number — returns the number at the beginning of a file, up to the next blank.
 * CHECK_FILE_NONE: there is no file, or it does not begin with a number. */
int64_t check_file_number(const char *root, const char *path, ...)
    __attribute__((format(printf, 2, 3)));
/* check_file_is — returns true if the path exists, of any type. */
bool check_file_is(const char *root, const char *path, ...) __attribute__((format(printf, 2, 3)));
/* check_file_list — lists the names in a folder in the order of their numbers ("mlx5_2" before
 * "mlx5_10"), at most CHECK_FILE_NAMES_MAX. Names longer than 39 bytes are left out. Bytes that a
 * shell could misread become '?', because names appear in remedies. */
void check_file_list(const char *root, struct check_file_names *out, const char *path, ...)
    __attribute__((format(printf, 3, 4)));
/* check_file_is_name — returns true if a name is not empty and has none of these bytes. */
bool check_file_is_name(const char *name);
/* check_file_list_with — lists only the names that begin with `prefix`, like check_file_list. */
void check_file_list_with(const char *root, const char *prefix, struct check_file_names *out,
                          const char *path, ...) __attribute__((format(printf, 4, 5)));
/* check_file_lines — calls line(arg, text) for each line in the first bytes_max bytes of a file. A
 * line over 1023 bytes is passed in chunks. Returns false if the file is missing or cannot be read;
 * errno has the reason. Also reads the log of the kernel, /dev/kmsg, up to its end. */
bool check_file_lines(const char *root, const char *path, int64_t bytes_max,
                      void (*line)(void *arg, char *text), void *arg);

/* check_file_word — returns the next word of *rest, up to a blank; NULL: there is none. Cuts the
 * text. */
char *check_file_word(char **rest);

#endif
