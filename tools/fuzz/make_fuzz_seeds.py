#!/usr/bin/env python3
"""Writes tests/fuzz/seeds: for each target small inputs that its fuzzer begins with.
A seed's name begins with the rule or case that it is about; docs/HOSTILE_FILES.md lists them.

Usage: make_fuzz_seeds.py [OUT_FOLDER]
"""

import json
import math
import pathlib
import struct
import sys

from answer_fuzz_seeds import answer_seeds
from grammar_fuzz_seeds import grammar_seeds
from train_fuzz_seeds import token_store_seeds, train_document_seeds

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/text/data"


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="U8", shape="[4]", offsets="[0,4]", name="a"):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


def one(**changes):
    return safetensors("{" + entry(**changes) + "}", b"abcd")


def two(first, second, data=b"abcdefgh"):
    header = entry(offsets=first) + "," + entry(offsets=second, name="b")
    return safetensors("{" + header + "}", data)


def safetensors_seeds():
    for name, text in {
        "empty_object": "{}", "spaces_around": " {}  ", "empty_name": "{" + entry(name="") + "}",
        "nul_name": "{" + entry(name="a\\u0000b") + "}", "metadata_null": '{"__metadata__":null,' + entry() + "}",
        "metadata": '{"__metadata__":{"format":"pt"},' + entry() + "}",
        "metadata_number": '{"__metadata__":{"a":1}}', "metadata_twice": '{"__metadata__":{},"__metadata__":{}}',
        "metadata_key_twice": '{"__metadata__":{"a":"b","a":"c"}}', "name_twice": "{" + entry() + "," + entry() + "}",
        "unknown_field": '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":[{"y":1}]}}',
        "missing_field": '{"a":{"dtype":"U8","shape":[4]}}', "list": "[]", "two_values": "{}{}",
        "nul_behind": "{}\0\0", "mark": "\ufeff{}", "surrogate": '{"\\ud800":{}}',
        "deep": '{"__metadata__":' + "[" * 200 + "]" * 200 + "}",
    }.items():
        needs_data = '"data_offsets"' in text
        yield f"f1_{name}", safetensors(text, b"abcd" if needs_data else b"")
    yield "f1_not_utf8", safetensors(b'{"\xff":{}}')
    yield "f1_length_0", safetensors("")
    yield "f1_length_100000001", safetensors("{}", length=100_000_001)
    yield "f1_length_2_64", safetensors("{}", length=2**64 - 1)
    yield "f1_short", b"\2\0\0"
    for name, shape in {
        "scalar": "[]", "negative": "[-4]", "float": "[4.0]", "exponent": "[4e0]", "text": '["4"]', "bool": "[true]",
        "2_64": "[18446744073709551616]", "product": "[4294967296,4294967296]", "zero_product": "[0,9223372036854775808,2]",
    }.items():
        yield f"f1_shape_{name}", one(shape=shape)
    yield "f1_zero_size", one(shape="[0,3]", offsets="[0,0]")
    for name, dtype in {"f4_odd": "F4", "f6": "F6_E2M3", "c64": "C64", "lower": "f32", "bool_byte_2": "BOOL"}.items():
        yield f"f1_dtype_{name}", one(dtype=dtype)
    for name, offsets in {
        "one": "[0]", "three": "[0,4,4]", "backwards": "[4,0]", "negative": "[-1,3]", "wrap": "[0,18446744073709551615]",
        "float": "[0.0,4]", "hole_at_start": "[1,5]", "truncated": "[0,400]",
    }.items():
        yield f"f1_offsets_{name}", one(offsets=offsets)
    yield "f1_order", two("[4,8]", "[0,4]")
    yield "f1_hole", two("[0,4]", "[5,9]", b"abcdefghi")
    yield "f1_overlap", two("[0,4]", "[3,7]", b"abcdefg")
    yield "f1_same_place", two("[0,4]", "[0,4]", b"abcd")
    yield "f1_trailing", two("[0,4]", "[4,8]", b"abcdefghi")
    yield from matrix_seeds()
    yield "e47_odd_place", safetensors(
        "{" + entry(shape="[1]", offsets="[0,1]") + "," + entry("F32", "[1]", "[1,5]", "b") + "} ", b"abcde")
    for name, names in {
        "pieces": ("x_shard-1-of-2", "x_shard-2-of-2"), "mlc_pieces": ("x_shard-0", "x_shard-1"),
        "piece_0": ("x_shard-0-of-2", "x_shard-1-of-2"), "piece_3": ("x_shard-3-of-2", "x_shard-1-of-2"),
        "mixed": ("x_shard-1-of-2", "x_shard-2-of-3"), "one_of_1": ("x_shard-1-of-1", "y"),
        "overflow": ("x_shard-1-of-99999999999999999999", "y"), "of_inside": ("x-of-2_shard-1-of-2", "x-of-2_shard-2-of-2"),
        "missing": ("x_shard-2-of-2", "y"), "no_number": ("x_shard-a-of-2", "y"),
    }.items():
        yield f"e41_{name}", safetensors("{" + entry(name=names[0]) + "," + entry("U8", "[4]", "[4,8]", names[1]) + "}",
                                         b"abcdefgh")


