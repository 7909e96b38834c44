#!/usr/bin/env python3
"""make.py — writes the files beside it: small random GPT-2s as transformers saves them, the same weights as llm.c model
files, and the logits that transformers computes from them in float64.

Made once with Python 3.11, torch 2.15.0 (CPU), transformers 5.23.0, safetensors 0.8.0:
    python3 make.py
The suite needs none of these; test_hf_export.c reads what is here.
"""
import json, os, shutil
import numpy as np
import torch
from transformers import GPT2Config, GPT2ForQuestionAnswering, GPT2LMHeadModel

here = os.path.dirname(os.path.abspath(__file__))
V, T, C, H, L = 31, 24, 12, 3, 2
ids = torch.tensor([[(7 * i + 3 * b + i * i) % V for i in range(T)] for b in range(2)])


def randomize(model, seed):
    """Biases and LayerNorms too: zeros and ones would hide tensors that changed places."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.2 + (1.0 if ".ln_" in name and name.endswith("weight") else 0.0))
    return model.eval()


def logits(model):
    with torch.no_grad():
        out = model.double()(ids)
    model.float()
    if hasattr(out, "logits"):
        return out.logits.tolist()
    return torch.stack([out.start_logits, out.end_logits], -1).tolist()


def write_llmc(model, path, version):
    """llm.c's model file: 256 int32, then every tensor for all layers at once, matrices as (out, in)."""
    dtype = {3: torch.float32, 5: torch.bfloat16}[version]
    padded = (V + 127) // 128 * 128
    header = np.zeros(256, dtype="<i4")
    header[:8] = [20240326, version, T, V, L, H, C, padded]
    sd = model.state_dict()
    wte = torch.zeros(padded, C)
    wte[:V] = sd["transformer.wte.weight"]

    def layers(name, turn=False):
        return [sd[f"transformer.h.{i}.{name}"].t() if turn else sd[f"transformer.h.{i}.{name}"] for i in range(L)]

    tensors = [wte, sd["transformer.wpe.weight"]]
    for name, turn in [("ln_1.weight", 0), ("ln_1.bias", 0), ("attn.c_attn.weight", 1), ("attn.c_attn.bias", 0),
                       ("attn.c_proj.weight", 1), ("attn.c_proj.bias", 0), ("ln_2.weight", 0), ("ln_2.bias", 0),
                       ("mlp.c_fc.weight", 1), ("mlp.c_fc.bias", 0), ("mlp.c_proj.weight", 1), ("mlp.c_proj.bias", 0)]:
        tensors += layers(name, turn)
    tensors += [sd["transformer.ln_f.weight"], sd["transformer.ln_f.bias"]]
    with open(path, "wb") as f:
        f.write(header.tobytes())
        for t in tensors:
            t = t.contiguous().to(dtype)
            f.write((t.view(torch.int16) if version == 5 else t).numpy().tobytes())


def save(model, name, **how):
    folder = os.path.join(here, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **how)
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(folder, extra)):
            os.remove(os.path.join(folder, extra))


config = GPT2Config(vocab_size=V, n_positions=T, n_embd=C, n_head=H, n_layer=L, resid_pdrop=0.0, embd_pdrop=0.0,
                    attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
lm = randomize(GPT2LMHeadModel(config), 1)
qa = randomize(GPT2ForQuestionAnswering(config), 2)
save(lm, "lm", max_shard_size="6KB")
save(qa, "qa")
write_llmc(lm, os.path.join(here, "lm_f32.bin"), 3)
write_llmc(lm, os.path.join(here, "lm_bf16.bin"), 5)
expected = {"tokens": ids.tolist(), "lm": logits(lm), "qa": logits(qa)}
expected["lm_bf16"] = logits(lm.bfloat16().float())
round9 = lambda x: [round9(y) for y in x] if isinstance(x, list) else float(f"{x:.9g}") if isinstance(x, float) else x
with open(os.path.join(here, "expected.json"), "w") as f:
    json.dump(round9(expected), f, separators=(",", ":"))
    f.write("\n")
