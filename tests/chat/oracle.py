"""Compares chat_ids with Jinja templates and the package tokenizers on drawn conversations.

oracle.py TOOL FOLDER CONVERSATIONS [TEMPLATES]: trains two small tokenizers, draws conversations for each
template, renders and encodes them, and prints one TAP line a template. TEMPLATES: a folder of *.jinja, each of
which is either equal or refused, such as chat_templates of trl. The families as TOOL writes them are compared,
too. The templates below are written for this test;
they render as the published ones. {% generation %} surrounds what is trained."""
import glob, json, os, random, re, subprocess, sys

import jinja2, jinja2.sandbox
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

TOOL, FOLDER, N = sys.argv[1], sys.argv[2], int(sys.argv[3])
TEMPLATES = sys.argv[4] if len(sys.argv) > 4 else ""
BEGIN, END, GUARD = "\ue001", "\ue002", "\ue000"  # marks in rendered text
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|eot_id|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<bos>", "<eos>",
           "<start_of_turn>", "<end_of_turn>"]
WORDS = ["the", "quick", " brown", "fox\n", "Hello", "world", "é", "naïve", "日本語", "😀", "  ", "\t", "\n", "\n\n", " ", "a",
         "1234", "x=y;", "A\u030a", "\u00a0", "don't", "ß", ".", "[INST]", "<think>"] + SPECIAL
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHATML = "{%- generation %}{{- m.content + '<|im_end|>' }}{% endgeneration %}"
TURNS = "{%- for m in messages %}{%- if m.role == 'assistant' %}"
# name: (family, bos, eos, template)
OWN = {
    "chatml": (None, "<|im_end|>", TURNS + "{{- '<|im_start|>assistant\\n' }}" + CHATML + "{{- '\\n' }}{%- else %}"
               "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"),
    "llama-3": ("<|begin_of_text|>", "<|eot_id|>", "{{- bos_token }}" + TURNS +
                "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- generation %}"
                "{{- m.content | trim + '<|eot_id|>' }}{%- endgeneration %}{%- else %}{{- '<|start_header_id|>' + m.role + "
                "'<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}"),
    "llama-2": ("<s>", "</s>", "{%- set ns = namespace(system='') %}{%- for m in messages %}{%- if m.role == 'system' %}"
                "{%- set ns.system = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}{%- elif m.role == 'user' %}"
                "{{- bos_token + '[INST] ' + (ns.system + m.content).strip() + ' [/INST]' }}{%- set ns.system = '' %}{%- else %}"
                "{{- ' ' }}{%- generation %}{{- m.content.strip() + ' ' + eos_token }}{%- endgeneration %}{%- endif %}{%- endfor %}"),
    "mistral": ("<s>", "</s>", "{{- bos_token }}{%- set ns = namespace(system='') %}{%- for m in messages %}"
                "{%- if m.role == 'system' %}{%- set ns.system = m.content + '\\n\\n' %}{%- elif m.role == 'user' %}"
                "{{- ' [INST] ' + ns.system + m.content + ' [/INST]' }}{%- set ns.system = '' %}{%- else %}{{- ' ' }}"
                "{%- generation %}{{- m.content + eos_token }}{%- endgeneration %}{%- endif %}{%- endfor %}"),
    "zephyr": (None, "</s>", TURNS + "{{- '<|assistant|>\\n' }}{%- generation %}{{- m.content + eos_token }}"
               "{%- endgeneration %}{{- '\\n' }}{%- else %}{{- '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}"
               "{%- endif %}{%- endfor %}"),
    "phi-3": (None, "<|endoftext|>", TURNS + "{{- '<|assistant|>\\n' }}{%- generation %}{{- m.content + '<|end|>' }}"
              "{%- endgeneration %}{{- '\\n' }}{%- else %}{{- '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{%- endif %}"
              "{%- endfor %}{{- eos_token }}"),
    "gemma": ("<bos>", "<eos>", "{{- bos_token }}{%- set ns = namespace(system='') %}{%- for m in messages %}"
              "{%- if m.role == 'system' %}{%- set ns.system = m.content + '\\n\\n' %}{%- elif m.role == 'user' %}"
              "{{- '<start_of_turn>user\\n' + ns.system + m.content | trim + '<end_of_turn>\\n' }}{%- set ns.system = '' %}"
              "{%- else %}{{- '<start_of_turn>model\\n' }}{%- generation %}{{- m.content | trim + '<end_of_turn>' }}"
              "{%- endgeneration %}{{- '\\n' }}{%- endif %}{%- endfor %}"),
}


