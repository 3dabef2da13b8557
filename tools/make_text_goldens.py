#!/usr/bin/env python3
"""Writes what Hugging Face `tokenizers` does with many texts, for tests/text/tokenizer_test.cpp.

Without options: trains a small byte-level vocabulary on fixed text and writes
tests/text/data/{vocabulary,tokenizer_cases}.json.
With --gguf FILE --out FOLDER: the same two files for the vocabulary of a real model. Run the test
program with WEFT_TEXT_GOLDENS=FOLDER to compare with those instead.

Needs PyPI: tokenizers; gguf for --gguf.
"""

import argparse
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
PREFIX = r"[^\r\n\p{L}\p{N}]?"


def llama3(digits):
    return rf"{CONTRACTION}|{PREFIX}\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"


def cased(digits, tail):
    return (
        rf"{PREFIX}{UPPER}*{LOWER}+{tail}|{PREFIX}{UPPER}+{LOWER}*{tail}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
    )


# name: (regular expression or None for GPT-2's, NFC, isolated digits, ignore_merges)
FAMILIES = {
    "smollm": (None, False, True, False),
    "command-r": (None, True, True, False),
    "gpt-2": (None, False, False, False),
    "llama-bpe": (llama3(r"\p{N}{1,3}"), False, False, True),
    "qwen2": (llama3(r"\p{N}"), True, False, False),
    "gpt-4o": (cased(r"\p{N}{1,3}", CONTRACTION + "?"), False, False, True),
    "tekken": (cased(r"\p{N}", ""), False, False, True),
}

CONTROL, USER_DEFINED = 3, 4  # the numbers of GGUF's tokenizer.ggml.token_type
SPECIALS = {
    "<|endoftext|>": CONTROL,
    "<|im_start|>": CONTROL,
    "<|im_end|>": CONTROL,
    "<|im_end|>\n": CONTROL,
    "<tool_call>": USER_DEFINED,
    "<｜end▁of▁sentence｜>": CONTROL,
}
# The trained vocabulary lacks these bytes, as published ones lack some.
MISSING_BYTES = (0x04, 0x16, 0xF1)

PARAGRAPHS = """
It's the first day of the year 2024, and we've 1,234,567 reasons to say: "They'll come, I'd bet!"
Don't SHOUT; DON'T SHOUT AT ME. She'S here, you'RE there, WE'VE gone. x = 0x1F + 3.14e-10;
for (size_t i = 0; i < 100; ++i) { sum += values[i] * 2; }  // adds up\n\tif (a && b) return -1;
Der schnelle braune Fuchs springt über den faulen Hund. Größe, Straße, Äpfel, ÜBERMUT.
Le cœur a ses raisons que la raison ne connaît point; déjà vu, naïve façade, l'été à Paris.
Съешь же ещё этих мягких французских булок, да выпей чаю. Широкая электрификация.
我能吞下玻璃而不伤身体。 今天天气很好,我们去公园散步吧！ 東京都に住んでいます。 カタカナとひらがな。
안녕하세요 세계. 다람쥐 헌 쳇바퀴에 타고파. नमस्ते दुनिया, यह एक परीक्षण है। ١٢٣ ۴۵۶ १२३
مرحبا بالعالم كيف حالك اليوم. שלום עולם מה שלומך. Γειά σου Κόσμε. สวัสดีชาวโลก
👩‍👩‍👧‍👦 family 🏳️‍🌈 flag 👍🏽 thumbs 🇩🇪 ½ ⅷ ² ㊿ Ⅻ 𝟘𝟙𝟚 𠀀𠀁 ﬁ ŀ Ǆ ǅ ǆ İı ſ K Å
""".strip().split("\n")

SPACE_CHARS = " \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u180e\u2000\u2009\u200b\u2028\u2029\u202f\u3000\ufeff"
MARKED = "e\u0301 a\u0328\u0301 q\u0323\u0307 \u1100\u1161\u11a8 \uac00\u11a8 \u0344 \ufb1d \u2126 \u0958 n\u0303a\u030a\u0323"
ALPHABETS = [
    "abcdefg hijklmnop",
    "ABCdef Ghi",
    "'sStTmMdDlLvVrReE\u017f \u2019",
    "0123456789 ,.\u0662\u0967\u00b2\u00bd\u216b\U0001d7d8a",
    SPACE_CHARS + "a.",
    "\n\r a",
    MARKED,
    "\u4f60\u597d\u4e16\u754c\u3042\u30a2\uac00Aa \u3002",
    "\u01c4\u01c5\u01c6\u02b0\u00aa\u0300\u0345aA\u4e00'sS/\n\r ",
    "!?.,;:/\\|<>()[]{}#$%^&*-_=+`~\"@ \n",
    "\x00\x01\x04\x16\x7f\x80\u00ad\u200d\ufe0f\U0001f469\U0001f3fd\U0001f1e9",
    "<|im_start|>end of text\n",
]


