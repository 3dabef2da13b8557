"""Attacks by signals: a process of a job gets one at a random moment, half of the time while it starts."""

import os
import pathlib
import shutil
import signal
import socket
import time

from trial import Failure, processes

NUMBERS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "INT": signal.SIGINT, "TERM": signal.SIGTERM,
           "HUP": signal.SIGHUP}
BACKENDS = ["shm", "gloo", "mpi", "hierarchical"]
# Verbs that run until something ends them, then those that end by themselves within a second.
ENDLESS = {
    "bench": ["bench", "MODEL", "-p", "32", "-n", "24", "-r", "1000"],
    "train": ["train", "endless.toml"],
    "serve": ["serve", "MODEL", "--port", "0", "--no-restart"],
    "chat": ["chat", "MODEL"],
}
SHORT = {
    "generate": ["generate", "MODEL", "-p", "We", "-n", "400", "--ignore-eos"],
    "batch": ["batch", "MODEL", "-i", "INPUTS/requests.jsonl", "-o", "out"],
    "perplexity": ["perplexity", "MODEL", "-f", "INPUTS/text.txt", "-c", "32"],
    "logits": ["logits", "MODEL", "--tokens", "1,2,3", "-o", "out"],
    "convert": ["convert", "MODEL", "out"],
    "quantize": ["quantize", "MODEL", "out"],
    "shard": ["shard", "MODEL", "out", "--tp", "2"],
    "fuse": ["fuse", "INPUTS/adapters", "out"],
    "lora": ["lora", "INPUTS/lora.toml"],
    "plot": ["plot", "INPUTS/run", "-o", "out"],
    "inspect": ["inspect", "MODEL", "--plan"],
    "doctor": ["doctor", "MODEL"],
    "tokenize": ["tokenize", "MODEL", "-p", "-"],
}
ALONE = {"convert", "shard", "fuse", "plot", "inspect", "doctor", "tokenize"}
KILLED_S, STOPPED_S, START_S, MEETING_S = 2.0, 10.0, 3.0, 5.0


def ranks(trial):
    """Process ids by rank of a trial's job."""
    found = {}
    for pid in processes(trial.marker):
        try:
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        variables = dict(item.split(b"=", 1) for item in environ if b"=" in item)
        if name.startswith("weft rank "):
            found[name.removeprefix("weft rank ")] = pid
        elif name.startswith("weft"):
            for variable in (b"WEFT_RANK", b"OMPI_COMM_WORLD_RANK", b"RANK"):
                if variable in variables:
                    found[variables[variable].decode()] = pid
                    break
    return found


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return str(made.getsockname()[1])


def prepare(trial, verb):
    """The verb's command, with what it needs in the trial's folder."""
    if verb == "train":
        text = trial.inputs.path("run.toml").read_text().replace("train.steps = 2", "train.steps = 100000")
        (trial.folder / "endless.toml").write_text(text)
    names = {"MODEL": str(trial.inputs.path("model"))}
    command = [names.get(part, part.replace("INPUTS", str(trial.inputs.folder))) for part in (ENDLESS | SHORT)[verb]]
    if verb == "lora":
        text = trial.inputs.path("lora.toml").read_text()
        (trial.folder / "lora.toml").write_text(text)
        command[-1] = "lora.toml"
    return command


def own_ranks(trial, command, size, backend):
    flags = [] if command[0] in ALONE else ["--tp", str(size), "--backend", backend]
    return [["WEFT", *command, *flags]], [trial.env]


def by_launch(trial, command, size, backend):
    flags = ["--tp", str(size)] if command[0] in ("train", "lora") else []
    return [["WEFT", "launch", "-n", str(size), "--backend", backend, "--", "WEFT", *command, *flags]], [trial.env]


def by_mpirun(trial, command, size, backend):
    flags = ["--backend", "mpi"] if backend == "mpi" else []
    flags += ["--tp", str(size)] if command[0] in ("train", "lora") else []
    return [["mpirun", "-n", str(size), "WEFT", *command, *flags]], [trial.env]