def matrix(parts):
    """A file of the tensors of one matrix, zeros."""
    sizes = {"U32": 4, "I32": 4, "F16": 2, "U8": 1}
    entries, data = [], 0
    for name, (dtype, shape) in parts.items():
        size = sizes[dtype] * math.prod(shape)
        entries.append(entry(dtype, json.dumps(shape), f"[{data},{data + size}]", f"l.0.{name}"))
        data += size
    return safetensors("{" + ",".join(entries) + "}", bytes(data))


def matrix_seeds():
    yield "e28_mlx", matrix({"weight": ("U32", [8, 8]), "scales": ("F16", [8, 1]), "biases": ("F16", [8, 1])})
    yield "e33_scales_shape", matrix({"weight": ("U32", [8, 8]), "scales": ("F16", [8, 3]), "biases": ("F16", [8, 1])})
    yield "e33_no_scales", matrix({"weight": ("U32", [8, 8]), "biases": ("F16", [8, 1])})
    yield "e33_zero", matrix({"weight": ("U32", [0, 8]), "scales": ("F16", [0, 0]), "biases": ("F16", [0, 0])})
    yield "mxfp4", matrix({"weight": ("U32", [8, 8]), "scales": ("U8", [8, 2])})
    yield "e34_awq", matrix({"qweight": ("I32", [32, 2]), "qzeros": ("I32", [1, 2]), "scales": ("F16", [1, 16])})
    yield "e34_gptq", matrix({"qweight": ("I32", [4, 16]), "qzeros": ("I32", [1, 2]), "scales": ("F16", [1, 16]),
                              "g_idx": ("I32", [32])})


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def tensor(name="a", dims=(32,), kind=0, offset=0, num_dims=None):
    head = text(name) + struct.pack("<I", len(dims) if num_dims is None else num_dims)
    return head + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, offset)


def gguf(keys=(), tensors=(), data=128, num_keys=None, num_tensors=None, head=b"GGUF\3\0\0\0"):
    out = head + struct.pack("<QQ", len(tensors) if num_tensors is None else num_tensors,
                       len(keys) if num_keys is None else num_keys)
    out += b"".join(keys) + b"".join(tensors)
    return out + b"\0" * (-len(out) % 32) + b"d" * data


