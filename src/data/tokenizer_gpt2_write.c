/* tokenizer_gpt2_write — see tokenizer_gpt2_write.h. Source of the formats: the files of the
 * published GPT-2, and the documentation of Hugging Face's tokenizers. */
#include "data/tokenizer_gpt2_write.h"

#include <string.h>

#include "base/assert.h"

#define END_TEXT "<|endoftext|>"

extern const uint8_t merges_begin[], merges_end[]; /* merges.S */

/* add_vocab — {"token": id, …} of all ids. */
static void add_vocab(const struct tokenizer *gpt2, const char *between, struct text *out)
{
    uint16_t char_of[256];
    /* GPT-2 writes bytes as characters: printable Latin-1 as itself, the others from U+0100 on in
     * order. */
    uint16_t shifted = 256;
    for (int b = 0; b < 256; b++) {
        bool is_itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        char_of[b] = is_itself ? (uint16_t)b : shifted++;
    }
    text_add(out, "{");
    for (uint32_t id = 0; id < TOKENIZER_GPT2_VOCAB; id++) {
        size_t n;
        const uint8_t *bytes = tokenizer_bytes(gpt2, id, &n);
        text_add(out, "%s\"", id > 0 ? between : "");
        for (size_t i = 0; i < n; i++) {
            /* One code point inside a JSON string. */
            uint8_t utf8[4];
            uint32_t c = id == TOKENIZER_GPT2_END ? bytes[i] : char_of[bytes[i]];
            if (c == '"' || c == '\\')
                text_add(out, "\\%c", (int)c);
            else
                text_add_bytes(out, utf8, text_utf8_put(utf8, c));
        }
        text_add(out, "\": %u", id);
    }
    text_add(out, "}");
}

void tokenizer_gpt2_write_vocab(const struct tokenizer *gpt2, struct text *out)
{
    add_vocab(gpt2, ", ", out);
    text_add(out, "\n");
}

void tokenizer_gpt2_write_merges(struct text *out)
{
    text_add_bytes(out, merges_begin, (size_t)(merges_end - merges_begin));
}

void tokenizer_gpt2_write_tokenizer_json(const struct tokenizer *gpt2, struct text *out)
{
    text_add(out,
             "{\n\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n"
             "\"added_tokens\": [{\"id\": %d, \"content\": \"" END_TEXT
             "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": "
             "false, \"special\": true}],\n"
             "\"normalizer\": null,\n"
             "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
             "\"trim_offsets\": true, \"use_regex\": true},\n"
             "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
             "\"trim_offsets\": false, \"use_regex\": true},\n"
             "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": "
             "true, \"use_regex\": true},\n"
             "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
             "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": "
             "false, \"byte_fallback\": false,\n\"vocab\": ",
             TOKENIZER_GPT2_END);
    add_vocab(gpt2, ",\n", out);
    text_add(out, ",\n\"merges\": ");
    /* The table's lines after the first, as JSON strings. */
    const uint8_t *p = memchr(merges_begin, '\n', (size_t)(merges_end - merges_begin));
    ASSERT(p != NULL);
    text_add(out, "[\"");
    for (p++; p < merges_end; p++) {
        if (*p == '\n') {
            text_add(out, p + 1 < merges_end ? "\",\n\"" : "\"");
            continue;
        }
        if (*p == '"' || *p == '\\')
            text_add_bytes(out, "\\", 1);
        text_add_bytes(out, p, 1);
    }
    text_add(out, "]");
    text_add(out, "}\n}\n");
}

void tokenizer_gpt2_write_settings(int64_t context_tokens, struct text *out)
{
    text_add(out,
             "{\n  \"add_prefix_space\": false,\n  \"added_tokens_decoder\": {\n    \"%d\": {\n"
             "      \"content\": \"" END_TEXT
             "\",\n      \"lstrip\": false,\n      \"normalized\": false,\n"
             "      \"rstrip\": false,\n      \"single_word\": false,\n      \"special\": true\n   "
             " }\n  },\n"
             "  \"bos_token\": \"" END_TEXT "\",\n  \"clean_up_tokenization_spaces\": false,\n"
             "  \"eos_token\": \"" END_TEXT "\",\n  \"model_max_length\": %lld,\n"
             "  \"tokenizer_class\": \"GPT2Tokenizer\",\n  \"unk_token\": \"" END_TEXT "\"\n}\n",
             TOKENIZER_GPT2_END, (long long)context_tokens);
}

void tokenizer_gpt2_write_specials(struct text *out)
{
    text_add(out, "{\n  \"bos_token\": \"" END_TEXT "\",\n  \"eos_token\": \"" END_TEXT "\",\n"
                  "  \"unk_token\": \"" END_TEXT "\"\n}\n");
}
