"""Makes squad_score.jsonl: the definition of SQuAD's scores, written down again, and the cases that test it.

    python3 squad_score.py > squad_score.jsonl

Made with Python 3.11 (Unicode 14). Letters that later versions of Unicode added are left out of the random cases.
"""
import collections
import json
import random
import re
import string
import unicodedata


def normalise(s):
    s = s.lower()
    s = "".join(c for c in s if c not in string.punctuation)
    s = re.sub(r"\b(a|an|the)\b", " ", s)
    return " ".join(s.split())


def f1(answer, gold, v2):
    a, g = normalise(answer).split(), normalise(gold).split()
    if v2 and (not a or not g):
        return float(a == g)
    same = sum((collections.Counter(a) & collections.Counter(g)).values())
    if same == 0:
        return 0.0
    p, r = same / len(a), same / len(g)
    return 2 * p * r / (p + r)


def score(answer, golds, v2):
    if v2:
        golds = [g for g in golds if normalise(g)] or [""]
    if not golds:
        return [0.0, 0.0]
    exact = max(float(normalise(answer) == normalise(g)) for g in golds)
    return [exact, max(f1(answer, g, v2) for g in golds)]


def case(answer, *golds):
    print(json.dumps({"answer": answer, "gold": golds, "normal": normalise(answer),
                      "v1": score(answer, golds, False), "v2": score(answer, golds, True)}))


by_hand = [
    ("", ), ("", ""), ("x", ), ("x", ""), ("", "x"), ("The", "a"), ("the", ""), ("", "the"), ("An", "x", "the"),
    ("The Cat", "cat"), ("the the cat", "cat"), ("a.n.", "an"), ("a-the", "athe"), ("U.S.", "us"), ("it's", "its"),
    ("theatre an anthem", "the atre"), ("Tom and the Dog", "dog and Tom"), ("a a b b", "a b b b"), ("x y", "y x"),
    ("one two three", "one", "two three", "one two three four"), ("1,000", "1000"), ("$5", "5"), ("\u20ac5", "5"),
    ("\u201cthe\u201d cat", "\u201c \u201d cat"), ("the\u2019s", "\u2019s"), ("caf\u00c9", "CAF\u00e9"), ("CAFE\u0301", "cafe\u0301"),
    ("\u0130stanbul", "i\u0307stanbul"), ("\u039f\u0394\u039f\u03a3", "\u03bf\u03b4\u03bf\u03c2"),
    ("\u039f\u0394\u039f\u03a3 \u03a3\u0391\u03a3.", "\u03bf\u03b4\u03bf\u03c2 \u03c3\u03b1\u03c2"),
    ("\u03a3", "\u03c3"), ("A\u03a3'", "a\u03c2"), ("A\u03a3'B", "a\u03c3b"), ("A\u0301\u03a3\u0301", "x"), ("A:\u03a3", "x"), ("1\u03a3", "x"),
    ("\u1e9eE", "\u00dfe"), ("\u01c5", "\u01c6"), ("\u2160V", "\u2170v"), ("\u10a0", "\u2d00"), ("\u1c90", "\u10d0"), ("\u13a0", "\uab70"),
    ("\u0391\u0345", "x"), ("\U00010400", "\U00010428"), ("x\u00a0y", "x y"), ("x\u2003y\u3000", "x y"), ("x\u200by", "xy"),
    ("x\u0085y", "x y"), ("x\u001cy", "x y"), ("x\ty\r\nz\f\v", "x y z"), ("a\u0301 b", "b"), ("a\u00b2", "b"), ("a\u00aa", "b"),
    ("the\u3007 b", "b"), ("a\u0308the", "the"), ("the\u200dx", "x"), ("\uff21n", "x"), ("an\u203fthe", "x"), ("a\u2160 b", "b"),
    ("_a_", "a"), ("a_b", "ab"), ("\U0001f600 the", "\U0001f600"), ("\u4e2d\u6587 the", "\u4e2d\u6587"), ("the\u4e2d", "\u4e2d"),
    ("\x00a\x00", "\x00"), ("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", ""), ("\u00a1a!", "\u00a1"), ("\u2014the\u2014", "\u2014\u2014"),
]
for row in by_hand:
    case(*row)

draw = random.Random(20)
words = ["a", "an", "the", "The", "AN", "A", "cat", "Cat", "cat's", "dog.", "dog", "U.S.", "us", "1,5", "15", "x-y", "xy", "\u00c9t\u00e9",
         "\u00e9t\u00e9", "\u03a3\u039f\u03a6\u039f\u03a3", "\u03c3\u03bf\u03c6\u03cc\u03c2", "\u2014", "\u201cthe\u201d", "\u0130I", "\u4e2d", "--", "\u00df", "\u1e9e"]
gaps = [" ", " ", " ", "  ", "\u00a0", "\n", "-", ". ", "\u2009", ""]
for _ in range(400):
    def phrase():
        return "".join(draw.choice(words) + draw.choice(gaps) for _ in range(draw.randrange(7)))
    case(phrase(), *[phrase() for _ in range(draw.randrange(4))])

known = [chr(c) for c in range(0x20, 0x20000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
for _ in range(300):
    def letters():
        return "".join(draw.choice(draw.choice([known, known[:0x500], ["\u03a3", "A", "the", "a", " ", "'", "\u0301"]]))
                       for _ in range(draw.randrange(12)))
    text = letters()
    case(text, letters(), text.upper())
