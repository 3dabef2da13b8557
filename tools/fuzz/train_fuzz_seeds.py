"""The seeds of make_fuzz_seeds.py for the readers of training data."""

import json
import struct


def token_store(tokens=(1, 2, 0, 3, 0), starts=(0, 3), mask=None, start=None, changes=()):
    """The file as weft/train/data/store/token_store.h describes it, without the hash: the target adds it."""
    numbers = {"vocabulary": 1000, "tokens": len(tokens), "documents": len(starts), "mask": int(mask is not None),
               "tokenizer": 1, "sources": 2, "end_of_text": 0, **dict(changes)}

    def padded(data):
        return data + bytes(-len(data) % 8)

    kind = "H" if numbers["vocabulary"] <= 65536 else "I"
    return b"".join([start or b"wefttoks" + struct.pack("<Q", 1), padded(struct.pack(f"<{len(tokens)}{kind}", *tokens)),
                     padded(mask or b""), struct.pack(f"<{len(starts)}Q", *starts),
                     struct.pack("<7Q", *(number % 2**64 for number in numbers.values())), bytes(8), b"wefttoke"])


def token_store_seeds():
    yield "good", token_store()
    yield "good_mask", token_store(mask=b"\x1b")
    yield "good_large_vocabulary", token_store((70000, 5), (0,), changes={"vocabulary": 100000})
    yield "d1_empty", token_store((), ())
    yield "d1_magic", token_store(start=b"wefttok?" + struct.pack("<Q", 1))
    yield "d1_version", token_store(start=b"wefttoks" + struct.pack("<Q", 2))
    for size in (0, 7, 16, 87, 90):
        yield f"d1_cut_{size}", token_store()[:size]
    yield "d1_end", token_store()[:-1] + b"?"
    for name, key, value in [("tokens_2_63", "tokens", 2**63), ("tokens_2_64", "tokens", 2**64 - 1), ("tokens_more", "tokens", 13),
                             ("documents_2_61", "documents", 2**61), ("documents_none", "documents", 0), ("mask_2", "mask", 2),
                             ("mask_missing", "mask", 1), ("vocabulary_0", "vocabulary", 0), ("vocabulary_small", "vocabulary", 3),
                             ("vocabulary_2_40", "vocabulary", 2**40), ("end_of_text", "end_of_text", 1000), ("no_end_of_text", "end_of_text", -1)]:
        yield f"d2_{name}", token_store(changes={key: value})
    for name, starts in {"late": (1, 3), "equal": (0, 0), "backwards": (0, 3, 2), "beyond": (0, 5), "huge": (0, 2**64 - 1)}.items():
        yield f"d3_{name}", token_store(starts=starts)


def train_document_seeds():
    chat = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "ab\n"}, {"role": "user", "content": "<|im_end|>"},
            {"role": "assistant", "content": " a"}]
    for name, value in {"good_text": {"text": "a b\nab"}, "good_chat": {"messages": chat}, "good_completion": {"prompt": "a", "completion": "b"},
                        "d4_no_key": {"body": "a"}, "d4_two_keys": {"text": "a", "messages": chat}, "d4_number": {"text": 3}, "d4_list": [1],
                        "d4_no_completion": {"prompt": "a"}, "d4_empty_completion": {"prompt": "a", "completion": ""},
                        "d5_no_list": {"messages": {}}, "d5_no_answer": {"messages": chat[:1]}, "d5_no_object": {"messages": ["a"]},
                        "d5_no_content": {"messages": [{"role": "assistant", "content": None}]},
                        "d5_calls": {"messages": [{"role": "assistant", "content": "a", "tool_calls": []}]}}.items():
        yield name, json.dumps(value).encode()
    for name, value in {"good_lines": b"a b\n\n \nab\r\n\fb" * 3, "good_long_line": b"a b" * 50, "good_empty_pages": b"\r\n\fa\n\f\n\f" * 2, "d6_latin1": b"ok\ncaf\xe9\n",
                        "d6_mark": b"\xef\xbb\xbfa", "d6_cut_character": b"x" * 14 + b"\xf0\x9f\x99\x82" * 8}.items():
        yield name, value
