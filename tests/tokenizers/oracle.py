"""Compares tokenizer_ids with the packages tokenizers, sentencepiece and tiktoken on drawn texts.

oracle.py TOOL FOLDER TEXTS [KINDS]: trains small tokenizers of every kind on the repository's own files,
writes them to FOLDER, draws TEXTS texts for each, and prints one TAP line a kind. Nothing is
downloaded here."""
import glob, json, os, random, re, struct, subprocess, sys, unicodedata

import sentencepiece
import tiktoken
import tiktoken.load
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

TOOL, FOLDER, TEXTS = sys.argv[1], sys.argv[2], int(sys.argv[3])
CONVOY = os.path.join(os.path.dirname(TOOL), "../../convoy")
BOOK = "assets/alice.txt"
ONLY = sys.argv[4] if len(sys.argv) > 4 else ""
# Assigned in Unicode 15: what newer versions added is classed by the version of each library.
ASSIGNED = [c for c in range(0x110000)
            if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and c != 0]
# The package's table of NFC is of an older Unicode: it leaves later marks where they are. They are not drawn; ours moves them as
# Python's unicodedata does.
NFC = normalizers.NFC()
LATER = {c for c in ASSIGNED if unicodedata.combining(chr(c)) and
         NFC.normalize_str("a\u0345" + chr(c)) != unicodedata.normalize("NFC", "a\u0345" + chr(c))}
BY_CATEGORY = {}
for c in ASSIGNED:
    if c in LATER:
        continue
    BY_CATEGORY.setdefault(unicodedata.category(chr(c)), []).append(chr(c))
