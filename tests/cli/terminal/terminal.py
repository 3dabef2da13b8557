"""A program on a terminal of its own (pty), driven as a person would: sees what it shows, types, presses keys."""

import os
import pty
import re
import select
import signal
import time

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x07")
PATIENCE_S = 100


class Terminal:
    """Starts `command`; `text` is what it has shown since the last wait, without control sequences."""

    def __init__(self, command, **variables):
        self.shown = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", **variables})
            os.execv(command[0], command)

    def type(self, text):
        os.write(self.fd, text.encode())

    def paste(self, text):
        """As terminals do it for a program that has asked for bracketed paste."""
        self.type("\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~")

    def _read(self, deadline):
        ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(f"nothing more came; shown so far:\n{self.text()}")
        try:
            got = os.read(self.fd, 65536)
        except OSError:  # Linux says so of a terminal whose program has ended
            got = b""
        if not got:
            raise EOFError(f"the program has ended; shown so far:\n{self.text()}")
        self.shown += got

    def text(self):
        return ESCAPES.sub("", self.shown.decode(errors="replace")).replace("\r\n", "\n")

    def wait(self, pattern):
        """Waits until the regular expression is shown; returns all that was shown up to its end."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self.text())):
            self._read(deadline)
        text = self.text()
        self.shown = text[found.end():].encode()
        return text[:found.end()]

    def prompt(self):
        """Waits for the prompt of a new line; one that is drawn again follows a carriage return."""
        return self.wait(r"\n> ")

    def status(self):
        """Waits for the end; returns the exit status."""
        deadline = time.monotonic() + PATIENCE_S
        try:
            while True:
                self._read(deadline)
        except EOFError:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.fd)
