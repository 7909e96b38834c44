#!/usr/bin/env python3
"""gpt2_runs.py NAME... — writes tests/golden/NAME: ten updates of a small GPT-2 by PyTorch in float64, for test_golden.c.

  muon     GPT-2, hidden matrices by torch.optim.Muon (adjust_lr_fn match_rms_adamw), the rest by AdamW.
           Its Newton–Schulz iteration is computed in float64 here (torch takes bfloat16); what torch
           makes of it in bfloat16 is recorded beside it, as `torch.NAME`.
  modern   GPT-2 with a squared ReLU, rotary positions, RMSNorm of queries and keys, an untied head and
           a soft cap of logits, by AdamW.
  qknorm   GPT-2 with the norms and the cap alone.

Made once with Python 3.11, torch 2.15.0 (CPU), safetensors:
    python3 tests/golden/gpt2_runs.py muon modern qknorm
The suite needs none of these; it reads what is here.
"""
import json, math, os, struct, sys
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

V, CONTEXT, C, H, L, B, T, STEPS = 97, 24, 24, 2, 2, 3, 20, 10
D = C // H
# eps: large enough that AdamW does not make updates of the rounding noise that gradients of zero are
HYPER = dict(seq=T, batch=B, steps=STEPS, warmup=3, lr=2e-3, min_lr=1e-4, weight_decay=0.1, clip=1.0, momentum=0.0,
             beta1=0.9, beta2=0.95, eps=1e-6, schedule="cosine", optimizer="adamw")
PLAIN = dict(relu2=False, rope=False, qk_norm=False, untied=False, cap=0.0)
MODELS = {"muon": dict(hyper=dict(optimizer="muon", momentum=0.95)),
          "modern": dict(features=dict(relu2=True, rope=True, qk_norm=True, untied=True, cap=3.0)),
          "qknorm": dict(features=dict(qk_norm=True, cap=3.0))}
THETA = 10000
MATRICES = ("q", "k", "v", "att", "up", "down")  # of a block, (out,in), by Muon where asked


def parameters(seed, features):
    """Biases and norms too: zeros and ones would hide tensors that changed places."""
    g = torch.Generator().manual_seed(seed)
    p = {"wte.weight": (V, C)} | ({} if features["rope"] else {"wpe.weight": (CONTEXT, C)})
    p |= {"ln_f.weight": (C,), "ln_f.bias": (C,)}
    p |= {"lm_head.weight": (V, C)} if features["untied"] else {}
    for i in range(L):
        shapes = {"ln_1.weight": (C,), "ln_1.bias": (C,), "ln_2.weight": (C,), "ln_2.bias": (C,), "up": (4 * C, C),
                  "up.bias": (4 * C,), "down": (C, 4 * C), "down.bias": (C,), "att": (C, C), "att.bias": (C,)}
        for x in "qkv":
            shapes |= {x: (C, C), f"{x}.bias": (C,)}
        if features["qk_norm"]:
            shapes |= {"attn.q_norm.weight": (D,), "attn.k_norm.weight": (D,)}
        p |= {f"h.{i}.{name}": shape for name, shape in shapes.items()}
    out = {}
    for name, shape in p.items():
        is_norm = ("ln_" in name or "_norm" in name) and name.endswith("weight")
        x = torch.randn(shape, generator=g, dtype=torch.float64) * 0.2 + (1.0 if is_norm else 0.0)
        out[name] = x.float().double().requires_grad_()  # the file has float32
    return out


def rms_norm(x, w):
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w


def rotate(x):
    """As transformers' rotate_half, over the whole head."""
    angle = torch.arange(T, dtype=torch.float64)[:, None] * THETA ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :D // 2], x[..., D // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attention(p, h, x, features):
    q, k, v = (F.linear(x, p[h + n], p[h + n + ".bias"]).view(B, T, H, D).transpose(1, 2) for n in "qkv")
    if features["qk_norm"]:
        q, k = rms_norm(q, p[h + "attn.q_norm.weight"]), rms_norm(k, p[h + "attn.k_norm.weight"])
    if features["rope"]:
        q, k = rotate(q), rotate(k)
    scores = q @ k.transpose(2, 3) / math.sqrt(D)
    scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
    return F.linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C), p[h + "att"], p[h + "att.bias"])


def forward(p, ids, features):
    x = p["wte.weight"][ids] + (0 if features["rope"] else p["wpe.weight"][:T])
    for i in range(L):
        h = f"h.{i}."
        x = x + attention(p, h, F.layer_norm(x, (C,), p[h + "ln_1.weight"], p[h + "ln_1.bias"]), features)
        y = F.layer_norm(x, (C,), p[h + "ln_2.weight"], p[h + "ln_2.bias"])
        y = F.linear(y, p[h + "up"], p[h + "up.bias"])
        y = F.relu(y).square() if features["relu2"] else F.gelu(y, approximate="tanh")
        x = x + F.linear(y, p[h + "down"], p[h + "down.bias"])
    x = F.layer_norm(x, (C,), p["ln_f.weight"], p["ln_f.bias"])
    logits = x @ p["lm_head.weight" if features["untied"] else "wte.weight"].T
    return features["cap"] * torch.tanh(logits / features["cap"]) if features["cap"] else logits


def rate(hyper, s):
    if s < hyper["warmup"]:
        return hyper["lr"] * (s + 1) / hyper["warmup"]
    r = (s - hyper["warmup"]) / (hyper["steps"] - hyper["warmup"])
    return hyper["min_lr"] + 0.5 * (1 + math.cos(math.pi * r)) * (hyper["lr"] - hyper["min_lr"])