def gguf_seeds():
    yield "good", gguf([key("a", 4, b"\1\0\0\0"), key("s", 8, text("x"))], [tensor(), tensor("b", (4, 8), 0, 128)], 256)
    for name, size in {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 1: 64, 30: 64, 24: 32, 28: 256, 20: 18, 39: 17}.items():
        yield f"type_{name}", gguf([], [tensor(kind=name)], size)
    for name, size in {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 16: 66, 17: 74, 18: 98, 19: 50, 21: 110,
                       22: 82, 23: 136, 29: 56, 34: 54, 35: 66}.items():
        yield f"type_{name}", gguf([], [tensor(dims=(256,), kind=name)], size)
    for version in (0, 1, 2, 4, 3 << 24):
        yield f"e61_version_{version}", gguf(tensors=[tensor()], head=b"GGUF" + struct.pack("<I", version))
    yield "e61_magic", gguf(head=b"GGUX\3\0\0\0")
    for name, count in {"2_63": 2**63, "2_32": 2**32, "2_64": 2**64 - 1}.items():
        yield f"e62_keys_{name}", gguf(num_keys=count)
        yield f"e62_tensors_{name}", gguf(num_tensors=count)
    yield "e63_long_text", gguf([text("k") + struct.pack("<IQ", 8, 2**64 - 1)])
    yield "e63_no_key", gguf([key("", 4, b"\0" * 4)])
    yield "e63_key_twice", gguf([key("k", 4, b"\0" * 4)] * 2)
    yield "e63_key_not_ascii", gguf([key("\u00e9", 4, b"\0" * 4)])
    yield "e63_array", gguf([key("k", 9, struct.pack("<IQ", 4, 2) + b"\1\0\0\0\2\0\0\0")])
    yield "e63_array_of_arrays", gguf([key("k", 9, struct.pack("<IQIQ", 9, 1, 4, 0))])
    yield "e63_array_count", gguf([key("k", 9, struct.pack("<IQ", 10, 2**61))])
    yield "e63_array_of_text", gguf([key("k", 9, struct.pack("<IQ", 8, 2) + text("a") + text(""))])
    yield "e63_bool_2", gguf([key("k", 7, b"\2")])
    yield "e63_all_types", gguf([key(f"k{t}", t, b"\1" * n) for t, n in enumerate([1, 1, 2, 2, 4, 4, 4, 1])]
                                + [key(f"k{t}", t, b"\1" * 8) for t in (10, 11, 12)])
    yield "e63_unknown_type", gguf([key("k", 13, b"\0" * 8)])
    for value in (0, 1, 3, 8, 12, 64, 2**31):
        yield f"e64_alignment_{value}", gguf([key("general.alignment", 4, struct.pack("<I", value))], [tensor()])
    yield "e64_alignment_type", gguf([key("general.alignment", 10, struct.pack("<Q", 32))], [tensor()])
    for count in (0, 5, 2**32 - 1):
        yield f"e65_dims_{count}", gguf([], [tensor(dims=(4,) * min(count, 5), num_dims=count)])
    for name, dims in {"0": (0,), "2_63": (2**63,), "wrap": (2**42 + 1, 2**22), "int64_max": (2**63 - 1, 2)}.items():
        yield f"e65_dim_{name}", gguf([], [tensor(dims=dims)])
    for kind in (4, 5, 31, 999):
        yield f"e66_type_{kind}", gguf([], [tensor(kind=kind)])
    yield "e66_block", gguf([], [tensor(dims=(33,), kind=2)])
    for name, offset in {"misaligned": 129, "gap": 160, "overlap": 96, "beyond": 1 << 40, "wrap": 2**64 - 16}.items():
        yield f"e67_{name}", gguf([], [tensor(), tensor("b", offset=offset)], 256)
    yield "e67_decreasing", gguf([], [tensor(offset=128), tensor("b")], 256)
    yield "e67_truncated", gguf([], [tensor(), tensor("b", offset=128)], 255)
    yield "e67_no_padding", gguf([], [tensor(dims=(3,))], 12)
    yield "e67_trailing", gguf([], [tensor()], 200)
    yield "e68_name_twice", gguf([], [tensor(), tensor(offset=128)], 256)
    for size in (63, 64, 65):
        yield f"e68_name_{size}", gguf([], [tensor("n" * size)])
    yield "e70_split", gguf([key("split.no", 2, b"\0\0"), key("split.count", 2, b"\3\0"),
                             key("split.tensors.count", 5, b"\1\0\0\0")], [tensor()])


