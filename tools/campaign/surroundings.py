"""Attacks by surroundings: closed streams, tiny limits, full or read-only folders, odd variables."""

import os

from trial import REFUSALS, hashes

VERBS = {
    "generate": ["generate", "MODEL", "-p", "We", "-n", "2"],
    "generate2": ["generate", "MODEL", "-p", "We", "-n", "2", "--tp", "2"],
    "chat": ["chat", "MODEL", "-n", "2"],
    "logits": ["logits", "MODEL", "--tokens", "1,2", "-o", "out"],
    "tokenize": ["tokenize", "MODEL", "-p", "-"],
    "bench": ["bench", "MODEL", "-p", "4", "-n", "2", "-r", "1"],
    "perplexity": ["perplexity", "MODEL", "-f", "INPUTS/text.txt", "-c", "32"],
    "convert": ["convert", "MODEL", "out"],
    "gguf": ["convert", "MODEL", "out.gguf"],
    "quantize": ["quantize", "MODEL", "out"],
    "quantize2": ["quantize", "MODEL", "out", "--tp", "2"],
    "shard": ["shard", "MODEL", "out", "--tp", "2"],
    "info": ["shard", "MODEL", "--emit-info"],
    "inspect": ["inspect", "MODEL"],
    "plan": ["plan", "INPUTS/run.toml"],
    "plot": ["plot", "INPUTS/run", "-o", "out"],
    "fuse": ["fuse", "INPUTS/adapters", "out"],
    "train": ["train", "run.toml", "--steps", "1"],
    "lora": ["lora", "lora.toml"],
    "launch": ["launch", "-n", "2", "--", "WEFT", "generate", "MODEL", "-p", "We", "-n", "2"],
    "launch_gloo": ["launch", "-n", "2", "--backend", "gloo", "--", "WEFT", "generate", "MODEL", "-p", "We", "-n", "2"],
    "doctor": ["doctor", "MODEL"],
    "help": ["help"],
    "version": ["--version"],
    "verb_help": ["train", "--help"],
}
SHOWS_TEXT = {"generate", "generate2", "chat", "launch", "launch_gloo"}
VARIABLES = ["HOME", "PATH", "TMPDIR", "LANG", "LC_ALL", "USER", "TERM", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
             "MASTER_ADDR", "MASTER_PORT", "WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_STATUS_FD", "WEFT_STORE_PORT",
             "WEFT_STORE_ADDRESS", "WEFT_JOB_ID", "WEFT_JOB_KEY", "WEFT_JOB_KEY_FILE", "WEFT_BACKEND", "WEFT_TIMEOUT_S",
             "WEFT_START_TIMEOUT_S", "WEFT_HEARTBEAT_TIMEOUT_S", "WEFT_THREADS", "WEFT_TP", "WEFT_HOST", "WEFT_ADDRESS",
             "WEFT_LOG_LEVEL", "WEFT_CPU_KERNEL", "WEFT_CHECK_COLLECTIVES", "SLURM_PROCID", "SLURM_NTASKS",
             "SLURM_JOB_ID", "SLURM_NODELIST", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
             "TORCHELASTIC_RUN_ID", "WEFT_MPIRUN", "WEFT_SSH", "JOB_COMPLETION_INDEX", "LWS_GROUP_SIZE", "WEFT_JSON",
             "WEFT_CONFIG", "WEFT_OUT", "WEFT_FORCE", "WEFT_MODEL"]
VALUES = ["", "0", "1", "2", "-1", "3.5", "x", "\x1b[31m", "two\nlines", "/", "/dev/null", "/nonexistent", "99999999999999999999",
          "é", "127.0.0.1", "1" * 5000, " ", "a=b", "nan"]


def draw_verb(trial):
    verb = trial.rng.choice(list(VERBS))
    names = {"MODEL": str(trial.inputs.path("model"))}
    command = ["WEFT"] + [names.get(part, part.replace("INPUTS", str(trial.inputs.folder))) for part in VERBS[verb]]
    if verb in ("train", "lora"):
        name = {"train": "run.toml", "lora": "lora.toml"}[verb]
        (trial.folder / name).write_text(trial.inputs.path(name).read_text())
    return verb, command


