"""A `weft serve` of one's own for tests and tools, and clients that ask it. Python's standard library alone."""

import contextlib
import http.client
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

# A machine that compiles beside a test starts a model slowly.
PATIENCE_S = 300


def end_without(what):
    """For a test that lacks what it needs: ctest counts 77 as skipped, but nothing may be where WEFT_REQUIRE is set."""
    print(f"{what}; for this test run: ./start --tests setup")
    sys.exit(1 if os.environ.get("WEFT_REQUIRE") else 77)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A context: starts the server with `flags`, waits until it is ready, and ends it with all that it has started."""

    def __init__(self, weft, model, *flags, key="", open_files=None, variables=None):
        self.port, self.key, self.open_files = free_port(), key, open_files
        self.variables = {**os.environ, **(variables or {})}
        self.folder = tempfile.TemporaryDirectory(prefix="weft-server-")
        self.command = [str(weft), "serve", "-m", str(model), "--port", str(self.port), "--alias", "model", *flags]
        if key:
            keys = pathlib.Path(self.folder.name, "keys")
            keys.write_text(key + "\n")
            self.command += ["--api-key-file", str(keys)]

    def __enter__(self):
        with open(self.log_path(), "wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.variables,
                                            start_new_session=True, preexec_fn=self._limit if self.open_files else None)
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # Its ranks are in its process group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()

    def _limit(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.open_files, self.open_files))

    def log_path(self):
        return pathlib.Path(self.folder.name, "log")

    def log(self):
        return self.log_path().read_text(errors="replace")

    def wait_until_ready(self):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}: {self.log()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.ask("/health")[0] == 200:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the server was not ready within {PATIENCE_S} s: {self.log()}")

    def connect(self, timeout=PATIENCE_S):
        """A socket to it, for what no library of HTTP would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def headers(self):
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def ask(self, path, body=None, method=None, headers=None, timeout=PATIENCE_S):
        """The status, the header fields and the text of one answer. A `body` that is no text is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        text = body if isinstance(body, (str, bytes, type(None))) else json.dumps(body)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, text,
                               self.headers() if headers is None else headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def ask_json(self, path, body=None, **more):
        """The object of an answer that has to be 200."""
        status, _, text = self.ask(path, body, **more)
        if status != 200:
            raise RuntimeError(f"{path}: status {status}: {text}")
        return json.loads(text)

    def metric(self, name):
        """The sum of a metric over its labels."""
        lines = [line.rsplit(" ", 1) for line in self.ask("/metrics")[2].splitlines() if not line.startswith("#")]
        return sum(float(value) for key, value in lines if key.split("{")[0] == f"weft:{name}")

    def ranks(self):
        """The process of each rank. One rank alone is the program itself."""
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (number := self._rank_of(int(name))) is not None:
                found[number] = int(name)
        return found or {0: self.process.pid}

    def _rank_of(self, pid):
        with contextlib.suppress(OSError, ValueError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().split()
            if int(fields[1]) == self.process.pid and fields[0] not in "ZX" and name[:2] == ["weft", "rank"]:
                return int(name[2])
        return None