def byte_level(folder, qwen):
    tok = Tokenizer(BPE())
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not qwen)
    if qwen:
        tok.normalizer = normalizers.NFC()
        split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"), split])
    tok.pre_tokenizer, tok.decoder = split, decoders.ByteLevel()
    roles = ["assistant", "user", "system", "model", "You are a helpful", "\n\n\n\n", "[/INST]", "<<SYS>>"]
    texts = [" ".join(random.choice(WORDS + roles) for _ in range(200)) for _ in range(300)]
    tok.train_from_iterator(texts, BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                              show_progress=False))
    return finish(tok, folder)


def sentencepiece(folder):
    tok = Tokenizer(BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    texts = ["".join(random.choice(WORDS) for _ in range(200)).replace("\n", " ") for _ in range(200)]
    tok.train_from_iterator(texts, BpeTrainer(vocab_size=900, show_progress=False,
                                              special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]))
    tok = json.loads(tok.to_str())
    tok["added_tokens"] = tok["added_tokens"][:3]
    return finish(Tokenizer.from_str(json.dumps(tok)), folder)


def finish(tok, folder):
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    tok.add_tokens([AddedToken(s, special=False, normalized=False) for s in ["<think>", "</think>"]])
    os.makedirs(folder, exist_ok=True)
    tok.save(folder + "/tokenizer.json")
    tok.encode_special_tokens = True  # special tokens in a run stay text
    return tok


def conversation():
    def content():
        return "".join(random.choice(WORDS) + random.choice(["", " "]) for _ in range(random.choice([0, 1, 2, 5, 20])))
    m = [dict(role="system", content=content())] if random.random() < .5 else []
    for _ in range(random.randint(1, 5)):
        m += [dict(role="user", content=content()), dict(role="assistant", content=content())]
    return m + ([dict(role="user", content=content())] if random.random() < .1 else [])


def compile_template(source):
    source = re.sub(r"\{%(-?)\s*generation\s*(-?)%\}", r"{{\1 '%s' \2}}" % BEGIN, source)
    source = re.sub(r"\{%(-?)\s*endgeneration\s*(-?)%\}", r"{{\1 '%s' \2}}" % END, source)
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=["jinja2.ext.loopcontrols"])
    env.globals["raise_exception"] = lambda why: (_ for _ in ()).throw(jinja2.exceptions.TemplateError(why))
    env.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    return env.from_string(source)


def guarded(text):
    """Names of special tokens in a content get a mark, which is removed before they are encoded."""
    for s in SPECIAL:
        text = text.replace(s, s[0] + GUARD + s[1:])
    return text


def expected(tok, template, messages, bos, eos):
    text = template.render(messages=[dict(m, content=guarded(m["content"])) for m in messages], bos_token=bos or "",
                           eos_token=eos, add_generation_prompt=False, date_string="26 Jul 2024")
    pattern = re.compile("(" + "|".join(re.escape(s) for s in sorted(SPECIAL, key=len, reverse=True)) + ")")
    plain, trained, inside = [], [], False
    for c in text:
        inside = (inside or c == BEGIN) and c != END
        if c not in (BEGIN, END):
            plain.append(c)
            trained.append(inside)
    at, out = 0, []
    for run in pattern.split("".join(plain)):
        flags = trained[at:at + len(run)]
        at += len(run)
        if run in SPECIAL:
            out.append((tok.token_to_id(run), flags[0]))
            continue
        kept = [(c, f) for c, f in zip(run, flags) if c != GUARD]
        run = tok.encode("".join(c for c, _ in kept), add_special_tokens=False)
        out += [(i, any(f for _, f in kept[a:b])) for i, (a, b) in zip(run.ids, run.offsets)]
    return out