def by_hand(trial, command, size, backend):
    flags = ["--tp", str(size)] if command[0] in ("train", "lora") else []
    flags += ["--backend", backend] if backend != "mpi" else []
    envs = [{**trial.env, "RANK": str(rank), "WORLD_SIZE": str(size), "WEFT_JOB_ID": trial.name}
            for rank in range(size)]
    return [["WEFT", *command, *flags]] * size, envs


def on_hosts(trial, command, size, backend):
    """Two launchers, each of which takes itself for a host."""
    del backend
    each, port = str(size // 2), free_port()
    flags = ["--tp", str(2 * (size // 2))] if command[0] in ("train", "lora") else []
    commands = [["WEFT", "launch", "-n", each, "--hosts", "2", "--host", str(host), "--address", "127.0.0.1", "--port",
                 port, "--", "WEFT", *command, *flags] for host in range(2)]
    return commands, [{**trial.env, "WEFT_HOST": f"host{host}", "WEFT_JOB_KEY": "campaign-key-" + trial.name.ljust(16, "x")}
                      for host in range(2)]


def by_shell(trial, command, size, backend):
    """One launcher that starts those of two hosts; in place of ssh stands a shell of this machine."""
    del size, backend
    shell = trial.folder / "shell"
    shell.write_text("#!/bin/sh\nWEFT_HOST=$1 exec sh -c \"$2\"\n")
    shell.chmod(0o755)
    flags = ["--tp", "2"] if command[0] in ("train", "lora") else []
    line = ["WEFT", "launch", "-n", "1", "--hosts", "127.0.0.1,127.0.0.2", "--port", free_port(), "--", "WEFT", *command, *flags]
    return [line], [{**trial.env, "WEFT_SSH": str(shell)}]


def by_torchrun(trial, command, size, backend):
    flags = ["--backend", backend] if backend != "mpi" else []
    return [["torchrun", "--no-python", "--nproc-per-node", str(size), "WEFT", *command, *flags]], [trial.env]


LAUNCHERS = {"own": own_ranks, "launch": by_launch, "mpirun": by_mpirun, "torchrun": by_torchrun, "hand": by_hand,
             "hosts": on_hosts, "shell": by_shell}
# Programs that others wrote: they have words and statuses of their own.
FOREIGN = {"mpirun", "torchrun"}
RANKS_PER_VERB = {"chat", "generate", "bench", "serve", "batch", "perplexity", "logits", "quantize", "train", "lora"}


def draw_job(trial):
    """A verb under a launcher: (verb, launcher, command lines, environments)."""
    rng = trial.rng
    verb = rng.choice(list(ENDLESS) * 3 + list(SHORT))
    if verb in ALONE:
        launcher, size, backend = "own", 1, "auto"
    else:
        usable = [name for name in LAUNCHERS if name not in FOREIGN or shutil.which(name)]
        launcher = rng.choice(usable + ["own", "launch"])
        size, backend = rng.choice([2, 2, 3, 4]), rng.choice(BACKENDS)
        if backend == "mpi" and (launcher in ("own", "hand") or not shutil.which("mpirun")):
            backend = "gloo"
        # Of what is small, as many ranks as have something to do.
        size = size if verb in ("lora", "quantize") else 2
    commands, envs = LAUNCHERS[launcher](trial, prepare(trial, verb), size, backend)
    trial.note(f"{verb} by {launcher}, {size} ranks, {backend}")
    return verb, launcher, commands, envs


def draw_moment(rng, verb):
    """Seconds after the start at which the signal comes."""
    if rng.random() < 0.5:
        return rng.uniform(0, 0.3)
    return rng.uniform(0.3, 2.5 if verb in ENDLESS else 0.8)


def draw_target(trial, started, to_rank):
    """The process that gets the signal, and how to call it."""
    if to_rank:
        found = ranks(trial)
        if found:
            rank = trial.rng.choice(sorted(found))
            return found[rank], f"rank {rank}"
    at = trial.rng.randrange(len(started))
    return started[at].pid, f"process {at}"


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def attack_signals(trial):
    trial.env["WEFT_START_TIMEOUT_S"] = str(round(MEETING_S * min(3, trial.load.factor())))
    verb, launcher, commands, envs = draw_job(trial)
    name = trial.rng.choice(["KILL", "KILL", "STOP", "INT", "TERM", "HUP"])
    # A process that a person stops goes on when they say so; only a rank's peers must not wait.
    to_rank = launcher == "hand" or name == "STOP" or trial.rng.random() < 0.6
    to_group = name in ("INT", "HUP") and not to_rank and trial.rng.random() < 0.5
    moment = draw_moment(trial.rng, verb)
    started = [trial.start(command, env=env) for command, env in zip(commands, envs)]
    time.sleep(moment)
    pid, target = draw_target(trial, started, to_rank)
    is_first = pid in [process.pid for process in started]
    if name == "STOP" and is_first and launcher != "hand":
        name = "KILL"
    trial.note(f"{name} to {'all of ' if to_group else ''}{target} after {moment * 1000:.0f} ms")
    came = send(pid, NUMBERS[name])
    if to_group:
        for process in started:
            try:
                os.killpg(process.pid, NUMBERS[name])
            except ProcessLookupError:
                pass
    judge_end(trial, verb, launcher, started, (name, target, pid if came else None))


def judge_end(trial, verb, launcher, started, sent):
    name, target, pid = sent
    limit = STOPPED_S if name == "STOP" else KILLED_S
    if name in ("INT", "TERM", "HUP") or launcher not in ("own", "launch"):
        # What was asked may be finished first: a step, a checkpoint. Between hosts, silence alone
        # tells of an end; mpirun waits before it kills.
        limit = 10.0
    if launcher in ("hosts", "shell", "hand"):
        # Others that have not met it yet wait for it as long as a start may take.
        limit += MEETING_S
    begun, results = time.monotonic(), []
    for process in started:
        if process.pid == pid and name == "STOP":
            continue
        results.append((process, trial.finish(process, limit + START_S, begun)))
    for process in started:
        if process.pid == pid and name == "STOP":
            send(pid, signal.SIGKILL)
            trial.finish(process, 1)
    number = int(NUMBERS[name])
    for process, result in results:
        allowed = {0, 4, 128 + number, -number} if launcher not in FOREIGN else set(range(-64, 256)) - {1}
        if process.pid == pid and name == "KILL":
            allowed = {-9, 0} | ({4} if launcher != "hand" else set())
        judge_one(trial, verb, launcher, result, allowed)
        trial.expect(name != "KILL" or "rank" not in target or result.status != 0 or verb not in ENDLESS,
                     f"status 0 after a kill of {target}")
    trial.leaves_nothing(files=name not in ("KILL", "STOP") and launcher not in FOREIGN | {"hand"})


def judge_one(trial, verb, launcher, result, allowed):
    if launcher not in FOREIGN:
        trial.judge(result, allowed, judges_output=verb not in ("generate", "chat"))
        return
    # Its words are its own; of weft's, none may tell of a bug or a crash.
    result.err = result.err.decode(errors="replace")
    trial.expect(result.status != 1 or "InternalError" not in result.err, f"status 1: {result.err[-400:]!r}")
    trial.expect("InternalError" not in result.err, f"an internal error: {result.err[-400:]!r}")
    for word in ("Segmentation", "signal 11", "signal 6 ", "terminate called", "Aborted"):
        if word in result.err:
            raise Failure(f"a crash under a foreign launcher: {result.err[-600:]!r}")


CLASSES = {"signals": attack_signals}
SHARE = {"signals": 16.0}
