#!/usr/bin/env python3
"""Times training steps of GPT-2 124M in PyTorch: the peer of gpu.sh bench and first.

Forward, backward and AdamW, as nanoGPT runs them on a GPU: autocast to bf16 (or fp32 with TF32 products), torch.compile, fused
attention, fused AdamW, the vocabulary padded to 50,304. Random weights and tokens. The last line has key=value pairs; tokens_per_s is
of the median step. The device is waited for at both ends of a step only.
"""
import argparse
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, VOCAB, CONTEXT = 12, 12, 768, 50304, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.fc_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if "proj" in name else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.size(1)]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("batch", 64), ("seq", 1024), ("steps", 30), ("warmup", 10)):
        ap.add_argument("--" + name, type=int, default=value)
    ap.add_argument("--dtype", choices=("fp32", "bf16"), default="bf16")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--eager", action="store_true", help="without torch.compile")
    a = ap.parse_args()
    on_gpu = a.device.startswith("cuda")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = GPT2().to(a.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=on_gpu)
    run = model if a.eager else torch.compile(model)
    wait = torch.cuda.synchronize if on_gpu else (lambda: None)
    times = []
    for step in range(a.warmup + a.steps):
        tokens = torch.randint(0, 50257, (a.batch, a.seq + 1), device=a.device)
        wait()
        began = time.perf_counter()
        with torch.autocast(a.device.split(":")[0], torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        wait()
        times.append(time.perf_counter() - began)
        print(f"step={step} loss={loss.item():.4f} ms={1e3 * times[-1]:.2f}", flush=True)
    times = times[a.warmup:]
    median = statistics.median(times)
    line = (f"torch={torch.__version__} dtype={a.dtype} batch={a.batch} seq={a.seq} median_ms={1e3 * median:.2f} "
            f"tokens_per_s={a.batch * a.seq / median:.1f} best_tokens_per_s={a.batch * a.seq / min(times):.1f}")
    if on_gpu:
        line += f" peak_gpu_mib={torch.cuda.max_memory_allocated() / 2**20:.0f}"
    print(line)


if __name__ == "__main__":
    main()