def index(weights, **more):
    return json.dumps({"metadata": {"total_size": 16}, "weight_map": weights, **more}).encode()


def index_seeds():
    good = {"a": "1.safetensors", "b": "2.safetensors"}
    yield "good", index(good)
    yield "e59_missing_file", index({**good, "b": "3.safetensors"})
    yield "e59_not_in_file", index({**good, "c": "1.safetensors"})
    yield "e59_not_in_index", index({"a": "1.safetensors"})
    yield "e59_other_file", index({"a": "2.safetensors", "b": "2.safetensors"})
    for name, path in {"up": "../x", "absolute": "/etc/passwd", "nul": "1.safetensors\0x", "dot": ".", "empty": "",
                       "itself": "model.safetensors.index.json"}.items():
        yield f"e59_path_{name}", index({"a": path, "b": "2.safetensors"})
    yield "e59_not_text", index({"a": 1})
    yield "e59_total_size", index(good, metadata={"total_size": -1.5})
    yield "e59_empty", index({})
    yield "e59_list", b'{"weight_map":[]}'
    yield "e59_twice", b'{"weight_map":{"a":"1.safetensors","a":"2.safetensors"}}'


def cache_tensor(**changes):
    return {"name": "a", "shape": [2, 4], "dtype": "float16", "format": "raw", "nbytes": 16, "byteOffset": 0} | changes


def cache(tensors, **changes):
    record = {"dataPath": "0.bin", "format": "raw-shard", "nbytes": 16, "md5sum": "0", "records": tensors} | changes
    return json.dumps({"metadata": {"ParamBytes": 16.0}, "records": [record]}).encode()


def tensor_cache_seeds():
    yield "good", cache([cache_tensor()])
    yield "e71_bf16", cache([cache_tensor(dtype="float32", format="f32-to-bf16")])
    yield "e71_bf16_odd", cache([cache_tensor(dtype="float32", format="f32-to-bf16", nbytes=15)])
    for name, changes in {"behind": {"byteOffset": 8}, "negative": {"byteOffset": -1}, "wrap": {"byteOffset": 2**64 - 8},
                          "nbytes": {"nbytes": 8}, "shape": {"shape": [2**32, 2**32]}, "dtype": {"dtype": "float17"},
                          "format": {"format": "zip"}}.items():
        yield f"e71_{name}", cache([cache_tensor(**changes)])
    for name, path in {"up": "../0.bin", "absolute": "/etc/passwd", "missing": "1.bin", "itself": "tensor-cache.json"}.items():
        yield f"e71_path_{name}", cache([cache_tensor()], dataPath=path)
    yield "e71_name_twice", cache([cache_tensor(nbytes=8, shape=[4]), cache_tensor(nbytes=8, shape=[4], byteOffset=8)])
    yield "e71_file_size", cache([cache_tensor()], nbytes=17)


def weft(params, **more):
    return json.dumps({"format": "weft.shard_info", "version": 1, **more, "params": params}).encode()


def tvm(shape, dtype="float16", function="weft.stack_shards", extras=(0, 2)):
    return json.dumps({"l.0.q": [[function, [shape, dtype], *extras]]}).encode()


