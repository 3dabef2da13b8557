"""Attacks by files: each kind of input is damaged in its own form and given to what reads it."""

import json

import mutations
from trial import hashes

MODEL_READERS = [["WEFT", "inspect", "{}", "--tp", "2", "--json"], ["WEFT", "inspect", "{}", "--plan"],
                 ["WEFT", "generate", "{}", "-p", "We the", "-n", "2"],
                 ["WEFT", "generate", "{}", "-p", "We", "-n", "2", "--tp", "2", "--json"],
                 ["WEFT", "logits", "{}", "--tokens", "1,2", "-o", "out"], ["WEFT", "convert", "{}", "out"],
                 ["WEFT", "convert", "{}", "out.gguf"], ["WEFT", "quantize", "{}", "out"],
                 ["WEFT", "shard", "{}", "out", "--tp", "2"], ["WEFT", "shard", "{}", "--emit-info"],
                 ["WEFT", "perplexity", "{}", "-f", "text.txt", "-c", "32"],
                 ["WEFT", "bench", "{}", "-p", "4", "-n", "2", "-r", "1"]]
LOOKERS = MODEL_READERS[:2]
TOKENIZE = ["WEFT", "tokenize", "{}", "-p", "We <|im_start|> the\u00e9 123"]
CHAT = ["WEFT", "chat", "{}", "-p", "Hello", "-n", "1", "--system-prompt", "Be brief."]

# Kind: (prepared input, the file in it that is damaged, how, cheap readers, other readers).
KINDS = {
    "gguf": ("small.gguf", "", mutations.gguf, LOOKERS + [TOKENIZE] * 3, MODEL_READERS + [CHAT]),
    "safetensors": ("model", "model.safetensors", mutations.safetensors, LOOKERS, MODEL_READERS),
    "quantized": ("quantized", "model.safetensors", mutations.safetensors, LOOKERS, MODEL_READERS),
    "index": ("parts", "model.safetensors.index.json", mutations.json_bytes, LOOKERS, MODEL_READERS),
    "pieces": ("pieces", "model-rank-00001-of-00002.safetensors", mutations.safetensors, LOOKERS, MODEL_READERS),
    "config": ("model", "config.json", mutations.json_bytes, LOOKERS, MODEL_READERS),
    "quantized_config": ("quantized", "config.json", mutations.json_bytes, LOOKERS, MODEL_READERS),
    "tokenizer": ("model", "tokenizer.json", mutations.json_bytes, [TOKENIZE], [CHAT]),
    "tokenizer_config": ("model", "tokenizer_config.json", mutations.json_bytes, [TOKENIZE], [CHAT]),
    "template": ("templated", "chat_template.jinja", mutations.template, [CHAT], [CHAT]),
    "cache": ("cache", "tensor-cache.json", mutations.json_bytes, LOOKERS, MODEL_READERS),
    "shard_info": ("info.json", "", mutations.json_bytes,
                   [["WEFT", "inspect", "INPUTS/model", "--shard-info", "{}", "--tp", "2"]],
                   [["WEFT", "shard", "INPUTS/model", "out", "--shard-info", "{}", "--tp", "2"],
                    ["WEFT", "generate", "INPUTS/model", "-p", "a", "-n", "1", "--shard-info", "{}", "--tp", "2"]]),
    "adapter_config": ("peft", "adapter_config.json", mutations.json_bytes, [],
                       [["WEFT", "generate", "INPUTS/model", "--adapter", "{}", "-p", "a", "-n", "1"]]),
    "adapter": ("peft", "adapter_model.safetensors", mutations.safetensors, [],
                [["WEFT", "generate", "INPUTS/model", "--adapter", "{}", "-p", "a", "-n", "1"],
                 ["WEFT", "logits", "INPUTS/model", "--adapter", "{}", "--tokens", "1,2", "-o", "out"]]),
    "toml": ("run.toml", "", mutations.toml_bytes, [["WEFT", "plan", "{}"], ["WEFT", "plan", "{}", "-n", "6", "--json"]],
             [["WEFT", "train", "{}", "--steps", "1"]]),
    "lora_toml": ("lora.toml", "", mutations.toml_bytes, [["WEFT", "plan", "{}"]], [["WEFT", "lora", "{}"]]),
    "manifest": ("run", "checkpoints/step-000002/manifest.json", mutations.json_bytes, [],
                 [["WEFT", "convert", "{}", "out"], ["WEFT", "train", "run.toml", "--resume", "--steps", "3"],
                  ["WEFT", "generate", "{}", "-p", "a", "-n", "1"]]),
    "checkpoint": ("run", "checkpoints/step-000002/rank-00000.safetensors", mutations.safetensors, [],
                   [["WEFT", "convert", "{}", "out"], ["WEFT", "train", "run.toml", "--resume", "--steps", "3"]]),
    "adapters_manifest": ("adapters", "checkpoints/step-000001/manifest.json", mutations.json_bytes, [],
                          [["WEFT", "fuse", "{}", "out"], ["WEFT", "convert", "{}", "out", "--peft"]]),
    "metrics": ("run", "metrics.jsonl", mutations.json_lines, [["WEFT", "plot", "{}", "-o", "out"]],
                [["WEFT", "train", "run.toml", "--resume", "--steps", "3"]]),
    "requests": ("requests.jsonl", "", mutations.json_lines, [],
                 [["WEFT", "batch", "INPUTS/model", "-i", "{}", "-o", "out"],
                  ["WEFT", "batch", "INPUTS/model", "-i", "{}", "-o", "out", "--tp", "2", "--parallel", "2"]]),
    "store": ("run", "data/train.tokens", mutations.any_bytes, [],
              [["WEFT", "train", "run.toml", "--resume", "--steps", "3"]]),
}
# Kinds whose readers go on in the folder that they are given.
WRITES_INPUT = {"manifest", "checkpoint", "metrics", "store"}
DATA = {"data": "data.jsonl", "chats": "chats.jsonl"}


