/* blas_tuned — see blas/tuned.h. */
#include "dev/blas/tuned.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* The empty string keeps this a string while the table has no entry. */
static const char checked_in[] = ""
#include "dev/blas/tuned.def"
    ;

const char *blas_tuned_checked_in(void) { return checked_in; }

static const char *dtype_text(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? "bf16" : dtype == DTYPE_F16 ? "fp16" : "fp32";
}

void blas_tuned_key(const struct blas_shape *s, char out[BLAS_TUNED_KEY])
{
    text_format(out, BLAS_TUNED_KEY,
                "%lldx%lldx%lld %c%c ld %lld,%lld,%lld,%lld %s,%s,%s%s %s %s aux %lld align "
                "%d,%d,%d,%d",
                (long long)s->m, (long long)s->n, (long long)s->k, s->is_a_transposed ? 'T' : 'N',
                s->is_b_transposed ? 'T' : 'N', (long long)s->lda, (long long)s->ldb,
                (long long)s->ldc, (long long)s->ldd, dtype_text(s->a), dtype_text(s->b),
                dtype_text(s->d), s->is_tf32 ? " tf32" : "", blas_plan_epilogue(s->epilogue),
                dtype_text(s->bias), (long long)s->ld_aux, s->align_a, s->align_b, s->align_c,
                s->align_d);
}

static void write_head(const struct blas_chip *chip, size_t version, const struct blas_shape *shape,
                       const char *between, char out[BLAS_TUNED_ROW])
{
    char key[BLAS_TUNED_KEY];
    blas_tuned_key(shape, key);
    text_format(out, BLAS_TUNED_ROW, "%s|%d|%zu|%s%s|", chip->name, chip->sm_count, version,
                between, key);
}

/* Returns the next character of the format and moves past it. 0: the end. */
static char next_char(const char **at)
{
    while (**at == '"' || **at == '\n')
        ++*at;
    return **at ? *(*at)++ : 0;
}

/* Moves past `text` if it comes next. */
static bool accept_text(const char **at, const char *text)
{
    const char *here = *at;
    for (; *text; text++)
        if (next_char(&here) != *text)
            return false;
    *at = here;
    return true;
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool blas_tuned_find(const char *table, const struct blas_chip *chip, size_t version,
                     const struct blas_shape *shape, struct blas_tuned *out)
{
    char head[BLAS_TUNED_ROW];
    write_head(chip, version, shape, "", head);
    for (const char *at = table; *at;) {
        *out = (struct blas_tuned){.is_apart = false};
        if (accept_text(&at, head)) {
            /* the rest of the entry that was searched for */
            out->is_apart = accept_text(&at, "apart|");
            if (out->is_apart)
                return next_char(&at) == ';';
            if (!accept_text(&at, "fused|"))
                return false;
            for (int i = 0; i < BLAS_TUNED_ALGO; i++) {
                int high = hex_of(next_char(&at)), low = high < 0 ? -1 : hex_of(next_char(&at));
                if (low < 0)
                    return false;
                out->algo[i] = (uint8_t)(16 * high + low);
            }
            return next_char(&at) == ';';
        }
        for (char c = next_char(&at); c && c != ';';)
            c = next_char(&at);
    }
    return false;
}

void blas_tuned_write(const struct blas_chip *chip, size_t version, const struct blas_shape *shape,
                      const struct blas_tuned *tuned, char out[BLAS_TUNED_ROW])
{
    char head[BLAS_TUNED_ROW], hex[2][BLAS_TUNED_ALGO + 1];
    write_head(chip, version, shape, "\"\n\"", head);
    for (int i = 0; i < BLAS_TUNED_ALGO; i++)
        snprintf(hex[2 * i / BLAS_TUNED_ALGO] + 2 * i % BLAS_TUNED_ALGO, 3, "%02x", tuned->algo[i]);
    if (tuned->is_apart)
        text_format(out, BLAS_TUNED_ROW, "\"%s\"\n\"apart|;\"\n", head);
    else
        text_format(out, BLAS_TUNED_ROW, "\"%s\"\n\"fused|\"\n\"%s\"\n\"%s;\"\n", head, hex[0],
                    hex[1]);
}
