#!/usr/bin/env python3
"""Writes tokenizer.json files of every shape that published models have, and what Hugging Face
`tokenizers` does with them, for tests/text/tokenizer_json/.

Without options: tests/text/data/tokenizer_json/{inputs,NAME,NAME.results}.json. With --cases N --seed S
--out FOLDER: the same with more inputs; run the test program with WEFT_TEXT_GOLDENS=FOLDER.
With --file TOKENIZER.json: that file instead of the shapes made here, e.g. a published model's.

Needs PyPI: tokenizers.
"""

import argparse
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import make_text_goldens as texts

ROOT = texts.ROOT
MARK = "\u2581"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
HAN = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
HAN_OLD = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
MINUS = r"[\p{L}&&[^\p{Lu}]]+|\p{Nd}{2}|[^\P{S}+]|\s+$|(?<=\d)[a-z]|.|\n"


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(*steps, **options):
    options = {"add_prefix_space": False, "use_regex": not steps, **options}
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(**options)])


def added(content, special=True, **options):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"content": content, **flags, "special": special, **options}


ENDS = [added("<|endoftext|>"), added("<|im_start|>"), added("<|im_end|>")]
TOOLS = [added("<tool_call>", False), added("<|im_end|>\n")]
STRIPPING = [
    added("<l>", lstrip=True),
    added("<r>", rstrip=True, special=False),
    added("<both>", lstrip=True, rstrip=True, normalized=True),
    added("word", single_word=True, special=False),
    added("\u0401\u0436", special=False, normalized=True),
    added("e\u0301", special=False),
    added("  ", special=False, normalized=True),
    added("x y", special=False, normalized=True, rstrip=True),
]
NEWLINES = [added("\n" * n, False) for n in range(1, 6)] + [added("\t" * n, False) for n in (1, 2)]
DIGITS = pre_tokenizers.Digits(individual_digits=True)

# name: (pre-tokenizer, added tokens, options)
BYTE_SHAPES = {
    "gpt2": (pre_tokenizers.ByteLevel(add_prefix_space=False), [added("<|endoftext|>", normalized=True)], {}),
    "roberta": (pre_tokenizers.ByteLevel(add_prefix_space=True), ENDS, {"roberta": True}),
    "neox": (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        ENDS[:1] + [added(" " * n, False, normalized=True) for n in range(8, 1, -1)],
        {"normalizer": normalizers.NFC()},
    ),
    "llama3": (byte_level(split(texts.llama3(r"\p{N}{1,3}"))), ENDS, {"ignore_merges": True, "bos": 1}),
    "qwen35": (byte_level(split(QWEN35)), ENDS + TOOLS, {"normalizer": normalizers.NFC()}),
    "qwen2": (byte_level(split(texts.llama3(r"\p{N}"))), ENDS + TOOLS, {"normalizer": normalizers.NFC()}),
    "smollm2": (byte_level(DIGITS, use_regex=True), ENDS, {}),
    "o200k": (byte_level(split(texts.cased(r"\p{N}{1,3}", texts.CONTRACTION + "?"))), ENDS, {"ignore_merges": True}),
    "tekken": (byte_level(split(texts.cased(r"\p{N}", ""))), ENDS, {"ignore_merges": True}),
    "cl100k": (byte_level(split(CL100K, "removed", True)), ENDS, {}),
    "gpt2_split": (byte_level(split(GPT2)), ENDS, {"pairs": False}),
    "nfkc": (byte_level(split(GPT2)), ENDS, {"normalizer": normalizers.NFKC()}),
    "nfkd": (byte_level(split(GPT2)), ENDS, {"normalizer": normalizers.NFKD()}),
    "deepseek3": (byte_level(split(r"\p{N}{1,3}"), split(HAN), split(DEEPSEEK3)), ENDS, {"bos": 1}),
    "deepseek_coder": (
        byte_level(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(HAN_OLD), DIGITS),
        ENDS,
        {},
    ),
    "bloom": (byte_level(split(BLOOM)), ENDS, {}),
    "behaviors": (
        byte_level(
            split(r"\n+", "merged_with_previous"),
            split(r"[,;]", "merged_with_next"),
            split(r"\d", "contiguous"),
            split("zz", "removed"),
            pre_tokenizers.Split(".", "merged_with_previous", True),
            pre_tokenizers.Punctuation("contiguous"),
        ),
        ENDS,
        {"normalizer": normalizers.Sequence([normalizers.Strip(), normalizers.NFD()])},
    ),
    "syntax": (byte_level(split(MINUS), use_regex=False), [*ENDS, added("<unk>")], {"unknown": True}),
    "added": (
        byte_level(DIGITS, use_regex=True),
        ENDS + STRIPPING,
        {"normalizer": normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\t+"), " ")])},
    ),
}

LLAMA2 = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
SPACES = normalizers.Replace(" ", MARK)


def metaspace(scheme, cut):
    return pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=cut)


