#!/usr/bin/env python3
"""show.py — what convoy exports loads in transformers and answers the same; what transformers saves imports and has the
same loss. Needs what make.py needs, and `make tests` done:  python3 show.py   (from the top folder; BUILD names the build)
"""
import json, os, subprocess, sys, tempfile
import numpy as np
import torch
from transformers import (AutoTokenizer, GPT2Config, GPT2ForQuestionAnswering, GPT2LMHeadModel, GPT2Tokenizer,
                          GPT2TokenizerFast)

build = os.environ.get("BUILD", "build")
convoy, tool = os.path.join(build, "convoy"), os.path.join(build, "tests/golden/test_hf_export")
work = tempfile.mkdtemp(prefix="convoy-show-")


def run(*args):
    subprocess.run([convoy, *args, "STATUS_PORT=0"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ours(folder, ids):
    text = subprocess.run([tool, folder, *map(str, ids)], check=True, capture_output=True, text=True).stdout
    return torch.tensor([[float(x) for x in row.split()] for row in text.splitlines()], dtype=torch.float64)


def theirs(model, ids):
    with torch.no_grad():
        out = model.eval()(torch.tensor([ids]))
    if hasattr(out, "logits"):
        return out.logits[0].double()
    return torch.stack([out.start_logits[0], out.end_logits[0]], -1).double()


def exported(task, kind):
    """Two steps of gpt2-nano, out, and into transformers."""
    run_dir, folder = f"{work}/{task}", f"{work}/{task}-hf"
    run("train", "MODEL=gpt2-nano", f"TASK={task}", "DATA=synthetic", "STEPS=2", "SEQ_LEN=64", "BATCH_SIZE=2", "LR=1e-2",
        f"CHECKPOINT_DIR={run_dir}")
    run("export", f"FROM={run_dir}", f"TO={folder}")
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    ids = [(37 * i * i + 11 * i) % 50257 for i in range(128)]
    a, b, c = ours(folder, ids), theirs(model, ids), theirs(model.double(), ids)
    print(f"export {task}: logits {tuple(a.shape)} up to {a.abs().max():.3f}; largest difference to transformers fp32 "
          f"{(a - b).abs().max():.2g}, fp64 {(a - c).abs().max():.2g} (theirs fp32 to fp64 {(b - c).abs().max():.2g}); "
          f"dtype {getattr(model.config, 'dtype', None) or model.config.torch_dtype}")
    run("import", f"FROM={folder}", f"TO={run_dir}-again")
    run("export", f"FROM={run_dir}-again", f"TO={folder}-again")
    same = open(f"{folder}/model.safetensors", "rb").read() == open(f"{folder}-again/model.safetensors", "rb").read()
    print(f"export {task}: import and export again gives the same bytes: {same}")
    return folder


def tokenizers(folder, data):
    text = open(data, encoding="utf-8").read()[:200000] + " naïve 東京 \U0001f600\u00a0\t\r\n  x  'll I'M \x00\x01"
    path = f"{work}/text"
    open(path, "w", encoding="utf-8", newline="").write(text)
    run("tokenize", f"DATA={path}", f"OUT={work}/text.bin")
    want = np.fromfile(f"{work}/text.bin", dtype="<u2", offset=1024).tolist()
    for kind in (GPT2TokenizerFast, GPT2Tokenizer, AutoTokenizer):
        t = kind.from_pretrained(folder)
        got = t(text)["input_ids"]
        print(f"tokenizer {kind.__name__} ({type(t).__name__}): {len(got)} ids, equal to ours: {got == want}, "
              f"decodes back: {t.decode(got, clean_up_tokenization_spaces=False) == text}, eos {t.eos_token_id}, "
              f"len {len(t)}, max {t.model_max_length}")
    for gone in ("vocab.json", "merges.txt"):
        os.rename(f"{folder}/{gone}", f"{work}/{gone}")
    print("tokenizer.json alone:", GPT2TokenizerFast.from_pretrained(folder)(text)["input_ids"] == want)
    for gone in ("vocab.json", "merges.txt"):
        os.rename(f"{work}/{gone}", f"{folder}/{gone}")
    os.rename(f"{folder}/tokenizer.json", f"{work}/tokenizer.json")
    print("vocab.json and merges.txt alone:", GPT2TokenizerFast.from_pretrained(folder)(text)["input_ids"] == want)
    os.rename(f"{work}/tokenizer.json", f"{folder}/tokenizer.json")


def imported(shard_size):
    """A random GPT-2 of transformers, in; the loss of the first step."""
    torch.manual_seed(5)
    config = GPT2Config(vocab_size=50257, n_positions=256, n_embd=128, n_head=4, n_layer=4, initializer_range=0.05)
    model, folder = GPT2LMHeadModel(config).eval(), f"{work}/random-{shard_size}"
    model.save_pretrained(folder, max_shard_size=shard_size)
    ids = np.random.default_rng(1).integers(0, 50257, 4 * 256 + 1)
    header = np.zeros(256, dtype="<i4")
    header[:3] = [20240520, 1, len(ids)]
    open(f"{work}/ids.bin", "wb").write(header.tobytes() + ids.astype("<u2").tobytes())
    common = [f"DATA={work}/ids.bin", "SEQ_LEN=256", "BATCH_SIZE=4", "SHUFFLE=0", "STEPS=1"]
    run("import", f"FROM={folder}", f"TO={folder}-run")
    run("train", f"MODEL={folder}", *common, f"METRICS_FILE={folder}.a")
    run("train", f"MODEL={folder}", *common, f"CHECKPOINT_DIR={folder}-run", "RESUME=required", f"METRICS_FILE={folder}.b")
    a, b = (json.loads(open(f"{folder}.{x}").readline())["loss"] for x in "ab")
    x, y = (torch.tensor(ids[i:i + 4 * 256].reshape(4, 256)) for i in (0, 1))
    with torch.no_grad():
        want = torch.nn.functional.cross_entropy(model.double()(x).logits.reshape(-1, 50257), y.reshape(-1)).item()
    files = len([f for f in os.listdir(folder) if f.endswith(".safetensors")])
    print(f"import of {files} file(s): loss {a!r} by MODEL, {b!r} from the checkpoint, transformers fp64 {want!r}: "
          f"relative difference {abs(a - want) / want:.2g}")


import transformers
print("python", sys.version.split()[0], "torch", torch.__version__, "transformers", transformers.__version__)
lm = exported("lm", GPT2LMHeadModel)
exported("qa", GPT2ForQuestionAnswering)
tokenizers(lm, sys.argv[1] if len(sys.argv) > 1 else "README.md")
imported("100MB")
imported("8MB")
