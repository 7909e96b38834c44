"""Compares GGUF files of `convoy export` with the package gguf, which llama.cpp's converter uses.

compare.py CONVOY GOLDEN TEXT FOLDER: imports the models in GOLDEN, exports each with every type, and prints a TAP
line for each comparison. Names come from the package's table, orders of rows from the converter's description, bytes
from the package's quantize, and values that `convoy import` reads from its dequantize."""
import json, os, subprocess, sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

CONVOY, GOLDEN, TEXT, FOLDER = sys.argv[1:5]
MODELS = {"llama": "llama", "llama3rope": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "neox": "gptneox",
          "hf_export/lm": "gpt2"}
TYPES = {"F32": Type.F32, "F16": Type.F16, "BF16": Type.BF16, "Q8_0": Type.Q8_0}
os.chdir(FOLDER)
tests = failed = 0


def test(name, problem):
    global tests, failed
    tests += 1
    failed += bool(problem)
    print(f"{'not ' if problem else ''}ok {tests} - {name}{f': {problem}' if problem else ''}", flush=True)


def convoy(*args):
    run = subprocess.run([CONVOY, *args], capture_output=True, text=True)
    return "" if run.returncode == 0 else run.stderr.strip().splitlines()[-1]


def load(path):
    """The tensors of a safetensors file of f32."""
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    return {name: np.frombuffer(data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]], np.float32).reshape(t["shape"])
            for name, t in head.items()}


def name_of(names, name):
    """The package's name of a parameter; None: it has none."""
    for prefix in ("", "model.", "gpt_neox.", "transformer."):
        found = names.get_name(prefix + name, try_suffixes=(".weight", ".bias"))
        if found:
            return found


