#!/usr/bin/env python3
"""compare.py — models that Convoy exports load in transformers without a missing or unexpected tensor and have the same logits;
random models that transformers saves import and have the same logits and the same loss in `convoy eval`.

    compare.py CONVOY LOGITS SPLIT FOLDER    LOGITS: tests/golden/test_hf_export, SPLIT: tests/transformers/split_folder

Run by `make transformers-check`. Speaks TAP. Differences are relative to the largest logit; the reference is transformers in float64.
"""
import json
import os
import subprocess
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

LIMIT = 1e-5
convoy, logits_of, split, work = sys.argv[1:5]
is_5 = int(transformers.__version__.split(".")[0]) >= 5
tests_n = 0
failed_n = 0


def report(is_ok, name, detail):
    global tests_n, failed_n
    tests_n += 1
    failed_n += not is_ok
    print(f"{'ok' if is_ok else 'not ok'} {tests_n} - {name}: {detail}", flush=True)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} …: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout


def ids_of(vocab, n):
    return [(37 * i * i + 11 * i + 5) % vocab for i in range(n)]


def convoy_logits(path, ids):
    rows = run(logits_of, path, *map(str, ids)).splitlines()
    return torch.tensor([[float(x) for x in row.split()] for row in rows], dtype=torch.float64)


def loaded(folder):
    """The folder as transformers loads it, in float64; every tensor has to be found and none left over."""
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    bad = {key: list(info[key]) for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[key]}
    if bad:
        raise RuntimeError(f"tensors of {folder}: {bad}")
    assert next(model.parameters()).dtype == torch.float32, "not loaded as fp32"
    return model.eval().double()


def transformers_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double()


def difference(got, want):
    assert got.shape == want.shape, (got.shape, want.shape)
    largest = want.abs().max().item()
    assert largest > 0.1, f"logits up to {largest} only: they would hide a difference"
    return (got - want).abs().max().item() / largest


def guarded(name, check):
    """An exception fails this check alone."""
    try:
        check()
    except Exception as e:  # a library's own errors included
        report(False, name, f"{type(e).__name__}: {e}".replace("\n", " ")[:1500])


# --- Convoy → transformers

EXPORTS = {
    "gpt2": "MODEL=gpt2-nano LAYERS=3 HEADS=3 EMBED=39",
    "llama, grouped heads, untied": "MODEL=llama-2-7b LAYERS=3 HEADS=6 KV_HEADS=2 HEAD_DIM=10 EMBED=42 FFN=51",
    "llama 3.2, tied": "MODEL=llama-3.2-1b LAYERS=2 HEADS=4 KV_HEADS=1 HEAD_DIM=6 EMBED=28 FFN=35",
    "qwen2": "MODEL=qwen2.5-0.5b LAYERS=3 HEADS=4 KV_HEADS=2 HEAD_DIM=14 EMBED=56 FFN=61",
    "qwen3": "MODEL=qwen3-0.6b LAYERS=3 HEADS=6 KV_HEADS=3 HEAD_DIM=18 EMBED=30 FFN=47",
    "gpt_neox": "MODEL=pythia-160m LAYERS=3 HEADS=3 EMBED=48 FFN=67",
}


def trained(name, settings):
    """A few steps at a large rate: weights of every tensor leave zero and one."""
    folder = f"{work}/run-{name.split(',')[0].replace(' ', '-')}"
    run(convoy, "train", *settings.split(), "VOCAB=211", "CONTEXT=96", "SEQ_LEN=33", "BATCH_SIZE=3", "STEPS=12", "LR=3e-2",
        "WARMUP_STEPS=0", "DATA=synthetic", "STATUS_PORT=0", f"CHECKPOINT_DIR={folder}")
    return folder


def check_export(name, settings):
    folder = trained(name, settings)
    run(convoy, "export", f"FROM={folder}", f"TO={folder}-hf")
    ids = ids_of(211, 96)
    got = convoy_logits(folder, ids)
    model = loaded(f"{folder}-hf")
    far = difference(got, transformers_logits(model, ids))
    report(far <= LIMIT, f"export of {name}", f"{type(model).__name__}, difference {far:.2g}")
    run(split, f"{folder}-hf", f"{folder}-files", "20000")
    files_n = sum(f.endswith(".safetensors") for f in os.listdir(f"{folder}-files"))
    far = difference(got, transformers_logits(loaded(f"{folder}-files"), ids))
    report(far <= LIMIT and files_n > 1, f"export of {name} in several files", f"{files_n} files, difference {far:.2g}")


# --- transformers → Convoy

def rope(theta, **kind):
    """Rotary positions as this version of transformers is given them."""
    if is_5:
        return {"rope_parameters": {"rope_theta": theta, "rope_type": "default", **kind}}
    return {"rope_theta": theta, **({"rope_scaling": kind} if kind else {})}