WEFT_RULES = {
    "reorder_then_shard": {"l.*.qkv": {"from": ["l.*.q", "l.*.k", "l.*.k"], "shape": [8, 6], "dtype": "F16", "steps":
                           [["combine_qkv"], ["interleave_qkv", 4, 2], ["shard", 0, 8]]}, "n": [["shard_whole"]]},
    "e18_interleaved": {"l.1.q": [["unflatten", 0, [4, 2]], ["permute", [1, 0, 2]], ["flatten", 0, 1], ["repeat", 1, 2],
                                  ["shard_segments", 1, [8, 4]]]},
    "e27_rope": {"l.1.q": [["deinterleave", 1, 3], ["permute_rope", 4], ["stack", 0]]},
    "e22_heads": {"l.0.q": [["shard_heads", 0, 4, 2, "q"]]},
    "e21_experts": {"l.0.q": [["shard_expert", 0, 1, 3]], "l.1.q": [["shard_expert", 1, 0, 3]]},
    "e21_no_expert": {"l.0.q": [["shard_expert", 0, 3, 3]]}, "e21_expert_dim": {"l.0.q": [["shard_expert", 2, 0, 3]]},
    "e54_dim": {"l.0.q": [["shard", 2, 1]]}, "e54_negative_dim": {"l.0.q": [["shard", -1, 1]]},
    "e54_permute": {"l.0.q": [["permute", [0, 0]]]}, "e54_unflatten": {"l.0.q": [["unflatten", 0, [3, 3]]]},
    "e54_narrow": {"l.0.q": [["narrow", 0, 7, 9]]}, "e54_narrow_wrap": {"l.0.q": [["narrow", 0, 7, 2**63 - 1]]},
    "e54_segments": {"l.0.q": [["shard_segments", 0, [4, 3]]]}, "e54_zero_segment": {"l.0.q": [["shard_segments", 0, [8, 0]]]},
    "e54_repeat": {"l.0.q": [["repeat", 0, 2**62], ["repeat", 1, 2**62]]},
    "e55_shape": {"l.0.q": {"shape": [8, 7], "steps": []}}, "e58_dtype": {"l.0.q": {"dtype": "BF16", "steps": []}},
    "e56_units": {"l.0.q": [["shard", 0, 3]]}, "e56_more_ranks": {"l.0.q": [["shard", 0, 8]]},
    "e57_overlap": {"l.*.q": [], "*.0.q": []}, "e57_nothing": {"x.*.q": []},
    "e51_missing": {"l.0.x": []}, "e50_function": {"l.0.q": [["no_such"]]}, "e5_replicate": {"l.0.q": []},
    "e21_select": {"l.0.k": [["uncombine_qkv", "q", 2, 1], ["select", 1, 0]]},
    "reshape": {"l.0.k": [["narrow", 0, 1, 3], ["reshape", [9, 2]], ["transpose", 0, 1]]},
}


def shard_info_seeds():
    for name, rules in WEFT_RULES.items():
        yield name, weft(rules)
    yield "others_error", weft({"l.0.q": []}, others="error")
    yield "tvm", tvm([2, 4, 6])
    yield "tvm_dims", b'{"l.0.q":0,"l.1.q":1,"n":-1}'
    yield "mlc", b'{"l.0.q":[{"func_name":"shard_n","in_shape":[8,6],"out_shape":[2,4,6],"out_dtype":"float16"}]}'
    yield "mlc_metadata", (b'{"params":[{"name":"n","shape":["x"],"preprocs":[{"func_name":"shard_n","in_shape":[6],'
                           b'"out_shape":[2,3],"out_dtype":"float32"}]}],"tensor_parallel_shards":2}')
    yield "e3_dim0", tvm([3, 4, 6])
    yield "e8_dtype", tvm([2, 4, 6], "float32")
    yield "e49_unknown_dtype", tvm([2, 4, 6], "float17")
    yield "e50_unknown", tvm([2, 4, 6], function="tests.no_such")
    yield "e50_absent", b'{"absent":[["no_such",[[1],"float16"]]]}'
    for name, shape in {"negative": [-1, 4], "zero": [0, 4], "float": [2.0, 4], "text": ["2"], "bool": [True], "2_63": [2**63],
                        "product": [2**32, 2**32]}.items():
        yield f"e49_shape_{name}", tvm(shape)
    yield "e49_shape_exponent", b'{"l.0.q":[["f",[[1e3],"float16"]]]}'
    for name, extra in {"text": "x", "float": 1.5, "null": None, "2_64": 2**64}.items():
        yield f"e49_extra_{name}", tvm([2, 4, 6], extras=(extra,))
    for name, value in {"empty": "", "list": "[]", "null": "null", "nan": '{"n":NaN}', "not": "{",
                        "step_empty": '{"n":[[]]}', "step_name": '{"n":[["f"]]}', "info_1": '{"n":[["f",[[1]]]]}',
                        "info_3": '{"n":[["f",[[1],"F16",0]]]}', "name_number": '{"n":[[1,[[1],"F16"]]]}'}.items():
        yield f"e48_{name}", value.encode()
    yield "e52_twice", b'{"n":[],"n":[]}'
    yield "e53_deep", b'{"n":' + b"[" * 200 + b"]" * 200 + b"}"
    yield "e53_many", json.dumps({f"p{i}": [] for i in range(500)}).encode()
    yield "e41_pieces", weft({"p": {"from": ["p_shard-1-of-2", "p_shard-2-of-2"], "steps": [["cat", 0], ["shard", 0, 1]]}})