CATEGORIES = sorted(BY_CATEGORY)
MARK = "\u2581"
WORDS = open(BOOK, encoding="utf-8").read().split() if os.path.exists(BOOK) else []
SOURCES = sorted(glob.glob("docs/*.md") + glob.glob("src/data/**/*.c", recursive=True) + ["README.md"])
WORDS = WORDS or " ".join(open(f, encoding="utf-8").read() for f in SOURCES[:6]).split()
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\r", "\u00a0", "\u3000", "\u2028", "\x85", "\x0b"]
MARKS = ["'s", "'S", "'RE", "'ll", "'LL", "'ve", "'m", "'D", "'t", "'\u017f", "'x", "''", "\u2019s"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001f44d\U0001f3fd"]
COMBINING = ["e\u0301", "\u00e9", "a\u0328\u0301", "\u1100\u1161\u11a8", "\uac01", "\u0344", "\u212b", "\u2126",
             "\u0915\u093c", "\u0958", "s\u0323\u0307", "\u0307\u0323", "\ufb1d", "\U0001d15f", "\u1e9b\u0323"]


def piece(r):
    k = r.randrange(13)
    if k < 3:
        return r.choice(WORDS)
    if k == 3:
        return r.choice(SPACES)
    if k == 4:
        return str(r.randrange(10 ** r.randrange(1, 12)))
    if k == 5:
        return r.choice(MARKS)
    if k == 6:
        return r.choice(EMOJI)
    if k == 7:
        return r.choice(COMBINING)
    if k == 8:
        return "".join(r.choice("!?.,;:-_()[]{}<>|/\\@#$%^&*=+~`\"'") for _ in range(r.randrange(1, 6)))
    if k == 9:
        return r.choice(SPECIAL + ["<|endoftext", "<s>", MARK, "<0x0A>"])
    if k == 10:
        return "".join(r.choice("\u4e2d\u6587\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\ud55c\uae00") for _ in range(r.randrange(1, 8)))
    return "".join(r.choice(BY_CATEGORY[r.choice(CATEGORIES)]) for _ in range(r.randrange(1, 5)))


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<tool>", "      ", "\u00e9t\u00e9!"]


def texts(n):
    r = random.Random(11)
    out = ["", " ", "  ", "\n", "'", MARK, "a", " a", "a ", "  a  b  ", "<|endoftext|>"]
    while len(out) < n:
        joint = r.choice(["", "", " ", " "])
        out.append(joint.join(piece(r) for _ in range(r.randrange(1, 14))))
    return out[:n]


def long_texts():
    """Pre-tokens of many windows (src/data/tokenizer/bpe_merge.c), and marks that NFC puts in order."""
    r = random.Random(12)
    few = lambda letters, n: "".join(r.choice(letters) for _ in range(n))
    return ["\n" * 200000 + "x", " " * 150001, "a" * 100003, "ab" * 50000, few("ab", 150000), few("abc!", 100000) + "\0" * 70000 + "d",
            few("\n\r ", 100000), few("\u4e2d\u6587\u65e5", 50000), "=" * 70000 + "-" * 70001, few("0123456789", 70000),
            "a" + few("\u0301\u0323\u0327\u0308", 40000) + "\u0300", "\u0344" * 20000, few("\u1100\u1161\u11a8\u0315", 30000)]


def ours(path, drawn):
    data = [t if isinstance(t, bytes) else t.encode() for t in drawn]
    done = subprocess.run([TOOL, path], input=b"".join(struct.pack("<I", len(t)) + t for t in data),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        return done.stderr.decode()
    out, at = [], 0
    for _ in data:
        n, = struct.unpack_from("<I", done.stdout, at)
        out.append(list(struct.unpack_from("<%dI" % n, done.stdout, at + 4)))
        at += 4 + 4 * n
    return out


NUMBER = 0


def say(good, name, why=""):
    global NUMBER
    NUMBER += 1
    print("%s %d - %s" % ("ok" if good else "not ok", NUMBER, name), flush=True)
    for line in why.splitlines():
        print("# " + line)


def compare(name, path, drawn, want):
    got = ours(path, drawn)
    if isinstance(got, str):
        return say(False, name, got)
    bad = [i for i in range(len(drawn)) if got[i] != want[i]]
    say(not bad, "%s: %d texts, %d ids" % (name, len(drawn), sum(map(len, want))),
        "%d differ" % len(bad) + "".join("\n%r\n ours %s\n want %s" % (drawn[i], got[i][:40], want[i][:40]) for i in bad[:4]) if bad else "")


def gguf_value(value):
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, str):
        return 8, struct.pack("<Q", len(value.encode())) + value.encode()
    kind = 6 if isinstance(value[0], float) else 5 if isinstance(value[0], int) else 8
    each = [struct.pack("<f", v) if kind == 6 else struct.pack("<i", v) if kind == 5 else gguf_value(v)[1] for v in value]
    return 9, struct.pack("<IQ", kind, len(value)) + b"".join(each)


def write_gguf(path, keys):
    """The keys of a tokenizer, without tensors."""
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)))
        for key, value in keys.items():
            kind, data = gguf_value(value)
            f.write(struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + data)


def compare_written(name, keys, drawn, want):
    """A GGUF file's tokenizer as export writes it, read by the package tokenizers."""
    gguf, path = FOLDER + "/written.gguf", FOLDER + "/written.json"
    write_gguf(gguf, {"tokenizer.ggml." + k: v for k, v in keys.items()})
    done = subprocess.run([TOOL, gguf, "json", path], stderr=subprocess.PIPE)
    if done.returncode:
        return say(False, name, done.stderr.decode())
    t = Tokenizer.from_file(path)
    got = [e.ids for e in t.encode_batch(drawn, add_special_tokens=False)]
    bad = [i for i in range(len(drawn)) if got[i] != want[i]]
    say(not bad, "%s: %d texts" % (name, len(drawn)), "%d differ" % len(bad) +
        "".join("\n%r\n got %s\n want %s" % (drawn[i], got[i][:40], want[i][:40]) for i in bad[:4]) if bad else "")
    compare(name + ", read again", path, drawn, want)