def neox_rope(share):
    if is_5:
        return {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": share}}
    return {"rotary_pct": share}


GROUPED = dict(vocab_size=211, hidden_size=60, intermediate_size=51, num_hidden_layers=3, num_attention_heads=6,
               num_key_value_heads=2, max_position_embeddings=96, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=24)
LINEAR = dict(rope_type="linear", factor=3.0)
NEOX = dict(vocab_size=211, hidden_size=48, intermediate_size=67, num_hidden_layers=3, num_attention_heads=3,
            max_position_embeddings=96, bos_token_id=0, eos_token_id=0)


def imports():
    yield "gpt2", GPT2Config(vocab_size=211, n_positions=96, n_embd=39, n_head=3, n_layer=3, bos_token_id=0, eos_token_id=0)
    yield "llama", LlamaConfig(**GROUPED, **rope(10000.0), tie_word_embeddings=False, rms_norm_eps=1e-5)
    yield "llama, scaled as Llama 3, tied", LlamaConfig(**GROUPED, **rope(50000.0, **LLAMA3), tie_word_embeddings=True)
    yield "llama, linear", LlamaConfig(**GROUPED, **rope(10000.0, **LINEAR))
    yield "mistral", MistralConfig(**GROUPED, head_dim=14, sliding_window=None, **rope(10000.0))
    yield "qwen2", Qwen2Config(**GROUPED, use_sliding_window=False, **rope(1e6), tie_word_embeddings=True)
    yield "qwen3", Qwen3Config(**GROUPED, head_dim=18, use_sliding_window=False, **rope(1e6))
    yield "qwen3, yarn", Qwen3Config(**GROUPED, head_dim=18, use_sliding_window=False, **rope(1e4, **YARN))
    yield "gpt_neox", GPTNeoXConfig(**NEOX, **neox_rope(0.25), use_parallel_residual=True)
    yield "gpt_neox, serial", GPTNeoXConfig(**NEOX, **neox_rope(1.0), use_parallel_residual=False)


def random_model(config, seed):
    """Biases and norms too: zeros and ones would hide tensors that changed places."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_scale = p.dim() == 1 and name.endswith("weight")
            p.copy_(torch.randn(p.shape, generator=g) * 0.15 + (1.0 if is_scale else 0.0))
    return model


def token_file(path, ids):
    """llm.c's: 256 int32, then uint16 ids."""
    header = [20240520, 1, len(ids)] + [0] * 253
    with open(path, "wb") as f:
        f.write(b"".join(x.to_bytes(4, "little") for x in header))
        f.write(b"".join(x.to_bytes(2, "little") for x in ids))


def loss_of(model, ids):
    x, y = torch.tensor([ids[:-1]]), torch.tensor(ids[1:])
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(x).logits[0].double(), y).item()


def check_import(number, name, config):
    folder = f"{work}/random-{number}"
    model = random_model(config, number)
    model.save_pretrained(folder, **({"max_shard_size": "20KB"} if number % 2 else {}))
    files_n = sum(f.endswith(".safetensors") for f in os.listdir(folder))
    model = model.double()
    run(convoy, "import", f"FROM={folder}", f"TO={folder}-run")
    ids = ids_of(211, 96)
    far = difference(convoy_logits(f"{folder}-run", ids), transformers_logits(model, ids))
    report(far <= LIMIT, f"import of {name} ({files_n} files)", f"difference {far:.2g}")
    ids = ids_of(211, 90)
    token_file(f"{folder}.bin", ids)
    line = run(convoy, "eval", f"CHECKPOINT_DIR={folder}-run", f"VAL_DATA={folder}.bin", "SEQ_LEN=89", "BATCH_SIZE=1", "JSON=1")
    got, want = json.loads(line), loss_of(model, ids)
    far = abs(got["loss"] - want) / want
    report(far <= LIMIT and got["tokens"] == 89, f"eval of {name}", f"loss {got['loss']:.7f}, difference {far:.2g}")
    run(convoy, "export", f"FROM={folder}-run", f"TO={folder}-again")
    ids = ids_of(211, 96)
    far = difference(transformers_logits(loaded(f"{folder}-again"), ids), transformers_logits(model, ids))
    report(far <= 1e-12, f"{name} exported again", f"difference {far:.2g}")


print(f"# python {sys.version.split()[0]}, torch {torch.__version__}, transformers {transformers.__version__}", flush=True)
torch.set_num_threads(1)
transformers.utils.logging.disable_progress_bar()
for name, settings in EXPORTS.items():
    guarded(f"export of {name}", lambda: check_export(name, settings))
for number, (name, config) in enumerate(imports(), 1):
    guarded(f"import of {name}", lambda: check_import(number, name, config))
print(f"1..{tests_n}")
sys.exit(failed_n > 0)
