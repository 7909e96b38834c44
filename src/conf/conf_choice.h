/* conf_choice — the values of every setting that is a choice, each listed once.
 *
 * A CHOICE row of conf.def or conf_hooks.def gets its words from its list here (CONF_WORDS). The
 * same list defines the enum that conf_i64 returns for the row, so code writes CONF_SHARD_FULL and
 * never a number. A word with [:N] may be followed by a number (conf_count). Code that casts a
 * choice to the enum of another module uses CONF_CHOICE_IS next to the cast, to prove that both
 * have the same numbers. It must not know the purpose of a choice. */
#ifndef CONVOY_CONF_CONF_CHOICE_H
#define CONVOY_CONF_CONF_CHOICE_H

/* clang-format off */
#define CONF_TASK_LIST(X) X(TASK, LM, "lm") X(TASK, QA, "qa") X(TASK, CHAT, "chat")
#define CONF_LOSS_ON_LIST(X) \
    X(LOSS_ON, ASSISTANT, "assistant") X(LOSS_ON, LAST, "last") X(LOSS_ON, ALL, "all")
#define CONF_ACTIVATION_LIST(X) \
    X(ACTIVATION, MODEL, "model") X(ACTIVATION, GELU, "gelu") X(ACTIVATION, RELU2, "relu2")
#define CONF_POSITIONS_LIST(X) \
    X(POSITIONS, MODEL, "model") X(POSITIONS, LEARNED, "learned") X(POSITIONS, ROPE, "rope")
#define CONF_OPTIMIZER_LIST(X) X(OPTIMIZER, ADAMW, "adamw") X(OPTIMIZER, SGD, "sgd") \
    X(OPTIMIZER, MUON, "muon")
#define CONF_LR_SCHEDULE_LIST(X) \
    X(LR_SCHEDULE, COSINE, "cosine") X(LR_SCHEDULE, CONSTANT, "constant") \
    X(LR_SCHEDULE, LINEAR, "linear") X(LR_SCHEDULE, WSD, "wsd")
#define CONF_CHECKPOINT_ASYNC_LIST(X) \
    X(CHECKPOINT_ASYNC, AUTO, "auto") X(CHECKPOINT_ASYNC, ON, "on") X(CHECKPOINT_ASYNC, OFF, "off")
#define CONF_RESUME_LIST(X) \
    X(RESUME, AUTO, "auto") X(RESUME, NEVER, "never") X(RESUME, REQUIRED, "required")
#define CONF_DEVICE_LIST(X) \
    X(DEVICE, AUTO, "auto") X(DEVICE, CUDA, "cuda") X(DEVICE, HIP, "hip") X(DEVICE, CPU, "cpu")
#define CONF_PRECISION_LIST(X) \
    X(PRECISION, AUTO, "auto") X(PRECISION, FP32, "fp32") X(PRECISION, TF32, "tf32") \
    X(PRECISION, BF16, "bf16") X(PRECISION, FP16, "fp16")
#define CONF_RECOMPUTE_LIST(X) \
    X(RECOMPUTE, NONE, "none") X(RECOMPUTE, LIGHT, "light[:N]") \
    X(RECOMPUTE, ATTENTION, "attention[:N]") X(RECOMPUTE, BLOCK, "block[:N]") \
    X(RECOMPUTE, AUTO, "auto")
#define CONF_CONVOY_BLAS_LIST(X) \
    X(CONVOY_BLAS, AUTO, "auto") X(CONVOY_BLAS, PLAIN, "plain") X(CONVOY_BLAS, OFF, "off")
#define CONF_ATTENTION_LIST(X) \
    X(ATTENTION, AUTO, "auto") X(ATTENTION, OWN, "own") X(ATTENTION, CUDNN, "cudnn")
#define CONF_ATTENTION_MASK_LIST(X) \
    X(ATTENTION_MASK, CAUSAL, "causal") X(ATTENTION_MASK, DOCUMENT, "document")
#define CONF_CUDA_GRAPH_LIST(X) X(CUDA_GRAPH, AUTO, "auto") X(CUDA_GRAPH, OFF, "off")
#define CONF_BACKEND_LIST(X) \
    X(BACKEND, AUTO, "auto") X(BACKEND, SELF, "self") X(BACKEND, TCP, "tcp") \
    X(BACKEND, UCX, "ucx") X(BACKEND, UCC, "ucc") X(BACKEND, NCCL, "nccl")
#define CONF_SHARD_LIST(X) \
    X(SHARD, NONE, "none") X(SHARD, OPTIMIZER, "optimizer") X(SHARD, GRADIENTS, "gradients") \
    X(SHARD, FULL, "full") X(SHARD, HYBRID, "hybrid") X(SHARD, AUTO, "auto")
