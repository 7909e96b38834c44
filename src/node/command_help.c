/* command_help — see command_help.h. */
#include "node/command_help.h"

#include <stddef.h>
#include <string.h>

#include "conf/conf.h"

static const struct page {
    const char *command, *examples; /* lines */
} pages[] = {
    {"train",
     "convoy train MODEL=gpt2-mini DATA=book.txt CHECKPOINT_DIR=run1 CHECKPOINT_EVERY=100 "
     "STEPS=1000\n"
     "convoy train MODEL=gpt2 DATA='a.bin:0.7,b.jsonl:0.3' VAL_DATA=val.txt EVAL_EVERY=100 "
     "CHECKPOINT_DIR=run2\n"
     "convoy train MODEL=gpt2-nano DATA=synthetic STEPS=20\n"},
    {"check",
     "convoy check CHECK=quick\n"
     "convoy check CHECKPOINT_DIR=/checkpoints GPUS_EXPECTED=8 REPORT=check.json\n"
     "convoy check N_NODES=4 NODE_ID=0 MASTER_ADDR=10.0.0.1 JOB_TOKEN_FILE=job.token CHECK=full "
     "SOAK=30m\n"},
    {"tokenize", "convoy tokenize DATA=books/ OUT=books.bin\n"
                 "convoy tokenize DATA=books.jsonl OUT=books.idx\n"},
    {"train-tokenizer",
     "convoy train-tokenizer DATA=books/ VOCAB=4096 OUT=books-tokenizer\n"
     "convoy train MODEL=gpt2-mini TOKENIZER=books-tokenizer VOCAB=4096 DATA=books/\n"},
    {"generate",
     "convoy generate CHECKPOINT_DIR=run1 PROMPT='Once upon a time' TOKENS=100 TEMPERATURE=0.8\n"
     "convoy generate MODEL=path/to/hugging-face-folder PROMPT=Hello TEMPERATURE=0\n"},
    {"import", "convoy import FROM=path/to/hugging-face-folder TO=run1\n"
               "convoy import FROM=gpt2_124M.bin TO=run1\n"},
    {"export", "convoy export FROM=run1 TO=my-model\n"},
    {"eval", "convoy eval CHECKPOINT_DIR=run1 VAL_DATA=val.txt\n"
             "convoy eval CHECKPOINT_DIR=run1 VAL_DATA=hellaswag_val.bin\n"
             "convoy eval CHECKPOINT_DIR=qa1 VAL_DATA=squad-dev.json OUT=answers.json\n"},
    {"bench", "convoy bench N_GPU_EACH_NODE=2 BENCH_SIZES=4-64Mi\n"},
    {"plan",
     "convoy plan CLUSTER=h100-sxm MODEL=llama-2-7b SEQ_LEN=4096 N_NODES=4 GLOBAL_BATCH=512 "
     "MESH=auto TOKENS=300000000000\n"
     "convoy plan CLUSTER=machine.json MODEL=gpt2-mini\n"},
    {"rehearse", "convoy rehearse MODEL=gpt2-mini DATA=book.txt N_NODES=4 CHECKPOINT_DIR=run1 "
                 "CHECKPOINT_EVERY=20\n"
                 "convoy rehearse MODEL=gpt2-nano DATA=synthetic DURATION=30m FAULT_EVERY=20s "
                 "FAULT_MIX=kill:6,hang:2,disk:1 JSON=1\n"},
    {"status", "convoy status\n"
               "convoy status http://10.0.0.1:8080 JSON=1\n"
               "convoy status run1\n"},
    {"view", "convoy view run1\n"
             "convoy view run1 run2 run3\n"},
    {"verify", "convoy verify run1\n"
               "convoy verify run1 JSON=1\n"},
    {"config", "convoy config MODEL=gpt2 LR=1e-3\n"},
    {"version", "convoy version gpu\n"},
    {"help", "convoy help data\nconvoy help BATCH_SIZE\nconvoy help train\n"},
};

void command_help_write(const char *command, struct text *out)
{
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(pages[i].command, command) != 0)
            continue;
        bool is_first = true;
        for (int key = 0; key < CONF_SETTINGS_N; key++) {
            if (!conf_row_is_of((enum conf_key)key, command))
                continue;
            if (is_first)
                text_add(
                    out,
                    "\nMain settings (`convoy help settings` lists all, with their defaults)\n");
            is_first = false;
            conf_write_row((enum conf_key)key, out);
        }
        const char *examples = pages[i].examples;
        text_add(out, "\nExample%s\n", strchr(examples, '\n')[1] != 0 ? "s" : "");
        while (examples[0] != 0) {
            int n = (int)strcspn(examples, "\n") + 1;
            text_add(out, "  %.*s", n, examples);
            examples += n;
        }
    }
}