def damage(trial, kind):
    """A damaged copy of the kind's input; returns its path."""
    name, part, mutate = KINDS[kind][:3]
    target = trial.copy(name)
    path = target / part if part else target
    path.chmod(0o644)
    content, words = mutate(trial.rng, path.read_bytes())
    trial.note(f"{kind}: {words}")
    path.write_bytes(content)
    return target


def judge_output(trial, result):
    """OUT is whole where weft says so and not there otherwise; nothing lies beside it."""
    for path in trial.folder.iterdir():
        trial.expect(".tmp-" not in path.name, f"left {path.name}")
        trial.expect(result.status == 0 or not path.name.startswith("out"), f"{path.name} is there after a refusal")


def attack_files(trial, kind):
    target = damage(trial, kind)
    cheap, others = KINDS[kind][3:]
    takes_cheap = cheap and (trial.rng.random() < 0.7 or not others)
    command = [part.replace("{}", target.name).replace("INPUTS", str(trial.inputs.folder))
               for part in trial.rng.choice(cheap if takes_cheap else others)]
    for name in ("text.txt", "run.toml"):
        if name in command and not (trial.folder / name).exists():
            trial.copy(name)
    before = hashes(target) if target.is_dir() else target.read_bytes()
    shows_text = command[1] in ("generate", "chat")
    result = trial.run(command, judges_output=not shows_text)
    if not (kind in WRITES_INPUT and command[1] == "train"):
        after = hashes(target) if target.is_dir() else target.read_bytes()
        trial.expect(before == after, "the input was changed")
    if command[1] != "train":
        judge_output(trial, result)
    trial.leaves_nothing()


def attack_data(trial):
    """JSON lines for training: one step reads them all."""
    name = trial.rng.choice(list(DATA.values()))
    target = trial.copy(name)
    content, words = mutations.json_lines(trial.rng, target.read_bytes())
    target.write_bytes(content)
    trial.note(f"{name}: {words}")
    config = trial.copy("run.toml")
    config.write_text(config.read_text().replace(str(trial.inputs.path("data.jsonl")), str(target)))
    trial.run(["WEFT", "train", "run.toml", "--steps", "1"])
    trial.leaves_nothing()


def attack_flags(trial):
    """Odd values of flags, of a verb's TOML file and of variables, which mean the same."""
    flags = ["model", "prompt", "tp", "threads", "backend", "max-tokens", "ctx-size", "temp", "top-k", "top-p", "seed",
             "tokens", "out", "config", "n-prompt", "n-gen", "repetitions", "batch", "bits", "group-size", "dtype",
             "max-shard-size", "stop", "speculate", "functions", "shard-info", "adapter", "stride", "file", "hardware",
             "ranks", "top", "smooth", "from", "title", "num-ranks", "hosts", "host", "address", "port", "alias",
             "parallel", "api-key-file", "cors-origins", "max-queue", "step-tokens", "hostfile", "json", "force", "requests",
             "pooling", "ssl-cert-file", "ssl-key-file"]
    verbs = ["tokenize", "tokenize", "plan", "plot", "inspect", "generate", "logits", "convert", "shard", "quantize",
             "bench", "perplexity", "chat", "fuse", "train", "launch", "serve", "batch", "doctor",
             "nonsense", ""]
    verb, flag = trial.rng.choice(verbs), trial.rng.choice(flags)
    value = str(trial.rng.choice(mutations.TEXTS + mutations.NUMBERS + mutations.RAW))
    way = trial.rng.randrange(3)
    command = ["WEFT", verb]
    env = dict(trial.env)
    if way == 0:
        command += [trial.rng.choice([f"--{flag}={value}", f"--{flag}"])]
    elif way == 1 and "\0" not in value:
        env["WEFT_" + flag.upper().replace("-", "_")] = value
    else:
        (trial.folder / "flags.toml").write_bytes(
            mutations.toml_bytes(trial.rng, f"{flag} = {json.dumps(value)}\nprompt = \"a\"\n".encode())[0])
        command += ["--config", "flags.toml"]
    command = [part.replace("\0", "") for part in command]
    trial.note(f"{' '.join(command[1:])!r} {flag}={value[:40]!r} way {way}")
    trial.run(command, env=env, judges_output=verb != "serve")
    trial.leaves_nothing()


CLASSES = {kind: (lambda trial, kind=kind: attack_files(trial, kind)) for kind in KINDS}
CLASSES |= {"data": attack_data, "flags": attack_flags}
SHARE = {}