def optimizers(p, hyper):
    hidden = [x for n, x in p.items() if hyper["optimizer"] == "muon" and n.split(".")[-1] in MATRICES]
    rest = [x for x in p.values() if not any(x is y for y in hidden)]
    adamw = dict(betas=(hyper["beta1"], hyper["beta2"]), eps=hyper["eps"])
    groups = [dict(params=[x for x in rest if x.ndim >= 2], weight_decay=hyper["weight_decay"]),
              dict(params=[x for x in rest if x.ndim < 2], weight_decay=0.0)]
    out = [torch.optim.AdamW(groups, **adamw)]
    if hidden:
        out.append(torch.optim.Muon(hidden, weight_decay=hyper["weight_decay"], momentum=hyper["momentum"],
                                    adjust_lr_fn="match_rms_adamw"))
    return out


def update(opts, lr, is_exact):
    half = torch.bfloat16
    for o in opts:
        for group in o.param_groups:
            group["lr"] = lr
        torch.bfloat16 = torch.float64 if is_exact else half  # what Muon converts the matrix to
        o.step()
        torch.bfloat16 = half


def in_file(p, of=lambda x: x):
    """The names and layout of transformers' GPT-2: (in,out) matrices, q, k and v in one."""
    out = {}
    for name, x in p.items():
        h, _, kind = name.rpartition(".") if not name.endswith(".bias") else name[:-5].rpartition(".")
        what = "bias" if name.endswith(".bias") else "weight"
        turn = (lambda t: t.t()) if what == "weight" and kind in MATRICES else (lambda t: t)
        if kind in ("k", "v"):
            continue
        if kind == "q":
            x, name = torch.cat([of(p[f"{h}.{n}" + (".bias" if what == "bias" else "")]) for n in "qkv"]), None
        else:
            x = of(x)
        renamed = dict(q="attn.c_attn", att="attn.c_proj", up="mlp.c_fc", down="mlp.c_proj").get(kind)
        name = f"{h}.{renamed}.{what}" if renamed else name
        out[name if name.startswith("lm_head") else "transformer." + name] = turn(x).float().contiguous()
    return out


def run(hyper, features, seed, ids, is_exact=True):
    p = parameters(seed, features)
    start = in_file(p, lambda x: x.detach().clone())
    opts, steps, first = optimizers(p, hyper), [], {}
    for s in range(hyper["steps"]):
        at = s * B * T
        x, y = ids[at:at + B * T].view(B, T), ids[at + 1:at + B * T + 1].view(B, T)
        logits = forward(p, x, features)
        loss = F.cross_entropy(logits.view(-1, V), y.reshape(-1))
        for q in p.values():
            q.grad = None
        loss.backward()
        if s == 0:
            first = {"grad." + n: t for n, t in in_file(p, lambda x: x.grad.clone()).items()}
            first["logits"] = logits.detach().float().contiguous()
        norm = math.sqrt(sum(float((q.grad ** 2).sum()) for q in p.values()))
        for q in p.values():
            q.grad *= min(1.0, hyper["clip"] / (norm + 1e-6))
        update(opts, rate(hyper, s), is_exact)
        steps.append(dict(step=s + 1, loss=loss.item(), grad_norm=norm, lr=rate(hyper, s)))
    return start, first, in_file(p, lambda x: x.detach()), steps


def write_tokens(path, ids):
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253))
        f.write(struct.pack(f"<{len(ids)}H", *ids.tolist()))


def manifest(name, features):
    out = dict(name=name, task="lm", layers=L, heads=H, embed=C, context=CONTEXT, vocab=V, arch="gpt2-modern",
               mlp="relu2" if features["relu2"] else "gelu_tanh", qk_norm=int(features["qk_norm"]), untied=int(features["untied"]),
               logit_cap=features["cap"])
    return out | (dict(rope_theta=THETA, rope_fraction=1) if features["rope"] else {})


def write(name):
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    os.makedirs(folder, exist_ok=True)
    model = MODELS[name]
    hyper, features = HYPER | model.get("hyper", {}), PLAIN | model.get("features", {})
    ids = torch.randint(0, V, (STEPS * B * T + 1,), generator=torch.Generator().manual_seed(5))
    start, first, after, steps = run(hyper, features, 11, ids)
    tensors = first | {"after." + n: t for n, t in after.items()}
    if hyper["optimizer"] == "muon":
        tensors |= {"torch." + n: t for n, t in run(hyper, features, 11, ids, is_exact=False)[2].items()}
    config = dict(architectures=["GPT2LMHeadModel"], model_type="gpt2", vocab_size=V, n_positions=CONTEXT, n_embd=C,
                  n_layer=L, n_head=H, n_inner=None, activation_function="gelu_new", layer_norm_epsilon=1e-5,
                  tie_word_embeddings=True)
    expected = dict(torch=torch.__version__, hyper=hyper, steps=steps)
    if features != PLAIN:  # as the manifest of a checkpoint says it; config.json has no field for it
        expected["model"] = json.dumps(manifest(name, features))
    save_file(start, os.path.join(folder, "model.safetensors"))
    save_file(tensors, os.path.join(folder, "expected.safetensors"))
    write_tokens(os.path.join(folder, "tokens.bin"), ids)
    for file, content in (("config.json", config), ("expected.json", expected)):
        with open(os.path.join(folder, file), "w") as f:
            json.dump(content, f, indent=1)
            f.write("\n")


for name in sys.argv[1:]:
    write(name)
