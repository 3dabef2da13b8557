"""Attacks by surroundings: closed streams, tiny limits, full or read-only folders, odd variables."""

import os
import resource
import subprocess

from trial import REFUSALS

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
             "WEFT_LOG_LEVEL", "WEFT_CPU_KERNEL", "WEFT_CHECK_COLLECTIVES", "OMP_NUM_THREADS", "SLURM_PROCID", "SLURM_NTASKS",
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
        trial.expect(result.status == 5 or "</" in (stdin, ) or verb == "tokenize" and stdin != "</dev/null",
                     f"status {result.status} without a stdout")
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


CLASSES = {"streams": attack_streams, "limits": attack_limits, "variables": attack_variables}
SHARE = {"streams": 3.0, "limits": 3.0, "variables": 3.0}