def write_byte_level(name, pre, drawn):
    """The same vocabulary in a GGUF file, without tokens that are added after normalizing."""
    normal, splitter, options = KINDS[name]
    t = Tokenizer(BPE(**options))
    t.normalizer, t.pre_tokenizer = normal, splitter
    t.train(SOURCES, BpeTrainer(vocab_size=2500, initial_alphabet=level.alphabet(), show_progress=False,
                                special_tokens=["<|endoftext|>"]))
    t.add_special_tokens(["<|im_start|>"])
    document = json.loads(t.to_str())
    vocab = dict(document["model"]["vocab"], **{a["content"]: a["id"] for a in document["added_tokens"]})
    tokens = sorted(vocab, key=vocab.get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in document["model"]["merges"]]
    types = [3 if x in ("<|endoftext|>", "<|im_start|>") else 1 for x in tokens]
    keys = {"model": "gpt2", "pre": pre, "tokens": tokens, "merges": merges, "token_type": types, "eos_token_id": 0, "add_bos_token": False}
    compare_written("GGUF, written as tokenizer.json, " + pre, keys, drawn, [e.ids for e in t.encode_batch(drawn, add_special_tokens=False)])


def write_pieces(sp, drawn, adds_space):
    kinds = [(sp.is_unknown, 2), (sp.is_control, 3), (sp.is_unused, 5), (sp.is_byte, 6)]
    n = sp.get_piece_size()
    types = [next((k for test, k in kinds if test(i)), 1) for i in range(n)]
    keys = {"model": "llama", "tokens": [sp.id_to_piece(i) for i in range(n)], "scores": [sp.get_score(i) for i in range(n)],
            "token_type": types, "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, "add_space_prefix": adds_space}
    plain = [x for x in drawn if not re.search("<s>|</s>|<unk>", x) and "\0" not in x and (x or not adds_space)]
    compare_written("GGUF of SentencePiece, written as tokenizer.json" + ("" if adds_space else ", no space first"), keys, plain, sp.encode(plain))


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")
level = pre_tokenizers.ByteLevel
KINDS = {
    "gpt2": (None, level(add_prefix_space=False), {}),
    "gpt2-prefix": (None, level(add_prefix_space=True), {}),
    "neox": (normalizers.NFC(), level(add_prefix_space=False), {}),
    "llama3": (None, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), level(add_prefix_space=False, use_regex=False)]), {"ignore_merges": True}),
    "cl100k": (None, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "removed", invert=True), level(add_prefix_space=False, use_regex=False)]), {}),
    "qwen": (normalizers.NFC(), pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"), level(add_prefix_space=False, use_regex=False)]), {}),
    "smollm": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level(add_prefix_space=False)]), {}),
}


# Patterns and steps as models have published them, that no fast splitter knows.
WORD_O200K = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
REST_O200K = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = WORD_O200K % (SHORT, SHORT) + r"|\p{N}{1,3}" + REST_O200K
TEKKEN = WORD_O200K % ("", "") + r"|\p{N}" + REST_O200K
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK_LLM = ["[\r\n]", "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u03ff]+",
                "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
BLOOM = r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
Split, Chain = pre_tokenizers.Split, pre_tokenizers.Sequence
isolated = lambda regex: Split(Regex(regex), "isolated")
last = lambda: level(add_prefix_space=False, use_regex=False)
STEPS = {
    "o200k": (None, Chain([isolated(O200K), last()])),
    "gpt-4o": (None, Chain([Split(Regex(O200K), "removed", invert=True), last()])),
    "tekken": (None, Chain([isolated(TEKKEN), last()])),
    "deepseek-v3": (None, Chain([isolated(r"\p{N}{1,3}"), isolated("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), isolated(DEEPSEEK), last()])),
    "deepseek-llm": (None, Chain([isolated(x) for x in DEEPSEEK_LLM] + [pre_tokenizers.Digits(individual_digits=True), last()])),
    "cl100k, possessive": (None, Chain([isolated(CL100K), last()])),
    "bloom": (None, Chain([isolated(BLOOM), last()])),
    "falcon": (None, Chain([pre_tokenizers.Punctuation("contiguous"), level(add_prefix_space=False), pre_tokenizers.Digits(individual_digits=False), isolated("[0-9][0-9][0-9]")])),
    "level first, space": (None, Chain([level(add_prefix_space=True), pre_tokenizers.Digits(individual_digits=True)])),
    "level, no pattern": (None, last()),
    "clip": (normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]), Chain([Split(Regex(CLIP), "removed", invert=True), last()])),
    "nfd, lowercase, accents": (normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]), Chain([pre_tokenizers.BertPreTokenizer(), last()])),
    "nfkc, strip": (normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()]), level(add_prefix_space=False)),
    "nfkd, strip left": (normalizers.Sequence([normalizers.NFKD(), normalizers.Strip(right=False)]), Chain([pre_tokenizers.WhitespaceSplit(), last()])),
    "lowercase, llama3": (normalizers.Lowercase(), Chain([isolated(LLAMA3), last()])),
    "prepend, replace": (normalizers.Sequence([normalizers.Prepend("x "), normalizers.Replace("``", '"'), normalizers.Replace("'", "\u2019s")]), Chain([isolated(QWEN), last()])),
    "whitespace": (None, Chain([pre_tokenizers.Whitespace(), last()])),
    "delimiter": (None, Chain([pre_tokenizers.CharDelimiterSplit("e"), pre_tokenizers.Punctuation(), last()])),
    "ruby": (None, Chain([isolated(r"^\s|\w$|\bthe\b|[[a-f]\d&-]{2,}?|(?m:x.)|\h{3}+|(?<=o)n|\p{Han}+|\p{Hiragana}|\p{^L}\P{N}|\v|\u00e9"), last()])),
    "characters": (normalizers.NFKC(), pre_tokenizers.WhitespaceSplit()),
    "characters, words": (normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]), pre_tokenizers.Whitespace()),
    "metaspace, nfkc": (normalizers.NFKC(), pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="first")),
    "gemma": (normalizers.Replace(" ", MARK), Split(" ", "merged_with_previous")),
}
for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
    STEPS["split, " + behavior] = (None, Chain([Split(" ", behavior), Split(Regex(r"[aeiou]|"), behavior, invert=True), last()]))
    STEPS["split, inverted, " + behavior] = (None, Chain([Split(Regex(r"\p{N}+|\s"), behavior, invert=True), pre_tokenizers.Punctuation(behavior), last()]))