def judge_writer(trial, status):
    """A name that was asked for holds something whole, or is not there."""
    names = [path.name for path in trial.folder.iterdir() if path.name.startswith("out")]
    trial.expect(not any(".tmp-" in name for name in names), f"left {names}")
    trial.expect(status == 0 or not names, f"{names} is there after a refusal")


def attack_streams(trial):
    """Standard streams that are closed, full, read-only or gone, in every combination."""
    verb, command = draw_verb(trial)
    ways = [trial.rng.choice(way) for way in (["<&-", "</dev/null", "</", "<&-"], ["", ">&-", ">/dev/full", "| true", "</dev/null"],
                                              ["", "2>&-", "2>/dev/full", "2>/dev/null"])]
    stdin, stdout, stderr = ways
    quoted = " ".join(f"'{part}'" for part in command).replace("'WEFT'", str(trial.weft))
    pipe = stdout == "| true"
    script = f"{quoted} {stdin} {'1</dev/null' if stdout == '</dev/null' else '' if pipe else stdout} {stderr}"
    if pipe:
        script = f"{{ {script}; }} | true; exit ${{PIPESTATUS[0]}}"
    trial.note(script)
    silent = stderr != ""
    allowed = REFUSALS | {4}
    process = trial.start(["bash", "-c", script])
    result = trial.finish(process, 10, process.begun)
    if silent:
        trial.expect(result.status in allowed, f"status {result.status}")
    else:
        trial.judge(result, allowed, verb not in SHOWS_TEXT)
    writes_text = verb not in ("convert", "gguf", "quantize", "quantize2", "shard", "plot", "fuse", "logits", "train", "lora",
                               "perplexity", "launch", "launch_gloo", "chat", "bench", "doctor")
    if stdout in (">&-", ">/dev/full") and writes_text:
        # A text of nothing has no tokens to show.
        trial.expect(result.status == 5 or verb == "tokenize", f"status {result.status} without a stdout")
    trial.leaves_nothing()


def attack_limits(trial):
    """Few descriptors, processes, bytes of memory, of files or of processor time."""
    verb, command = draw_verb(trial)
    name, values = trial.rng.choice([("n", [3, 4, 5, 6, 8, 10, 12, 16, 24, 32]), ("u", [0, 1, 2, 3, 4, 6, 10]),
                                     ("v", [200_000, 400_000, 800_000, 1_500_000, 3_000_000]), ("f", [0, 1, 8, 100, 1000]),
                                     ("s", [64, 256, 1024])])
    value = trial.rng.choice(values)
    script = f"ulimit -{name} {value}; exec \"$@\""
    line = ["bash", "-c", script, "bash", *command]
    if name == "u" and os.geteuid() == 0:
        # Root's processes have no limit; a user of this number has nothing else running.
        os.chmod(trial.folder, 0o777)
        os.chmod(trial.temporary, 0o777)
        line = ["setpriv", "--reuid", str(60000 + trial.rng.randrange(5000)), "--clear-groups", *line]
    trial.note(f"ulimit -{name} {value}: {' '.join(command[1:3])}")
    process = trial.start(line)
    result = trial.finish(process, 10, process.begun)
    # The loader of programs has words and a status of its own where it can't load libtorch, and so
    # has bash where it can't start anything.
    text = result.err.decode(errors="replace")
    if result.status in (126, 127) and ("loading shared libraries" in text or text.startswith("bash: ")):
        return
    # A line of libtorch's own, where it finds no descriptor for /proc/cpuinfo.
    result.err = b"".join(line for line in result.err.splitlines(True) if not line.startswith(b"Error in cpuinfo: "))
    trial.judge(result, REFUSALS | {4}, verb not in SHOWS_TEXT)
    judge_writer(trial, result.status)
    trial.leaves_nothing(files=False)


def attack_variables(trial):
    """Variables that are odd, empty or not there; an odd one must not hang a job."""
    verb, command = draw_verb(trial)
    env = dict(trial.env)
    for _ in range(trial.rng.choice([1, 1, 2, 3])):
        variable, value = trial.rng.choice(VARIABLES), trial.rng.choice(VALUES + [None])
        trial.note(f"{variable}={value!r:.40}")
        if value is None:
            env.pop(variable, None)
        else:
            env[variable] = value
    env["WEFT_START_TIMEOUT_S"] = env.get("WEFT_START_TIMEOUT_S", "3")
    trial.note(" ".join(command[1:4]))
    allowed = REFUSALS | {4} | ({126, 127} if "PATH" in " ".join(trial.notes) else set())
    trial.run(command, allowed, limit=40 if env["WEFT_START_TIMEOUT_S"] != "3" else 10, env=env,
              judges_output=verb not in SHOWS_TEXT)
    trial.leaves_nothing(files=False)


