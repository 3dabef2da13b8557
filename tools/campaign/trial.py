"""One trial of the campaign: a folder of its own, programs that run in it, and what must hold.

A trial that finds something wrong raises Failure. What is judged of every program that ends:
its status, what it says, how long it took, and what it leaves behind.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

MARKER = "WEFT_CAMPAIGN"
SAYS = {2: ("ConfigError", "ShapeError"), 3: ("FormatError",), 4: ("CommError",), 5: ("IoError",)}
REFUSALS = frozenset({0, 2, 3, 5})
LINE = re.compile(r"(?:\[\d+\] )?weft(?: launch)?: (\w+): \S.*")
# What verbs that write files, answer requests or check the machine say beside their errors; training,
# bench and perplexity show how far they are in words of their own.
NOTES = re.compile(r"(?:\[\d+\] )?(?:weft(?: \w+)?: |warn|info)")
# What Open MPI says by itself where the process that it reads from is gone; no setting silences it.
OPEN_MPI = re.compile(r"(?:\[\d+\] )?\[\S+:\d+\] Read -1, expected \d+, errno = \d+")
REPORTS = frozenset({"train", "lora", "bench", "perplexity", "doctor"})
# What libraries and the system say of a program that was not ready for what happened.
CRASHES = re.compile(r"terminate called|what\(\):|frame #\d|Exception raised from|core dumped|[Ss]egmentation|Aborted|"
                     r"\(\): (invalid|corrupted)|Sanitizer|libgomp:|Assertion|InternalError|stack smashing|std::")
MAX_LINE = 4000


class Failure(Exception):
    """What must hold did not."""


class Result:
    """What a program left: its status (negative: the signal that ended it), output and seconds."""

    def __init__(self, status, out, err, seconds):
        self.status, self.out, self.err, self.seconds = status, out, err, seconds

    def errors(self):
        return [line for line in self.err.splitlines() if is_error(line)]


def is_error(line):
    match = LINE.fullmatch(line)
    return match is not None and match[1].endswith("Error")


def is_expected(line):
    """True of what may be on stderr beside text that a verb was asked for."""
    return is_error(line) or NOTES.match(line) is not None or OPEN_MPI.fullmatch(line) is not None


def text_of(raw, what):
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Failure(f"{what} is not UTF-8: {error}") from None
    for place, c in enumerate(text):
        if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160:
            raise Failure(f"{what} has the control character {c!r}: {text[max(0, place - 60):place + 20]!r}")
    return text


def processes(marker):
    """Ids of the processes whose environment has an item that begins so; a dead one that waits has none."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            environ = pathlib.Path(entry.path, "environ").read_bytes()
        except OSError:
            continue
        if any(item.startswith(marker) for item in environ.split(b"\0")):
            found.append(int(entry.name))
    return found