def random_text(rng):
    kind = rng.randrange(10)
    size = rng.choice([1, 2, 3, 5, 8, 13, 21, 40])
    if kind < 6:
        alphabet = rng.choice(ALPHABETS)
        return "".join(rng.choice(alphabet) for _ in range(size)).encode()
    if kind == 6:
        alphabet = "".join(rng.sample(ALPHABETS, 3))
        return "".join(rng.choice(alphabet) for _ in range(size)).encode()
    if kind == 7:
        planes = [(0x20, 0x7F), (0x80, 0x2FF), (0x300, 0x1FFF), (0x2000, 0xD7FF), (0xE000, 0x10FFFF)]
        return "".join(chr(rng.randrange(*rng.choice(planes))) for _ in range(size)).encode()
    if kind == 8:
        return bytes(rng.randrange(256) for _ in range(size))
    text = rng.choice(PARAGRAPHS).encode()
    begin = rng.randrange(len(text))
    return text[begin : begin + rng.randrange(60)]


def fixed_texts():
    yield from (b"", bytes(range(256)), b" " * 100, b"\n" * 50, b"a" * 100, b"\xed\xa0\x80", b"\xf0\x9f\x98")
    yield from (p.encode() for p in PARAGRAPHS)
    yield from (a.encode() for a in ALPHABETS)
    yield "\u017f 'S 'ſ it'ſ I'LL we'Ve".encode()
    yield "<|im_start|>user\nHi <|im_end|>\n<|im_end|> <tool_call>x<|im_en<｜end▁of▁sentence｜>".encode()


def byte_letters():
    letters = {b: chr(b) for b in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]}
    spare = iter(range(0x100, 0x144))
    return [letters.get(b) or chr(next(spare)) for b in range(256)]


def train():
    """Tokens, kinds and merges of a small vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = byte_letters()
    missing = {letters[b] for b in MISSING_BYTES}
    alphabet = [x for x in letters if x not in missing]
    trainer = trainers.BpeTrainer(vocab_size=1756, initial_alphabet=alphabet, show_progress=False)
    corpus = PARAGRAPHS * 3 + [" " * 16, "\n\n\n", "a" * 8] * 5
    corpus += (ROOT / "tools/make_text_goldens.py").read_text().split("\n")
    tokenizer.train_from_iterator(corpus, trainer)
    data = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(data["vocab"], key=data["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in data["merges"]]
    kinds = [1] * len(tokens) + list(SPECIALS.values())
    return {"tokens": tokens + list(SPECIALS), "kinds": kinds, "merges": merges}


def from_gguf(path):
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    names = {"tokens": "tokens", "kinds": "token_type", "merges": "merges"}
    return {k: list(fields[f"tokenizer.ggml.{v}"].contents()) for k, v in names.items()}


def oracle(family, vocabulary, with_special):
    pattern, nfc, isolate, ignore = FAMILIES[family]
    normal = {t: i for i, t in enumerate(vocabulary["tokens"])}
    merges = [tuple(m.split(" ")) for m in vocabulary["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=normal, merges=merges, ignore_merges=ignore))
    steps = [pre_tokenizers.Digits(individual_digits=True)] if isolate else []
    if pattern:
        steps.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    if with_special:
        added = [(t, k) for t, k in zip(vocabulary["tokens"], vocabulary["kinds"]) if k in (CONTROL, USER_DEFINED)]
        tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, _ in added])
    return tokenizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gguf")
    parser.add_argument("--cases", type=int, default=280)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/text/data")
    options = parser.parse_args()
    vocabulary = from_gguf(options.gguf) if options.gguf else train()
    rng = random.Random(options.seed)
    inputs = [*fixed_texts(), *(random_text(rng) for _ in range(options.cases))]
    texts = [b.decode("utf-8", errors="replace") for b in inputs]
    cases = {"inputs": [b.hex() for b in inputs], "plain": {}, "with_special": {}}
    for family in FAMILIES:
        for key in ("plain", "with_special"):
            tokenizer = oracle(family, vocabulary, key == "with_special")
            ids = [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
            cases[key][family] = ids
    options.out.mkdir(parents=True, exist_ok=True)
    compact = {"ensure_ascii": False, "separators": (",", ":")}
    (options.out / "vocabulary.json").write_text(json.dumps(vocabulary, **compact) + "\n")
    (options.out / "tokenizer_cases.json").write_text(json.dumps(cases, **compact) + "\n")


if __name__ == "__main__":
    main()
