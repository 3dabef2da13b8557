"""Attacks on what is written: the writer is killed, or its disk is full; then it runs again in peace."""

import json
import os
import signal
import subprocess
import time

from trial import hashes

# What writes a file or a folder called OUT. Each may replace what it wrote before.
WRITERS = {
    "convert": ["convert", "INPUTS/model", "OUT"],
    "gguf": ["convert", "INPUTS/model", "OUT.gguf"],
    "parts": ["convert", "INPUTS/model", "OUT", "--max-shard-size", "50kB"],
    "bf16": ["convert", "INPUTS/small.gguf", "OUT", "--dtype", "bf16"],
    "quantize": ["quantize", "INPUTS/model", "OUT"],
    "quantize2": ["quantize", "INPUTS/model", "OUT", "--tp", "2"],
    "shard": ["shard", "INPUTS/model", "OUT", "--tp", "2"],
    "join": ["shard", "INPUTS/pieces", "OUT", "--tp", "1"],
    "fuse": ["fuse", "INPUTS/adapters", "OUT"],
    "peft": ["convert", "INPUTS/adapters", "OUT", "--peft"],
    "run": ["convert", "INPUTS/run", "OUT"],
    "logits": ["logits", "INPUTS/model", "--tokens", "1,2,3", "-o", "OUT"],
    "logits2": ["logits", "INPUTS/model", "--tokens", "1,2,3", "-o", "OUT", "--tp", "2"],
    "plot": ["plot", "INPUTS/run", "-o", "OUT"],
}
STEPS = 4


def command_of(trial, verb, folder):
    return ["WEFT"] + [part.replace("INPUTS", str(trial.inputs.folder)).replace("OUT", f"{folder}/out")
                       for part in WRITERS[verb]]


def draw_writer(trial, folder):
    """A writer of `folder`/out, which is there already in half of the trials."""
    verb = trial.rng.choice(list(WRITERS))
    command = command_of(trial, verb, folder)
    if trial.rng.random() < 0.5:
        trial.run(command, {0})
        # Something else that is whole stands where the writer wants to write.
        command.append("--force")
    return command, hashes(folder)


def visible(folder):
    """What stands under the names that were asked for."""
    return {name: value for name, value in hashes(folder).items() if ".tmp-" not in name}


def judge_after(trial, folder, command, before):
    """What was there is whole, or what is new is; the next writer leaves nothing of the killed one."""
    now = visible(folder)
    trial.leaves_nothing(files=False)
    again = command if "--force" in command else [*command, "--force"]
    trial.run(again, {0})
    after = hashes(folder)
    trial.expect(now in (before, after), f"neither the old nor the new: {sorted(now.items() - after.items())[:3]}")
    left = [name for name in after if ".tmp-" in name]
    trial.expect(not left, f"the next writer left {left}")


def attack_killed_writer(trial):
    folder = trial.folder / "disk"
    folder.mkdir()
    command, before = draw_writer(trial, folder)
    process = trial.start(command)
    time.sleep(trial.rng.uniform(0, 0.5) * trial.load.factor() ** 0.5)
    name = trial.rng.choice(["KILL", "KILL", "KILL", "TERM", "INT", "HUP"])
    number = getattr(signal, "SIG" + name)
    if trial.rng.random() < 0.5:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
    else:
        process.send_signal(number)
    trial.note(f"{name} to the writer")
    result = trial.finish(process, 10)
    trial.judge(result, {0, -number, 128 + number})
    judge_after(trial, folder, command, before)


def attack_full_disk(trial):
    """A disk of so many bytes, or files that may not grow further."""
    folder = trial.folder / "disk"
    folder.mkdir()
    kilobytes = trial.rng.choice([4, 16, 64, 128, 200, 256, 300, 400, 800])
    mounted = trial.can_mount and trial.rng.random() < 0.7
    try:
        if mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder], check=True)
        judge_full_disk(trial, folder, kilobytes, mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", folder], check=True)


def judge_full_disk(trial, folder, kilobytes, mounted):
    verb = trial.rng.choice(list(WRITERS))
    command = command_of(trial, verb, folder)
    (folder / "neighbour").write_bytes(b"x" * 1000)
    if trial.rng.random() < 0.3:
        first = trial.run(command, {0, 5})
        if first.status == 0:
            command.append("--force")
    before = hashes(folder)
    limit = [] if mounted else ["bash", "-c", f"ulimit -f {kilobytes}; exec \"$@\"", "bash"]
    trial.note(f"{kilobytes} KiB, {'a disk of its own' if mounted else 'ulimit -f'}")
    result = trial.run([*limit, *command], {0, 5})
    after = hashes(folder)
    trial.expect(not [name for name in after if ".tmp-" in name], f"left {sorted(after)}")
    trial.expect(result.status == 0 or before == after, "a refusal changed what was there")
    trial.leaves_nothing()


def attack_killed_run(trial):
    """A training run is killed at any moment, and one command goes on with it to its end."""
    text = trial.inputs.path("run.toml").read_text()
    text = text.replace("train.steps = 2", f"train.steps = {STEPS}")
    if trial.rng.random() < 0.3:
        text += "checkpoint.async = true\n"
    (trial.folder / "run.toml").write_text(text)
    mesh = trial.rng.choice([[], ["--dp", "2"], ["--tp", "2"], ["--pipe", "2"]])
    command = ["WEFT", "train", "run.toml", "--resume=auto", *mesh]
    for _ in range(trial.rng.choice([1, 2])):
        process = trial.start(command)
        time.sleep(trial.rng.uniform(0, 1.5) * trial.load.factor() ** 0.5)
        name = trial.rng.choice(["KILL", "KILL", "TERM", "HUP"])
        number = getattr(signal, "SIG" + name)
        process.send_signal(number)
        trial.note(f"{name} to the run")
        trial.judge(trial.finish(process, 10), {0, -number, 128 + number})
        trial.leaves_nothing(files=False)
    trial.run(command, {0}, limit=20)
    steps = [json.loads(line)["step"] for line in (trial.folder / "run/metrics.jsonl").read_text().splitlines()]
    trial.expect(steps == list(range(1, STEPS + 1)), f"metrics of the steps {steps}")
    left = [str(path) for path in (trial.folder / "run").rglob("*.tmp-*")]
    trial.expect(not left, f"left {left}")
    trial.run(["WEFT", "convert", "run", "out"], {0})
    trial.leaves_nothing(files=False)


CLASSES = {"killed_writer": attack_killed_writer, "full_disk": attack_full_disk, "killed_run": attack_killed_run}
SHARE = {"killed_writer": 4.0, "full_disk": 4.0, "killed_run": 4.0}