#define CONF_COMPRESS_LIST(X) \
    X(COMPRESS, NONE, "none") X(COMPRESS, BF16, "bf16") X(COMPRESS, INT8, "int8") \
    X(COMPRESS, INT4, "int4") X(COMPRESS, INT8_ZSTD, "int8-zstd") \
    X(COMPRESS, INT4_ZSTD, "int4-zstd")
#define CONF_LINK_LIST(X) X(LINK, OFF, "off") X(LINK, AUTO, "auto")
#define CONF_BALANCE_LIST(X) X(BALANCE, OFF, "off") X(BALANCE, AUTO, "auto")
#define CONF_EXACT_LIST(X) X(EXACT, OFF, "off") X(EXACT, LAYOUT, "layout")
#define CONF_PEER_COPIES_LIST(X) \
    X(PEER_COPIES, AUTO, "auto") X(PEER_COPIES, OFF, "0") X(PEER_COPIES, ON, "1")
#define CONF_ON_LOSS_LIST(X) X(ON_LOSS, WAIT, "wait") X(ON_LOSS, SHRINK, "shrink")
#define CONF_CHECK_LIST(X) \
    X(CHECK, OFF, "off") X(CHECK, QUICK, "quick") X(CHECK, STANDARD, "standard") \
    X(CHECK, FULL, "full")
#define CONF_LOG_FORMAT_LIST(X) X(LOG_FORMAT, TEXT, "text") X(LOG_FORMAT, JSON, "json")
#define CONF_LOG_LEVEL_LIST(X) \
    X(LOG_LEVEL, ERROR, "error") X(LOG_LEVEL, WARN, "warn") X(LOG_LEVEL, INFO, "info") \
    X(LOG_LEVEL, DEBUG, "debug") X(LOG_LEVEL, TRACE, "trace")
#define CONF_BENCH_OVER_LIST(X) \
    X(BENCH_OVER, MEMORY, "memory") X(BENCH_OVER, TCP, "tcp") X(BENCH_OVER, UCX, "ucx")
#define CONF_SPIKE_LIST(X) X(SPIKE, OFF, "off") X(SPIKE, STOP, "stop") X(SPIKE, SKIP, "skip")
#define CONF_MESH_LIST(X) X(MESH, SET, "set") X(MESH, AUTO, "auto")
/* The kinds of FAULT, to which FAULT adds a step and a rank. */
#define CONF_FAULT_LIST(X) \
    X(FAULT, NONE, "") X(FAULT, KILL, "kill") X(FAULT, STALL, "stall") X(FAULT, NAN, "nan") \
    X(FAULT, SLOW, "slow") X(FAULT, FLIP, "flip") X(FAULT, ENOSPC, "enospc") \
    X(FAULT, SPIKE, "spike") X(FAULT, GRADIENT, "gradient")
/* clang-format on */

/* CONF_WORDS — "lm|qa" for TASK: the words of a row, in the order of its enum. */
#define CONF_WORDS(row) (&"" CONF_##row##_LIST(CONF_CHOICE_WORD)[1])
#define CONF_CHOICE_WORD(row, value, word) "|" word

/* enum conf_TASK { CONF_TASK_LM, CONF_TASK_QA } and so on: one for each CHOICE row, and for
 * FAULT. */
#define CONF_ENUM_CHOICE(row) enum conf_##row{CONF_##row##_LIST(CONF_CHOICE_VALUE)};
#define CONF_ENUM_FAULT(row) CONF_ENUM_CHOICE(row)
#define CONF_CHOICE_VALUE(row, value, word) CONF_##row##_##value,
#define CONF_ENUM_INT(row)
#define CONF_ENUM_REAL(row)
#define CONF_ENUM_DURATION(row)
#define CONF_ENUM_BOOL(row)
#define CONF_ENUM_PRESENT(row)
#define CONF_ENUM_TEXT(row)
#define CONF_ENUM_HOST(row)
#define CONF_ENUM_MULTILINE(row)
#define CONF_ENUM_SECRET(row)
#define CONF_ROW(name, kind, ...) CONF_ENUM_##kind(name)
#include "conf/conf.def"
#include "conf/conf_hooks.def"
#undef CONF_ROW

/* CONF_CHOICE_IS — asserts that a value of a choice has the same number as a value of another
 * enum. */
#define CONF_CHOICE_IS(ours, theirs) \
    _Static_assert((int)(ours) == (int)(theirs), #ours " differs from " #theirs);

#endif