def fused(strip):
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


# name: (normalizer, pre-tokenizer, decoder, added tokens, options)
CHAR_SHAPES = {
    "llama2": (LLAMA2, None, fused(True), ENDS, {"bos": 1}),
    "llama2_normalized": (LLAMA2, None, fused(True), [{**t, "normalized": True} for t in ENDS], {"bos": 1}),
    "mistral": (None, metaspace("first", False), fused(True), ENDS, {"bos": 1}),
    "metaspace": (
        None,
        metaspace("always", True),
        decoders.Metaspace(replacement=MARK, prepend_scheme="always", split=True),
        ENDS + STRIPPING[:4],
        {"bytes": 0},
    ),
    "no_fuse": (SPACES, None, fused(False), ENDS, {"bytes": 100, "fuse_unk": False}),
    "gemma": (
        SPACES,
        pre_tokenizers.Split(" ", "merged_with_previous"),
        fused(False),
        [added("<bos>"), added("<start_of_turn>"), added("<end_of_turn>")] + NEWLINES,
        {"bos": 1},
    ),
}


def corpus():
    lines = texts.PARAGRAPHS * 3 + [" " * 16, "\n\n\n", "a" * 8, "x  y", "\t\tz"] * 5
    return lines + (ROOT / "tools/make_text_goldens.py").read_text().split("\n")[:150]


def trained(normalizer, pre_tokenizer, alphabet, size):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    return json.loads(tokenizer.to_str())["model"]


def finish(file, extra, options):
    """The text of a tokenizer.json with these added tokens and a post-processor."""
    vocab = file["model"]["vocab"]
    ids = {t["content"]: vocab.get(t["content"], -1) for t in extra}
    fresh = iter(range(len(vocab), len(vocab) + len(extra)))
    file["added_tokens"] = [{"id": ids[t["content"]] if ids[t["content"]] >= 0 else next(fresh), **t} for t in extra]
    first, last = file["added_tokens"][0], file["added_tokens"][1 if len(extra) > 1 else 0]
    processor = processors.ByteLevel(trim_offsets=False)
    if options.get("roberta"):
        processor = processors.RobertaProcessing((last["content"], last["id"]), (first["content"], first["id"]))
    if options.get("bos"):
        pairs = [(t["content"], t["id"]) for t in (first, last)]
        single = f"{first['content']} $A" + (f" {last['content']}" if options["bos"] > 1 else "")
        template = processors.TemplateProcessing(single=single, pair=single + " $B", special_tokens=pairs)
        processor = processors.Sequence([processor, template])
    file["post_processor"] = json.loads(processor.__getstate__())
    return file


def state(part):
    return json.loads(part.__getstate__()) if part else None


def base(model, normalizer, pre_tokenizer, decoder):
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": state(normalizer),
        "pre_tokenizer": state(pre_tokenizer),
        "post_processor": None,
        "decoder": state(decoder),
        "model": model,
    }


def byte_shape(name):
    pre_tokenizer, extra, options = BYTE_SHAPES[name]
    letters = texts.byte_letters()
    missing = {letters[b] for b in texts.MISSING_BYTES} if options.get("unknown") else set()
    model = trained(options.get("normalizer"), pre_tokenizer, [x for x in letters if x not in missing], 620)
    model["ignore_merges"] = options.get("ignore_merges", False)
    if options.get("unknown"):
        model["vocab"]["<unk>"] = len(model["vocab"])
        model["unk_token"] = "<unk>"
    if not options.get("pairs", True):
        model["merges"] = [" ".join(m) for m in model["merges"]]
    return finish(base(model, options.get("normalizer"), pre_tokenizer, decoders.ByteLevel()), extra, options)