def turn(name, x, dims):
    """Our layout to the converter's."""
    heads, kv_heads = dims["heads"], dims.get("kv_heads", dims["heads"])
    if dims["arch"] == "llama" and ("q_proj" in name or "k_proj" in name):
        n = heads if "q_proj" in name else kv_heads
        return x.reshape(n, 2, x.shape[0] // n // 2, -1).swapaxes(1, 2).reshape(x.shape)
    if "query_key_value" in name:
        return x.reshape(heads, 3, x.shape[0] // heads // 3, -1).swapaxes(0, 1).reshape(x.shape)
    return x.T.copy() if dims["arch"] == "gpt2" and x.ndim == 2 and name.startswith("h.") else x


def turn_back(name, x, dims):
    heads, kv_heads = dims["heads"], dims.get("kv_heads", dims["heads"])
    if dims["arch"] == "llama" and ("q_proj" in name or "k_proj" in name):
        n = heads if "q_proj" in name else kv_heads
        return x.reshape(n, x.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(x.shape)
    if "query_key_value" in name:
        return x.reshape(3, heads, x.shape[0] // heads // 3, -1).swapaxes(0, 1).reshape(x.shape)
    return x.T.copy() if dims["arch"] == "gpt2" and x.ndim == 2 and name.startswith("h.") else x


def same_tensors(reader, ours, dims, names, kind):
    """"" if names, shapes, types and bytes are those of the package."""
    tensors = {t.name: t for t in reader.tensors}
    extra = {"rope_freqs.weight"} & set(tensors)
    if len(tensors) - len(extra) != len(ours):
        return f"{len(tensors)} tensors for {len(ours)} parameters"
    for name, x in ours.items():
        theirs = name_of(names, name)
        t = tensors.get(theirs)
        x = turn(name, x, dims)
        want = Type.F32 if x.ndim == 1 or name == "wpe.weight" else kind
        if want == Type.Q8_0 and x.shape[1] % 32:
            want = Type.F16
        if t is None or t.tensor_type != want or list(reversed(t.shape.tolist())) != list(x.shape):
            return f"{name}: {theirs} is {t and (t.tensor_type, t.shape)}, expected {want} {x.shape}"
        if t.data.tobytes() != gguf.quants.quantize(x, want).tobytes():
            return f"{name}: the bytes differ"
    return ""


def same_values(reader, ours, dims, names):
    """"" if the imported values are those that the package dequantizes."""
    tensors = {t.name: t for t in reader.tensors}
    for name, x in ours.items():
        t = tensors[name_of(names, name)]
        want = turn_back(name, gguf.quants.dequantize(t.data, t.tensor_type).reshape(turn(name, x, dims).shape), dims)
        if want.astype(np.float32).tobytes() != x.tobytes():
            return f"{name}: the values differ"
    return ""


def same_keys(reader, dims):
    arch = dims["arch"]
    want = {"general.architecture": arch, f"{arch}.block_count": dims["layers"], f"{arch}.embedding_length": dims["embed"],
            f"{arch}.context_length": dims["context"], f"{arch}.attention.head_count": dims["heads"],
            f"{arch}.vocab_size": dims["vocab"], "general.quantization_version": 2}
    have = {key: field.contents() for key, field in reader.fields.items()}
    return "; ".join(f"{key} is {have.get(key)}, expected {value}" for key, value in want.items() if have.get(key) != value)


def compare(model, arch):
    run = model.replace("/", "-")
    problem = convoy("import", f"FROM={GOLDEN}/{model}", f"TO={run}")
    if problem:
        return test(f"{model}: imports", problem)
    ours = load(f"{run}/step-00000000/model.safetensors")
    dims = dict(json.load(open(f"{run}/step-00000000/manifest.json"))["model"], arch=arch)
    number = [i for i, name in gguf.MODEL_ARCH_NAMES.items() if name == arch][0]
    names = gguf.get_tensor_name_map(number, dims["layers"])
    for word, kind in TYPES.items():
        path = f"{run}-{word}.gguf"
        problem = convoy("export", f"FROM={run}", f"TO={path}")
        if problem:
            test(f"{path}: exports", problem)
            continue
        reader = gguf.GGUFReader(path)
        test(f"{path}: the keys of the model", same_keys(reader, dims))
        test(f"{path}: names, shapes, types and bytes of the package", same_tensors(reader, ours, dims, names, kind))
        problem = convoy("import", f"FROM={path}", f"TO={path}-in")
        test(f"{path}: import reads the package's values",
             problem or same_values(reader, load(f"{path}-in/step-00000000/model.safetensors"), dims, names))


def compare_tokenizer():
    """A trained tokenizer with a chat template and an added token, for a model with more rows."""
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}é"
    convoy("train-tokenizer", f"DATA={TEXT}", "OUT=words", "VOCAB=500")
    document = json.load(open("words/tokenizer.json"))
    for i, content in enumerate(["<|im_start|>", "<|im_end|>", "<tool>"]):
        document["added_tokens"].append(dict(document["added_tokens"][0], id=500 + i, content=content, special=content != "<tool>"))
    json.dump(document, open("words/tokenizer.json", "w"))
    config = {"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}, "chat_template": template}
    json.dump(config, open("words/tokenizer_config.json", "w"))
    problem = convoy("train", "MODEL=llama-toy", "LAYERS=1", "HEADS=2", "KV_HEADS=1", "EMBED=32", "HEAD_DIM=16", "FFN=32", "VOCAB=512",
                     "CONTEXT=32", "SEQ_LEN=16", "BATCH_SIZE=1", "STEPS=1", f"DATA={TEXT}", "TOKENIZER=words",
                     "CHECKPOINT_DIR=trained", "STATUS_PORT=0") or convoy("export", "FROM=trained", "TO=trained.gguf")
    if problem:
        return test("a trained tokenizer", problem)
    have = {key: field.contents() for key, field in gguf.GGUFReader("trained.gguf").fields.items()}
    tokens, types = [f"[PAD{i}]" for i in range(512)], [gguf.TokenType.UNUSED] * 512
    for token, i in document["model"]["vocab"].items():
        tokens[i], types[i] = token, gguf.TokenType.NORMAL
    for added in document["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in document["model"]["merges"]]
    want = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": types, "merges": merges, "eos_token_id": 501,
            "padding_token_id": tokens.index("<|endoftext|>"), "add_bos_token": False}
    for key, value in want.items():
        got = have.get("tokenizer.ggml." + key)
        test(f"a trained tokenizer: {key}", "" if got == value else f"{got!r:.200}, expected {value!r:.200}")
    test("its chat template", "" if have.get("tokenizer.chat_template") == template else have.get("tokenizer.chat_template"))


for model, arch in MODELS.items():
    compare(model, arch)
compare_tokenizer()
print(f"1..{tests}")
sys.exit(failed > 0)
