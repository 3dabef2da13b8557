"""What trials read, made once by the weft under test from files of this repository."""

import json
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BYTES = ROOT / "examples/train/bytes"
TEXT = ROOT / "tests/generate/data/us_constitution.txt"
TEMPLATE = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '
' }}{% if message['content'] is string %}{{ message['content'] | trim }}{% else %}{{ message['content'] | tojson }}{% endif %}
{{ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
CACHE_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

RUN = """model.hidden_size = 64
model.max_positions = 64
model.num_layers = 2
model.num_heads = 4
model.num_kv_heads = 2
model.intermediate_size = 128
model.tokenizer = "{bytes}"
batch.sequences = 4
batch.microbatch = 1
batch.sequence_length = 16
optimizer.name = "adamw"
optimizer.lr = 0.005
schedule.name = "cosine"
schedule.warmup_steps = 1
train.seed = 3
train.steps = 2
train.dtype = "float32"
eval.every = 2
eval.sequences = 2
data.train = ["{data}"]
data.eval_fraction = 0.1
checkpoint.every = 1
checkpoint.folder = "run"
"""
LORA = """model.from = "{base}"
batch.sequences = 4
batch.sequence_length = 16
train.steps = 1
lora.rank = 2
data.train = ["{data}"]
checkpoint.folder = "adapters"
"""

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
# One of each kind; the last two as OpenAI's batches have them.
REQUESTS = [
    "We the",
    {"prompt": ["We", "the people"], "max_tokens": 3, "logprobs": 2, "stop": ["ab"], "n": 2, "seed": 7, "temperature": 1,
     "top_p": 0.9, "top_k": 20, "min_p": 0.01, "logit_bias": {"7": -3}, "presence_penalty": 0.5},
    {"messages": MESSAGES, "max_tokens": 8, "response_format": {"type": "json_schema", "json_schema": {
        "name": "n", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}},
    {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"input": "some text"}},
    {"custom_id": "b", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": MESSAGES, "max_tokens": 2}},
]


class Inputs:
    """Named files and folders: `path(name)`."""

    def __init__(self, weft, folder):
        self.weft, self.folder = weft, pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.make_texts()
        self.make_runs()
        self.make_models()

    def path(self, name):
        return self.folder / name

    def run(self, *args):
        command = [str(self.weft), *map(str, args)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise SystemExit(f"campaign: {' '.join(command)}: {done.stderr}")
        return done.stdout

    def make_texts(self):
        words = TEXT.read_text().split()
        lines = [json.dumps({"text": " ".join(words[i:i + 40])}) for i in range(0, 2000, 40)]
        self.path("data.jsonl").write_text("\n".join(lines) + "\n")
        chats = [json.dumps({"messages": [{"role": "user", "content": f"What is {i}?"},
                                          {"role": "assistant", "content": f"A number, {i}."}]}) for i in range(40)]
        self.path("chats.jsonl").write_text("\n".join(chats) + "\n")
        self.path("text.txt").write_text(" ".join(words[:300]))
        self.path("requests.jsonl").write_text("\n".join(json.dumps(request) for request in REQUESTS) + "\n")

    def make_runs(self):
        self.path("run.toml").write_text(RUN.format(bytes=BYTES, data=self.path("data.jsonl")))
        self.run("train", "run.toml")
        self.run("convert", "run", "model")
        self.path("lora.toml").write_text(LORA.format(base=self.path("model"), data=self.path("data.jsonl")))
        self.run("lora", "lora.toml")
        self.run("convert", "adapters", "peft", "--peft")

    def make_models(self):
        model = self.path("model")
        self.run("convert", model, "small.gguf")
        self.run("convert", model, "parts", "--max-shard-size", "100kB")
        self.run("quantize", model, "quantized")
        self.run("shard", model, "pieces", "--tp", "2")
        self.path("info.json").write_text(self.run("shard", model, "--emit-info"))
        self.make_cache()
        shutil.copytree(model, self.path("templated"))
        config = json.loads((model / "tokenizer_config.json").read_text())
        config.pop("chat_template", None)
        self.path("templated/tokenizer_config.json").write_text(json.dumps(config))
        self.path("templated/chat_template.jinja").write_text(TEMPLATE)

    def make_cache(self):
        """The model as TVM's tensor-cache.json with one file of data."""
        content = (self.path("model") / "model.safetensors").read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + length])
        cache = self.path("cache")
        cache.mkdir()
        records = []
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                records.append({"name": name, "shape": entry["shape"], "dtype": CACHE_DTYPES[entry["dtype"]],
                                "format": "raw", "nbytes": end - begin, "byteOffset": begin})
        data = content[8 + length:]
        (cache / "params_shard_0.bin").write_bytes(data)
        shard = {"dataPath": "params_shard_0.bin", "format": "raw-shard", "nbytes": len(data), "md5sum": "0",
                 "records": records}
        (cache / "tensor-cache.json").write_text(json.dumps({"metadata": {}, "records": [shard]}))
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(self.path("model") / name, cache)
