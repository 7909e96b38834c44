"""Times a step of LoRA by PEFT on PyTorch: SmolLM2-135M's shape, random weights, fp32, AdamW, one micro-batch.

usage: peft_step.py RANK SAMPLES TOKENS STEPS    RANK 0: all weights train. Prints the seconds of each step but the first.
"""
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

rank, samples, tokens, steps = map(int, sys.argv[1:5])
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
    num_key_value_heads=3, max_position_embeddings=8192, rope_theta=100000.0, tie_word_embeddings=True, use_cache=False,
)
model = LlamaForCausalLM(config)
if rank:
    model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"))
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
for step in range(steps + 1):
    ids = torch.randint(0, config.vocab_size, (samples, tokens))
    begin = time.perf_counter()
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step > 0:
        print(f"{time.perf_counter() - begin:.3f}", flush=True)