def short(tokenizer):
    """The file with single characters and the first merges only."""
    model = tokenizer["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    added = {t["content"] for t in tokenizer["added_tokens"]}
    kept = [t for t in tokens if t in added or t == model["unk_token"] or (len(t) == 1 and ord(t) < 127) or t[0] in "\u0120\u2581"]
    kept = kept[:120]
    merges = [m for m in model["merges"] if all(p in kept for p in (m if isinstance(m, list) else m.split(" ")))][:4]
    for merge in merges:
        whole = "".join(merge if isinstance(merge, list) else merge.split(" "))
        kept += [whole] if whole not in kept else []
    model["vocab"] = {t: i for i, t in enumerate(kept)}
    model["merges"] = merges
    count = len(kept)
    for token in tokenizer["added_tokens"]:
        token["id"] = model["vocab"].get(token["content"], count)
        count += token["content"] not in model["vocab"]
    ids = {t["content"]: t["id"] for t in tokenizer["added_tokens"]} | model["vocab"]
    repair_ids(tokenizer.get("post_processor"), ids)
    return tokenizer


def repair_ids(part, ids):
    for step in (part or {}).get("processors", [part] if part else []):
        for name, token in step.get("special_tokens", {}).items():
            token["ids"] = [ids.get(t, 0) for t in token["tokens"]]
        for name in ("cls", "sep"):
            if name in step:
                step[name][1] = ids.get(step[name][0], 0)


def replaced(shape, pointer, value):
    *parents, last = pointer.split("/")
    tokenizer = short(json.loads((DATA / f"tokenizer_json/{shape}.json").read_text()))
    at = tokenizer
    for part in parents:
        at = at[part]
    at[last] = value
    return json.dumps(tokenizer).encode()


def tokenizer_json_seeds():
    for path in sorted((DATA / "tokenizer_json").glob("*.json")):
        if path.stem != "inputs" and not path.stem.endswith(".results"):
            yield path.stem, json.dumps(short(json.loads(path.read_text())), separators=(",", ":")).encode()
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    yield "growth", replaced("gpt2", "normalizer", {"type": "Sequence", "normalizers": [double] * 60})
    regex = {"type": "Split", "pattern": {"Regex": r"(?:\P{L}{90}){90}|[^\n]+"}, "behavior": "Isolated", "invert": False}
    yield "large_regex", replaced("gpt2", "pre_tokenizer", {"type": "Sequence", "pretokenizers": [regex]})
    yield "long_token", replaced("gpt2", "added_tokens", [{"id": 0, "content": "a" * 3000, "single_word": False,
                                 "lstrip": False, "rstrip": False, "normalized": False, "special": True}])


def tokenizer_config_seeds():
    token = {"content": "<s>", "lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": True}
    template = "{% for m in messages %}{{ bos_token + m.role + ': ' + m.content }}{% endfor %}"
    for name, value in {
        "small": {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template},
        "llama": {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "add_eos_token": False, "bos_token": token},
        "decoder": {"added_tokens_decoder": {"2": token, "3": {**token, "content": "<x>"}}, "add_prefix_space": True},
        "templates": {"chat_template": [{"name": "default", "template": template}, {"name": "tool_use", "template": "{{ tools }}"}]},
        "large_number": {"model_max_length": 10**30, "additional_special_tokens": ["<x>", {**token, "content": "<y>"}]},
        "hole": {"added_tokens_decoder": {"9": {**token, "content": "<z>"}}},
    }.items():
        yield name, json.dumps(value).encode()


def chat_template_seeds():
    cases = json.loads((DATA / "chat_cases.json").read_text())
    for i, (source, _) in enumerate(cases["snippets"]):
        yield f"snippet_{i:03}", source.encode()


def json_seeds():
    yield "config", b'{"a":[1,-2,3.5,1e300,true,null,"\\u00e9\\ud83d\\ude00"],"b":{"c":{}}}'
    for name, value in {"empty": b"", "twice": b'{"a":1,"a":2}', "behind": b"{} x", "large": b"[18446744073709551616,1e400]",
                        "deep": b"[" * 100, "mark": b"\xef\xbb\xbf{}", "nul": b"{}\0", "not_utf8": b'"\xff"',
                        "surrogate": b'"\\udc00"'}.items():
        yield name, value


def request_seeds():
    yield "chat", json.dumps({
        "model": "m", "n": 2, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 5,
        "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "seed": -4, "stop": ["a", "b"],
        "logprobs": True, "top_logprobs": 2, "user": "me", "tools": [], "tool_choice": "none", "response_format": {"type": "text"},
        "presence_penalty": 0.0, "logit_bias": None, "ignore_eos": True, "best": 1,
        "messages": [{"role": "developer", "content": [{"type": "text", "text": "be brief"}]}, {"role": "user", "content": "Hi"},
                     {"role": "assistant", "content": None}]}).encode()
    yield "completion", b'{"prompt": "a", "max_tokens": 3, "logprobs": 1, "stop": "x", "echo": false, "suffix": null, "best_of": 1}'
    yield "embedding", b'{"input": ["a text", [1, 2, 3]], "encoding_format": "base64", "model": "m", "user": "u"}'
    yield "response", b'{"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"type": "function_call_output", ' \
                      b'"call_id": "c", "output": "2"}], "instructions": "b", "max_output_tokens": 9, "tools": [], "stream": true}'
    yield "fields", b"localhost:80\nhttps://example.org\nBearer a key"
    for name, value in {"foreign_page": b"evil.example\nhttps://evil.example\nBearer a", "addresses": b"[::1]:80\n\n",
                        "texts": b'{"prompt": ["a", "b"]}', "tokens": b'{"prompt": [[1, 2], [3]]}', "names": b'{"messages": [{"role": "\\u001b[31m\\n", "content": 1}]}', "empty": b"{}", "list": b"[]",
                        "large": b'{"prompt": [1e300], "n": 18446744073709551615}', "escape": b'{"stop": "\\u0000"}'}.items():
        yield name, value


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/fuzz/seeds"
    for target, seeds in {"safetensors": safetensors_seeds, "gguf": gguf_seeds, "index": index_seeds,
                          "tensor_cache": tensor_cache_seeds, "shard_info": shard_info_seeds, "tokenizer_json": tokenizer_json_seeds,
                          "tokenizer_config": tokenizer_config_seeds, "chat_template": chat_template_seeds,
                          "token_store": token_store_seeds, "train_document": train_document_seeds,
                          "json": json_seeds, "request": request_seeds, "grammar": grammar_seeds, "answer": answer_seeds}.items():
        (folder := out / target).mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
