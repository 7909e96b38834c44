/* SQuAD's JSON, damaged: cuts at every byte, and bytes outside of texts replaced. It is refused, or
 * the question whose answer is not where it should be is named and left out. */
#include "fault/damage.h"

#include "data/qa/squad.h"

enum { QUESTIONS = 12 };

/* Twelve questions about two contexts, one of them without an answer; every answer stands once in
 * its context. */
static void write_squad(struct text *out)
{
    text_add(out, "{\"version\":\"v2.0\",\"data\":[{\"title\":\"t\",\"paragraphs\":[");
    for (int p = 0; p < 2; p++) {
        text_add(out, "%s{\"context\":\"zero one two three four five six\",\"qas\":[",
                 p > 0 ? "," : "");
        for (int q = 0; q < QUESTIONS / 2; q++) {
            static const char *const answer[] = {"zero", "one", "two", "three", "four", "five"};
            static const int start[] = {0, 5, 9, 13, 19, 24};
            text_add(out, "%s{\"question\":\"which?\",\"id\":\"%d-%d\",\"answers\":[",
                     q > 0 ? "," : "", p, q);
            if (p == 0 || q > 0)
                text_add(out, "{\"text\":\"%s\",\"answer_start\":%d}", answer[q], start[q]);
            text_add(out, "],\"is_impossible\":%s}", p == 0 || q > 0 ? "false" : "true");
        }
        text_add(out, "]}");
    }
    text_add(out, "]}]}");
}

/* Refused; or the same questions with the same answers, but for those named and left out. */
static bool judge_squad(const struct squad *good, const uint8_t *bytes, size_t n, int64_t detail)
{
    struct squad *squad;
    uint8_t *exact = malloc(n); /* just so long: reading beyond is seen */
    memcpy(exact, bytes, n);
    const enum status st = squad_parse((char *)exact, n, "damaged.json", &squad);
    free(exact);
    if (st != ST_OK) {
        assert_true(st == ST_BAD_DATA && strstr(status_message(), "damaged.json") != NULL);
        refused_n++;
        return true;
    }
    int64_t left_out = 0;
    assert_int_equal(squad_examples(squad), QUESTIONS);
    for (int64_t i = 0; i < QUESTIONS; i++) {
        const struct squad_example *a = squad_example(good, i), *b = squad_example(squad, i);
        if (strcmp(a->id, b->id) != 0 || strcmp(a->context, b->context) != 0 ||
            a->answers_n != b->answers_n)
            fail_msg("SQuAD %lld: question %lld is another", (long long)detail, (long long)i);
        if (a->answers_n == 0)
            continue;
        left_out += b->answer->first_bytes < 0;
        if (b->answer->first_bytes >= 0 && b->answer->first_bytes != a->answer->first_bytes)
            fail_msg("SQuAD %lld: answer %lld stands elsewhere", (long long)detail, (long long)i);
    }
    assert_int_equal(left_out, squad_mismatched(squad));
    same_n += left_out == 0;
    refused_n += left_out > 0;
    squad_close(squad);
    return false;
}

TEST(test_squad)
{
    static uint8_t mark[BYTES_MAX];
    struct text json = {0};
    struct squad *good;
    write_squad(&json);
    const size_t n = json.len;
    assert_int_equal(squad_parse(json.data, n, "good.json", &good), ST_OK);
    assert_int_equal(squad_mismatched(good), 0);
    for (size_t cut = 0; cut < n; cut++)
        if (!judge_squad(good, (uint8_t *)json.data, cut, (int64_t)cut))
            fail_msg("SQuAD cut at %zu: taken", cut);
    mark_strings(json.data, n, mark);
    for (uint64_t injury = 0; injury < 3000; injury++) {
        size_t at = draw(injury, 0, n);
        while (mark[at] == 2)
            at = (at + 1) % n;
        memcpy(copy, json.data, n);
        copy[at] = (uint8_t)draw(injury, 1, 256);
        judge_squad(good, copy, n, (int64_t)injury);
    }
    squad_close(good);
    text_free(&json);
    tell("SQuAD (refused, or the question named and left out)");
}

int main(void) { return harness_run_all(__FILE__, setup, teardown); }