# Characters that the package's tables, of an older Unicode, class otherwise; or its normal forms. They are not drawn.
PUNCTUATION = {c for c in ASSIGNED if (unicodedata.category(chr(c))[0] == "P" or chr(c) in "$+<=>^`|~") !=
               (pre_tokenizers.Punctuation("removed").pre_tokenize_str("a%sa" % chr(c)) != [("a%sa" % chr(c), (0, 3))])}
FORMS = {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD()}
ACCENTS = normalizers.StripAccents()
OTHER_FORM = {c for c in ASSIGNED if (unicodedata.category(chr(c))[0] == "M") != (ACCENTS.normalize_str(chr(c)) == "")} | LATER | {c for c in ASSIGNED for name, form in FORMS.items() if unicodedata.normalize(name, chr(c)) != form.normalize_str(chr(c))}


def flagged_tokens(is_spm):
    """Added tokens of every kind; those found in normalised text have a form that the normalizer keeps or not."""
    strips = [] if is_spm else [AddedToken("cat", single_word=True, lstrip=True), AddedToken("the", single_word=True, rstrip=True)]
    return strips + [AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("[PAD]", rstrip=True, normalized=False),
                     AddedToken("<both>", lstrip=True, rstrip=True, normalized=False), AddedToken("Alice", single_word=True),
                     AddedToken("<Tool>"), AddedToken("<w>", single_word=True, normalized=False)]


# Characters of Unicode 15 and 16, of every category.
NEWER = "\u1c89\u1c8a\ua7cb\U000105c0\U00010d40\U00010d69\U00010d6e\U00010d4e\U00010d50\U00010d70\U0001fae8\U0001faf7\U00031350\U0002ebf0\U0001e4f0\U0001d2c0\u0897\U00013460"


def draw_flagged(drawn, banned, has_newer):
    """Texts in which added tokens stand next to everything, without banned characters, with newer ones or not."""
    r = random.Random(14)
    names = ["<mask>", "[PAD]", "<both>", "Alice", "cat", "<Tool>", "<tool>", "<w>", "the", "The", "CAT"]
    out = []
    for text in drawn:
        for _ in range(r.randrange(4)):
            at = r.randrange(len(text) + 1)
            text = text[:at] + r.choice(["", " ", "\n ", "\u00a0", "\u200d", "1", "\u00e9", "."]) + r.choice(names) + r.choice(["", " ", "  ", "_", "\u2003", "s"]) + text[at:]
        for _ in range(r.randrange(4) if has_newer else 0):
            at = r.randrange(len(text) + 1)
            text = text[:at] + r.choice(["", " ", "a", "!"]) + "".join(r.choice(NEWER) for _ in range(r.randrange(1, 4))) + text[at:]
        out.append("".join(c for c in text if ord(c) not in banned))
    return out