def compare(name, tok, folder, source, bos, eos, family, has_marks):
    json.dump(dict(bos_token=bos, eos_token=eos), open(folder + "/tokenizer_config.json", "w"))
    chats = [conversation() for _ in range(N)]
    lines = "".join(json.dumps(dict(messages=m), ensure_ascii=random.random() < .5) + "\n" for m in chats)
    run = subprocess.run([TOOL, folder, family], input=lines, capture_output=True, text=True)
    if run.returncode == 2 and family[0] == "@":
        return True, "refused"
    template, differ, refused = compile_template(source), 0, 0
    rows = run.stdout.split("\n")[:-1]
    if run.returncode or len(rows) != N:
        return False, "ended with %d: %s" % (run.returncode, run.stdout[:200])
    for messages, row in zip(chats, rows):
        if row.startswith("refused"):
            refused += 1
            continue
        got = [(abs(int(x)), x[0] == "-") for x in row.split()]
        try:
            want = expected(tok, template, messages, bos, eos)
        except jinja2.exceptions.TemplateError:
            continue
        same = got == want if has_marks else [i for i, _ in got] == [i for i, _ in want]
        if not same and differ == 0:
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), 0)
            print("# %s" % json.dumps(messages)[:400])
            print("# got  %s" % [(tok.id_to_token(i), m) for i, m in got][max(0, at - 8):at + 8])
            print("# want %s" % [(tok.id_to_token(i), m) for i, m in want][max(0, at - 8):at + 8])
        differ += not same
    return differ == 0 and refused == 0, "%s: %d conversations, %d differ, %d refused" % (run.stderr.strip(), N, differ, refused)


def main():
    random.seed(7)
    kinds = {"gpt": byte_level(FOLDER + "/gpt", False), "qwen": byte_level(FOLDER + "/qwen", True),
             "spm": sentencepiece(FOLDER + "/spm")}
    points = [(f, k, *OWN[f], f) for f, k in [("chatml", "gpt"), ("chatml", "qwen"), ("llama-3", "gpt"), ("llama-2", "spm"),
                                              ("llama-2", "gpt"), ("mistral", "spm"), ("mistral", "gpt"), ("zephyr", "spm"),
                                              ("phi-3", "gpt"), ("gemma", "gpt")]]
    for family, kind, bos, eos in [("chatml", "gpt", None, "<|im_end|>"), ("qwen3", "qwen", None, "<|im_end|>"),
                                   ("llama-2", "spm", "<s>", "</s>"), ("llama-2", "gpt", "<s>", "</s>"),
                                   ("llama-3", "gpt", "<|begin_of_text|>", "<|eot_id|>"),
                                   ("llama-3.1", "gpt", "<|begin_of_text|>", "<|eot_id|>"), ("mistral", "spm", "<s>", "</s>"),
                                   ("zephyr", "spm", "<s>", "</s>"), ("phi-3", "gpt", "<s>", "<|endoftext|>"),
                                   ("phi-3.5", "gpt", "<s>", "<|endoftext|>"), ("gemma", "gpt", "<bos>", "<eos>")]:
        source = subprocess.run([TOOL, family], capture_output=True, text=True, check=True).stdout
        points.append((family + " as export writes it", kind, bos, eos, source, family))
    for path in sorted(glob.glob(TEMPLATES + "/*.jinja")) if TEMPLATES else []:
        base = os.path.basename(path)
        if "training" in base:
            continue
        bos, eos = ("<|begin_of_text|>", "<|eot_id|>") if "llama" in base else (None, "<|im_end|>") if "qwen" in base else \
            ("<s>", "<|endoftext|>") if "phi" in base else ("<bos>", "<eos>") if "gemma" in base else ("<s>", "</s>")
        points.append((base, "qwen" if "qwen" in base else "gpt", bos, eos, open(path).read(), "@" + path))
    print("1..%d" % len(points))
    for i, (name, kind, bos, eos, source, family) in enumerate(points):
        good, text = compare(name, kinds[kind], FOLDER + "/" + kind, source, bos, eos, family, "endgeneration" in source and family[0] != "@")
        print("%sok %d - %s, %s: %s" % ("" if good else "not ", i + 1, name, kind, text), flush=True)


main()