def is_any_ending():
    """Whether a process is on its way out: it shows no environment any more, but may still hold files."""
    exiting = 0x4  # PF_EXITING
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = pathlib.Path(entry.path, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        state, flags, num_threads = fields[0], int(fields[6]), int(fields[17])
        if flags & exiting and (state not in "ZX" or num_threads > 1):
            return True
    return False


def shared_memory():
    """weft's names in /dev/shm that no process has mapped."""
    names = {name for name in os.listdir("/dev/shm") if name.startswith("weft-")}
    if not names:
        return names
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                maps = pathlib.Path(entry.path, "maps").read_text()
            except OSError:
                continue
            names -= {name for name in names if f"/dev/shm/{name}" in maps}
    return names


def hashes(folder):
    """Every file, link and folder below a folder, with what it holds."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "folder"
    return found


def spin(seconds):
    """The share of a processor that a thread gets which wants all of it: wall time by its own time."""
    begun, own = time.monotonic(), time.thread_time()
    while time.thread_time() - own < seconds:
        pass
    return (time.monotonic() - begun) / seconds


class Load:
    """A factor of at least 1, measured anew every few seconds by a loop that wants a processor.

    Trials run several ranks and stand side by side, so what waits for a processor counts as well:
    the processes that run now and the mean of the last minute, each by processor.
    """

    INTERVAL = 5
    # Beyond it, what looks like a hang is called one.
    MOST = 12.0

    def __init__(self):
        self.lock = threading.Lock()
        self.value, self.highest, self.sum, self.count = 1.0, 1.0, 0.0, 0
        self.when = -float("inf")

    def factor(self):
        if time.monotonic() - self.when > self.INTERVAL:
            self.measure()
        return self.value

    def measure(self):
        with self.lock:
            stretched = spin(0.02)
            with open("/proc/loadavg") as file:
                words = file.read().split()
            waiting = max(float(words[0]), float(words[3].split("/")[0])) / os.cpu_count()
            self.value = min(self.MOST, max(1.0, stretched, waiting))
            self.when = time.monotonic()
            self.highest = max(self.highest, self.value)
            self.sum, self.count = self.sum + self.value, self.count + 1
            return self.value

    def mean(self):
        return self.sum / self.count if self.count else 1.0


class Trial:
    """What an attack gets: chances (`rng`), prepared inputs, a folder, and a way to run weft."""

    def __init__(self, name, rng, folder, campaign):
        self.name, self.rng, self.folder = name, rng, pathlib.Path(folder)
        self.weft, self.inputs, self.load = campaign.weft, campaign.inputs, campaign.load
        self.can_mount = campaign.can_mount
        self.notes, self.words, self.slowest = [], set(), 0.0
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir(parents=True)
        # The mark ends in a sign that no name has, so that signals-1 is not found in signals-10.
        mark = f"{os.getpid()}/{name}/"
        self.marker = f"{MARKER}={mark}".encode()
        self.shm_before = shared_memory()
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("WEFT_")}
        self.env.update({MARKER: mark, "TMPDIR": str(self.temporary), "WEFT_THREADS": "1",
                         # In place of the model of set-up, which takes long.
                         "WEFT_MODEL": str(self.folder / "none"), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                         "OMPI_MCA_rmaps_base_oversubscribe": "1"})

    def note(self, text):
        self.notes.append(text)

    def expect(self, holds, text):
        if not holds:
            raise Failure(text)

    def copy(self, name, to=None):
        """A copy of a prepared input that the trial may damage."""
        source, target = self.inputs.path(name), self.folder / (to or name)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy(source, target)
        return target

    def start(self, command, **options):
        """Starts a program in a session of its own; WEFT in the command stands for weft."""
        command = [str(self.weft) if part == "WEFT" else str(part) for part in command]
        self.words |= set(command[1:])
        self.note(" ".join(command))
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("env", self.env)
        options.setdefault("cwd", self.folder)
        process = subprocess.Popen(command, start_new_session=True, **options)
        process.begun = time.monotonic()
        return process

    def finish(self, process, limit, begun=None, given=None):
        """Waits for the program's end, at most `limit` seconds of a machine that is not busy."""
        begun = begun or time.monotonic()
        try:
            out, err = process.communicate(given, timeout=limit * self.load.factor())
        except subprocess.TimeoutExpired:
            # A machine that has become busy since is asked again.
            try:
                out, err = process.communicate(timeout=limit * (self.load.measure() - 1) + 0.1)
            except subprocess.TimeoutExpired:
                self.end_all()
                raise Failure(f"did not end within {limit} s (load {self.load.factor():.1f})") from None
        seconds = time.monotonic() - begun
        self.slowest = max(self.slowest, seconds)
        return Result(process.returncode, out or b"", err or b"", seconds)

    def run(self, command, allowed=REFUSALS, limit=10, judges_output=True, **options):
        """Runs a program to its end and judges it."""
        given = options.pop("given", None)
        if given is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(command, **options)
        result = self.finish(process, limit, process.begun, given)
        self.judge(result, allowed, judges_output)
        if "--json" in command and result.status == 0 and options.get("stdout") is None:
            self.expect_json(result.out)
        return result

    def expect_json(self, text):
        try:
            json.loads(text)
        except ValueError as error:
            raise Failure(f"stdout is not JSON: {error}: {text[:80]!r}") from None

    def judge(self, result, allowed=REFUSALS, judges_output=True):
        """What must hold of every program that has ended."""
        result.err = text_of(result.err, "stderr")
        result.out = text_of(result.out, "stdout") if judges_output else result.out
        said = result.err[-600:]
        self.expect(result.status in allowed,
                    f"status {result.status}, allowed {sorted(allowed)}; stderr: {said!r}")
        strict = result.status != 0 and not REPORTS & self.words
        for line in result.err.splitlines():
            self.expect(CRASHES.search(line) is None, f"stderr has the line {line!r}")
            self.expect(not strict or is_expected(line), f"stderr has the line {line!r}")
            self.expect(len(line) <= MAX_LINE, f"stderr has a line of {len(line)} characters: {line[:80]!r}")
        errors = result.errors()
        # doctor's checks are programs with lines of their own.
        if result.status in SAYS and "doctor" not in self.words:
            self.expect(len(errors) == 1, f"status {result.status} with {len(errors)} error lines: {said!r}")
            kind = LINE.fullmatch(errors[0])[1]
            self.expect(kind in SAYS[result.status], f"status {result.status} with {errors[0]!r}")
        elif result.status == 0:
            self.expect(not errors, f"status 0 with an error: {said!r}")

    def end_all(self):
        """Ends what the trial started and returns how many processes there were."""
        left = processes(self.marker)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return len(left)

    def leaves_nothing(self, limit=2.0, files=True):
        """No process, no shared memory and no temporary file is left, within `limit` seconds."""
        deadline = time.monotonic() + limit * self.load.factor()
        while True:
            left = processes(self.marker)
            memory = shared_memory() - self.shm_before
            if not left and not memory and not is_any_ending():
                break
            if time.monotonic() > deadline:
                names = [command_of(pid) for pid in left]
                self.end_all()
                for name in memory:
                    pathlib.Path("/dev/shm", name).unlink(missing_ok=True)
                raise Failure(f"left behind: processes {names}, shared memory {sorted(memory)}")
            time.sleep(0.02)
        if files:
            names = [str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*")
                     if path.is_file() or path.name.find(".tmp-") >= 0]
            self.expect(not names, f"left in the temporary folder: {names}")


def command_of(pid):
    try:
        raw = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return f"{pid}"
    return f"{pid} {raw.replace(bytes(1), b' ').decode(errors='replace')[:100]}"
