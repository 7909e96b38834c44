#!/usr/bin/env python3
"""peer_torch: steps of GPT-2 124M in fp32 by PyTorch: torch.compile, scaled_dot_product_attention, fused AdamW.

    peer_torch.py LEVEL THREADS BATCH TOKENS

LEVEL is avx2, avx512 or best; it limits ATen, oneDNN, MKL and the code that the compiler writes. Compiles and takes two
steps, writes the version of PyTorch, then answers each line "N" of its input with the median time of N steps in ms.
The network is the one of Hugging Face's GPT2LMHeadModel without dropout; weights and tokens are random."""
import os
import statistics
import sys
import time

level, threads, batch, tokens = sys.argv[1], *(int(word) for word in sys.argv[2:5])
LIMITS = {"avx2": ("avx2", "AVX2", "AVX2", 256), "avx512": ("avx512", "AVX512_CORE", "AVX512", 512)}
if level in LIMITS:
    os.environ["ATEN_CPU_CAPABILITY"], os.environ["ONEDNN_MAX_CPU_ISA"], os.environ["MKL_ENABLE_INSTRUCTIONS"] = LIMITS[level][:3]

import torch                             # after the environment that limits it
import torch._inductor.config as inductor
from torch import nn
from torch.nn import functional

if level in LIMITS:
    inductor.cpp.simdlen = LIMITS[level][3]
VOCAB, WIDTH, HEADS, LAYERS, POSITIONS = 50257, 768, 12, 12, 1024


class Block(nn.Module):
    """One layer: [batch, tokens, WIDTH] to the same shape."""

    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = [one.unflatten(2, (HEADS, -1)).transpose(1, 2) for one in self.qkv(self.norm_1(x)).chunk(3, 2)]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Network(nn.Module):
    """Ids of tokens and of the tokens after them, both [batch, tokens], to the mean loss."""

    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCAB, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.layers, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids, targets):
        x = self.token(ids) + self.position.weight[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = functional.linear(self.norm(x), self.token.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


torch.manual_seed(1)
torch.set_num_threads(threads)
network = Network()
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
compiled = torch.compile(network)


def step():
    """Takes one step; its milliseconds."""
    ids = torch.randint(0, VOCAB, (batch, tokens + 1))
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    compiled(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()).backward()
    optimizer.step()
    return (time.perf_counter() - start) * 1e3


for _ in range(2):
    step()
print(torch.__version__, flush=True)
for line in sys.stdin:
    print(f"{statistics.median(step() for _ in range(int(line))):.2f}", flush=True)
