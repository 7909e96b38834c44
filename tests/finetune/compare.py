"""Compares adapters with PEFT: of each model lora_* of tests/golden an adapter is trained and exported by Convoy, in fp32.

transformers loads the model with the PEFT folder, and the merged model: the logits are equal within 1e-5 of the largest. Convoy goes on
from PEFT's own folder. usage: compare.py CONVOY GOLDEN. Prints TAP.
"""
import os
import struct
import subprocess
import sys
import tempfile

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

convoy, golden = map(os.path.abspath, sys.argv[1:3])
models = ["lora_gpt2", "lora_llama", "lora_qwen3", "lora_neox"]
points = 0


def ok(name, passed, note=""):
    global points
    points += 1
    print(f"{'ok' if passed else 'not ok'} {points} - {name}{' # ' + note if note else ''}", flush=True)


def run(*words):
    done = subprocess.run([convoy, *words], capture_output=True, text=True)
    if done.returncode:
        print(f"# {' '.join(words)}: {done.returncode}\n# {done.stderr}", flush=True)
    return done.returncode == 0


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits


def apart(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


for name in models:
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        base, adapter = f"{golden}/{name}/base", f"{golden}/{name}/adapter"
        torch.manual_seed(1)
        ids = torch.randint(0, 250, (2, 40))
        tokens = torch.randint(0, 250, (4000,)).tolist()
        with open("tokens.bin", "wb") as out:
            out.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253))
            out.write(struct.pack(f"<{len(tokens)}H", *tokens))
        trained = run("train", f"MODEL={base}", f"ADAPTER={adapter}", "DATA=tokens.bin", "SEQ_LEN=32", "BATCH_SIZE=4", "STEPS=5", "LR=1e-2",
                      "CHECKPOINT_DIR=run", "DEVICE=cpu", "STATUS_PORT=0")
        ok(f"{name}: Convoy trains on from PEFT's folder", trained)
        ok(f"{name}: Convoy writes a folder of PEFT", run("export", "FROM=run", "TO=peft"))
        ok(f"{name}: and the merged model", run("export", "FROM=run", f"MODEL={base}", "TO=merged"))
        plain = logits(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), ids)
        beside = logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), "peft"), ids)
        merged = logits(AutoModelForCausalLM.from_pretrained("merged", dtype=torch.float32), ids)
        far = apart(beside, merged)
        ok(f"{name}: the model with PEFT equals the merged model", far < 1e-5, f"{far:.1e} apart")
        ok(f"{name}: the adapter changes the logits", apart(beside, plain) > 1e-2, f"{apart(beside, plain):.1e}")
        os.chdir("/")
print(f"1..{points}")
