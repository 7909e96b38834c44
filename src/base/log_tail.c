/* log_tail — see log_tail.h. */
#include "base/log_tail.h"

#include <stdbool.h>
#include <string.h>

#include "base/text.h"

#define WORDS (sizeof(struct log_tail_line) / 8)

_Static_assert(sizeof(struct log_tail_line) % 8 == 0, "a line is whole words");

void log_tail_add(void *arg, int64_t wall_ms, const char *text)
{
    struct log_tail *tail = arg;
    uint64_t words[WORDS], i = atomic_load_explicit(&tail->lines_n, memory_order_relaxed);
    struct log_tail_line line = {.number = i, .wall_ms = wall_ms};
    struct log_tail_slot *slot = &tail->slots[i % LOG_TAIL_LINES];
    uint64_t odd = (atomic_load_explicit(&slot->sequence, memory_order_relaxed) + 2) | 1;
    text_copy(line.text, sizeof line.text, text);
    memcpy(words, &line, sizeof line);
    atomic_store_explicit(&slot->sequence, odd, memory_order_relaxed);
    for (size_t k = 0; k < WORDS; k++)
        /* must not be written before the odd number */
        atomic_store_explicit(&slot->words[k], words[k], memory_order_release);
    atomic_store_explicit(&slot->sequence, odd + 1, memory_order_release);
    atomic_store_explicit(&tail->lines_n, i + 1, memory_order_release);
}

/* copy_line — copies a line; false: another line has replaced it, or is about to. */
static bool copy_line(const struct log_tail *tail, uint64_t number, struct log_tail_line *out)
{
    const struct log_tail_slot *slot = &tail->slots[number % LOG_TAIL_LINES];
    uint64_t words[WORDS], before = atomic_load_explicit(&slot->sequence, memory_order_acquire);
    for (size_t k = 0; k < WORDS; k++)
        words[k] = atomic_load_explicit(&slot->words[k], memory_order_acquire);
    memcpy(out, words, sizeof *out);
    out->text[sizeof out->text - 1] = 0; /* the memory may belong to another process */
    return before % 2 == 0 && out->number == number &&
           atomic_load_explicit(&slot->sequence, memory_order_relaxed) == before;
}

bool log_tail_next(const struct log_tail *tail, uint64_t *seen, struct log_tail_line *out)
{
    uint64_t lines_n = atomic_load_explicit(&tail->lines_n, memory_order_acquire);
    /* also if an overwritten number went back */
    if (*seen > lines_n || lines_n - *seen > LOG_TAIL_LINES)
        *seen = lines_n > LOG_TAIL_LINES ? lines_n - LOG_TAIL_LINES : 0;
    while (*seen < lines_n)
        if (copy_line(tail, (*seen)++, out))
            return true;
    return false;
}