def compare_steps(name, drawn):
    normal, pre = STEPS[name]
    is_level = "ByteLevel" in str(pre)
    t = Tokenizer(BPE(unk_token=None if is_level else "<unk>", fuse_unk=name == "gemma", dropout=0.0 if name == "o200k" else None))
    t.pre_tokenizer = pre
    if normal is not None:
        t.normalizer = normal
    t.train([BOOK, "README.md"], BpeTrainer(vocab_size=2000, initial_alphabet=level.alphabet() if is_level else [], show_progress=False,
                                            special_tokens=["<unk>", "<|endoftext|>"]))
    t.add_special_tokens(["<|im_start|>"])
    t.add_tokens(flagged_tokens(MARK in str(normal) + str(pre)))
    path = "%s/steps.json" % FOLDER
    t.save(path)
    text = t.to_str()
    banned = (PUNCTUATION if "Punctuation" in text or "Bert" in text else set()) | (OTHER_FORM if '"NF' in text else set())
    texts = draw_flagged(drawn[:TEXTS // 2] + drawn[TEXTS:], banned, normal is None and not banned)
    compare("tokenizers, steps, " + name, path, texts, [e.ids for e in t.encode_batch(texts, add_special_tokens=False)])


def few_letters():
    """A text whose tokens are long, and of few different bytes."""
    r = random.Random(13)
    for _ in range(300):
        yield "".join(r.choice("ab") for _ in range(400)) + "\n" * r.randrange(200) + "=" * r.randrange(100) + "\n \r" * r.randrange(40)


# "-holes": bytes without a token, which are left out before anything merges, or become the unknown token.
KINDS.update({"gpt2-holes": (None, level(add_prefix_space=False), {}), "qwen-holes": (normalizers.NFC(), KINDS["qwen"][1], {}),
              "gpt2-holes-unknown": (None, level(add_prefix_space=False), {"unk_token": "<|endoftext|>"}),
              "gpt2-holes-fused": (None, level(add_prefix_space=False), {"unk_token": "<|endoftext|>", "fuse_unk": True}),
              "gpt2-few": (None, level(add_prefix_space=False), {}), "neox-few": (normalizers.NFC(), level(add_prefix_space=False), {})})


def train_byte_level(name):
    normal, pre, options = KINDS[name]
    t = Tokenizer(BPE(**options))
    t.normalizer, t.pre_tokenizer = normal, pre
    trainer = BpeTrainer(vocab_size=3000, initial_alphabet=[] if "holes" in name else level.alphabet(), show_progress=False,
                         special_tokens=["<|endoftext|>"])
    if "few" in name:
        t.train_from_iterator(few_letters(), trainer)
    else:
        t.train(SOURCES[:3] if "holes" in name else SOURCES, trainer)
    t.add_special_tokens(["<|im_start|>"])
    t.add_tokens([AddedToken("<tool>", normalized=True), AddedToken("      ", normalized=True)])
    if normal is None:
        t.add_tokens([AddedToken("\u00e9t\u00e9!", normalized=False)])
    t.decoder = decoders.ByteLevel()
    return t


def compare_trained():
    """`convoy train-tokenizer` finds the merges of BpeTrainer."""
    t = Tokenizer(BPE())
    t.pre_tokenizer = level(add_prefix_space=False)
    t.train([BOOK], BpeTrainer(vocab_size=2000, initial_alphabet=level.alphabet(), show_progress=False, special_tokens=["<|endoftext|>"]))
    folder = FOLDER + "/trained"
    run = subprocess.run([CONVOY, "train-tokenizer", "DATA=" + BOOK, "VOCAB=2000", "OUT=" + folder], capture_output=True, text=True)
    merges = lambda text: [m.split(" ") if isinstance(m, str) else m for m in json.loads(text)["model"]["merges"]]
    good = run.returncode == 0 and merges(open(folder + "/tokenizer.json").read()) == merges(t.to_str())
    say(good, "train-tokenizer: the merges of BpeTrainer", run.stderr)


def train_spm(options):
    sentencepiece.SentencePieceTrainer.train(
        input=",".join(SOURCES), model_prefix=FOLDER + "/spm", model_type="bpe", vocab_size=2000, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.999,
        split_digits=True, allow_whitespace_only_pieces=True, minloglevel=2, **options)
    return sentencepiece.SentencePieceProcessor(model_file=FOLDER + "/spm.model")


def hf_of_spm(sp, style):
    """The same vocabulary as tokenizer.json, merges from the scores, as Hugging Face converts it."""
    vocab = {sp.id_to_piece(i): i for i in range(sp.get_piece_size())}
    merges = []
    for p, i in vocab.items():
        if not sp.is_byte(i) and not sp.is_control(i) and not sp.is_unknown(i):
            pairs = [(p[:k], p[k:]) for k in range(1, len(p)) if p[:k] in vocab and p[k:] in vocab]
            merges += [(i, vocab[a], vocab[b], a, b) for a, b in pairs]
    t = Tokenizer(BPE(vocab, [(m[3], m[4]) for m in sorted(merges)], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if style == "prepend":
        t.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=style, split=style == "always")
    t.add_special_tokens([AddedToken(x, normalized=False) for x in ("<unk>", "<s>", "</s>")])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def main():
    drawn = texts(TEXTS) + long_texts()
    print("# %d marks that the package tokenizers does not know are not drawn" % len(LATER))
    for name in [k for k in KINDS if re.search(ONLY, k)]:
        t = train_byte_level(name)
        path = "%s/%s.json" % (FOLDER, name)
        t.save(path)
        compare("tokenizers, " + name, path, drawn, [e.ids for e in t.encode_batch(drawn, add_special_tokens=False)])
    for name in [k for k in STEPS if re.search(ONLY, k)]:
        compare_steps(name, drawn)
    for name, pre in () if ONLY else (("gpt2", "gpt-2"), ("llama3", "llama-bpe"), ("qwen", "qwen2"), ("smollm", "smollm")):
        write_byte_level(name, pre, drawn)
    for name, options in () if ONLY else (("", {}), (", no space first", {"add_dummy_prefix": False}), (", user-defined pieces", {"user_defined_symbols": ["<tool>", "::"]})):
        sp = train_spm(options)
        path = FOLDER + "/tokenizer%d.model" % len(options) + (name[-3:].strip() if name else "")
        os.rename(FOLDER + "/spm.model", path)
        compare("sentencepiece" + name, path, drawn, sp.encode(drawn))
        broken = [t.encode()[:max(1, len(t.encode()) // 2)] for t in drawn[:TEXTS // 4]]
        compare("sentencepiece%s, bytes that are not UTF-8" % name, path, broken, [sp.encode(t) for t in broken])
        if "user_defined_symbols" not in options:
            write_pieces(sp, drawn, not options)
        if not options:
            for style in ("prepend", "first", "always", "never"):
                t = hf_of_spm(sp, style)
                t.save("%s/spm-%s.json" % (FOLDER, style))
                compare("tokenizers, SentencePiece's vocabulary, " + style, "%s/spm-%s.json" % (FOLDER, style), drawn,
                        [e.ids for e in t.encode_batch(drawn, add_special_tokens=False)])
    if not ONLY:
        compare_trained()
    cl100k = glob.glob(os.path.dirname(os.path.dirname(tiktoken.__file__)) + "/tiktoken_ext/data/cl100k_base.tiktoken")
    if cl100k and not ONLY:
        import tiktoken_ext.openai_public as public
        public.load_tiktoken_bpe = lambda *a, **k: tiktoken.load.load_tiktoken_bpe(cl100k[0])
        t = tiktoken.Encoding(**public.cl100k_base())
        compare("tiktoken, cl100k_base", cl100k[0], drawn, [t.encode(x, allowed_special="all") for x in drawn])
    print("1..%d" % NUMBER)


main()