NAMES = ["plain", "with space", "\x1b[31mred", "two\nlines", "-dash", "é\U0001f600", "x" * 200, "a'b\"c", "$(touch ran)", "*", "%s%n",
         "\u202eleft", "tab\there", "back\\slash"]


def draw_output(trial, model):
    """An OUT that is odd: its name, what stands there already, or where it leads."""
    rng, folder = trial.rng, trial.folder
    name = rng.choice(NAMES)
    out = folder / name if name != model.name else folder / "out"
    kind = rng.choice(["new", "file", "folder", "dangling", "to_input", "to_file", "in_input", "above_input", "missing", "input", "readonly"])
    if kind == "file":
        out.write_text("somebody's")
    elif kind == "folder":
        out.mkdir()
        (out / "somebodys").write_text("somebody's")
    elif kind == "dangling":
        out.symlink_to(folder / "nowhere")
    elif kind == "to_input":
        out.symlink_to(model)
    elif kind == "to_file":
        (folder / "target").write_text("somebody's")
        out.symlink_to(folder / "target")
    elif kind == "in_input":
        out = model / "inner"
    elif kind == "above_input":
        out = folder
    elif kind == "missing":
        out = folder / "missing" / name
    elif kind == "input":
        out = model / rng.choice(["model.safetensors", ".", "../" + model.name, "config.json"])
    elif kind == "readonly":
        (folder / "locked").mkdir()
        (folder / "locked").chmod(0o555)
        out = folder / "locked" / name
    trial.note(f"OUT is {kind}")
    return out, kind


def attack_names(trial):
    """Odd names of inputs and outputs, links, folders in each other: nothing that is there changes."""
    name = trial.rng.choice(NAMES)
    model = trial.copy("model", to=name)
    out, kind = draw_output(trial, model)
    verb = trial.rng.choice(["logits", "convert", "gguf", "quantize", "shard", "plot", "fuse", "peft"])
    source = {"plot": trial.inputs.path("run"), "fuse": trial.inputs.path("adapters"), "peft": trial.inputs.path("adapters")}
    parts = {"logits": ["logits", "--tokens", "1"], "gguf": ["convert"], "shard": ["shard", "--tp", "2"], "plot": ["plot"], "peft": ["convert", "--peft"]}
    path = f"{out}.gguf" if verb == "gguf" and kind in ("new", "missing", "readonly") else str(out)
    command = ["WEFT", *parts.get(verb, [verb]), f"--out={path}", *trial.rng.choice([[], ["--force"]])]
    if verb in source:
        command.append(source[verb])
    else:
        command += [f"--model={model}"]
    if kind == "readonly" and os.geteuid() == 0:
        # Root may write everywhere.
        trial.temporary.chmod(0o777)
        command = ["setpriv", "--reuid", "54321", "--clear-groups", *command]
    before = {path: value for path, value in hashes(trial.folder).items()}
    result = trial.run(command, REFUSALS)
    now = hashes(trial.folder)
    replaced = {str(out.relative_to(trial.folder))} if "--force" in command and kind in ("file", "to_file", "dangling") else set()
    if verb in source and "--force" in command and kind == "input":
        # This model is no input of the verb, and may be replaced as a whole.
        replaced |= {path for path in before if path.startswith(model.name)}
    changed = [path for path, value in before.items() if now.get(path) != value and path not in replaced | {"target"}]
    trial.expect(not changed, f"changed {changed}")
    trial.expect(not (trial.folder / "ran").exists(), "a name was run by a shell")
    new = [path for path in now if path not in before and ".tmp-" in path]
    trial.expect(not new, f"left {new}")
    trial.expect(result.status == 0 or set(now) <= set(before), f"new after a refusal: {sorted(set(now) - set(before))[:3]}")
    trial.leaves_nothing()


CLASSES = {"names": attack_names, "streams": attack_streams, "limits": attack_limits, "variables": attack_variables}
SHARE = {"names": 3.0, "streams": 3.0, "limits": 3.0, "variables": 3.0}