def char_shape(name):
    normalizer, pre_tokenizer, decoder, extra, options = CHAR_SHAPES[name]
    model = trained(SPACES, metaspace("always", True), [MARK], 700)
    tokens = ["<unk>", *(t["content"] for t in extra)]
    tokens += [f"<0x{b:02X}>" for b in range(options.get("bytes", 256))]
    # Runs of spaces, as published vocabularies have them.
    runs = [MARK * n for n in (2, 4, 8)]
    merges = [[MARK * n, MARK * n] for n in (1, 2, 4)] + model["merges"]
    tokens += [t for t in sorted(model["vocab"], key=model["vocab"].get) if t not in tokens]
    tokens += [t for t in runs if t not in model["vocab"]]
    model.update(
        vocab={t: i for i, t in enumerate(tokens)},
        merges=merges,
        unk_token="<unk>",
        fuse_unk=options.get("fuse_unk", True),
        byte_fallback=options.get("bytes", 256) > 0,
    )
    extra = [added("<unk>"), *extra]
    return finish(base(model, normalizer, pre_tokenizer, decoder), extra, options)


ALPHABETS = texts.ALPHABETS + [
    "<l> <r>\u00a0<both>x y wordw \u0401\u0436\u0415\u0308\u0436",
    "\t\n \t\n\n  ",
    "\u2581 \u2581a<0x41><unk>",
]
SPELLINGS = ["<l>", "<r>", "<both>", "word", "\u0401\u0436", "\u0415\u0308\u0436", "e\u0301", "  ", "x y", "<unk>", "<bos>", "<s>"]
SPELLINGS += ["<start_of_turn>", "<end_of_turn>", "<|im_start|>", "<|im_end|>", "<|im_end|>\n", "<tool_call>"]
SPELLINGS += [" ", "\n", "\n\n", "a", "\u2581", "\t", "w", "\u00e9", "<|endoftext|>", "<0x41>", "9", "zz", ", "]


def inputs(rng, count):
    yield from texts.fixed_texts()
    yield from (a.encode() for a in ALPHABETS)
    for _ in range(count):
        kind = rng.randrange(3)
        if kind == 0:
            yield "".join(rng.choice(SPELLINGS) for _ in range(rng.randrange(1, 9))).encode()
        elif kind == 1:
            alphabet = rng.choice(ALPHABETS)
            yield "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 20))).encode()
        else:
            yield texts.random_text(rng)


def results(text_of_file, all_texts):
    """Ids with and without special tokens parsed, and the decoded text of the former."""
    tokenizer = Tokenizer.from_str(text_of_file)
    out = {"plain": [], "special": [], "decoded": []}
    for key, keeps_text in (("plain", True), ("special", False)):
        tokenizer.encode_special_tokens = keeps_text
        out[key] = [e.ids for e in tokenizer.encode_batch(all_texts, add_special_tokens=False)]
    out["decoded"] = [tokenizer.decode(ids, skip_special_tokens=True) for ids in out["special"]]
    out["around"] = tokenizer.encode("a").ids
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--file", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/text/data")
    options = parser.parse_args()
    folder = options.out / "tokenizer_json"
    folder.mkdir(parents=True, exist_ok=True)
    compact = {"ensure_ascii": False, "separators": (",", ":")}
    files = {name: byte_shape(name) for name in BYTE_SHAPES}
    files.update({name: char_shape(name) for name in CHAR_SHAPES})
    if options.file:
        files = {options.file.parent.name: json.loads(options.file.read_text())}
    all_inputs = list(inputs(random.Random(options.seed), options.cases))
    all_texts = [b.decode("utf-8", errors="replace") for b in all_inputs]
    cases = {"inputs": [b.hex() for b in all_inputs], "shapes": list(files)}
    (folder / "inputs.json").write_text(json.dumps(cases, **compact) + "\n")
    for name, file in files.items():
        text = json.dumps(file, **compact)
        (folder / f"{name}.json").write_text(text + "\n")
        found = results(text, all_texts)
        (folder / f"{name}.results.json").write_text(json.dumps(found, **compact) + "\n")


if __name__ == "__main__":
    main()
