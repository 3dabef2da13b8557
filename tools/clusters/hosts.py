"""Hosts of a small cluster on one machine: network namespaces with names of their own on one bridge."""

import os
import pathlib
import signal
import subprocess
import time

NAMES = ["head", "node0", "node1"]
BRIDGE = "weft-bridge"


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


class Hosts:
    """`head`, from where jobs are started, and two nodes. A context: all of it goes at its end."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.spaces = {name: f"weft-{os.getpid()}-{name}" for name in NAMES}
        self.addresses = {name: f"10.214.0.{10 + i}" for i, name in enumerate(NAMES)}

    def __enter__(self):
        head = self.spaces["head"]
        for name in NAMES:
            run("ip", "netns", "add", self.spaces[name])
            self._write_names(name)
        run("ip", "-n", head, "link", "add", BRIDGE, "type", "bridge")
        run("ip", "-n", head, "addr", "add", self.addresses["head"] + "/24", "dev", BRIDGE)
        for link in ("lo", BRIDGE):
            run("ip", "-n", head, "link", "set", link, "up")
        for name in NAMES[1:]:
            self._wire(name)
        return self

    def __exit__(self, *_):
        for name in NAMES:
            self.kill_all(name)
            subprocess.run(["ip", "netns", "del", self.spaces[name]], check=False)
            subprocess.run(["rm", "-rf", f"/etc/netns/{self.spaces[name]}"], check=False)

    def _write_names(self, name):
        folder = pathlib.Path("/etc/netns") / self.spaces[name]
        folder.mkdir(parents=True)
        lines = [f"{address} {host}" for host, address in self.addresses.items()]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def _wire(self, name):
        head, space = self.spaces["head"], self.spaces[name]
        run("ip", "link", "add", name, "netns", head, "type", "veth", "peer", "name", "wire", "netns", space)
        run("ip", "-n", head, "link", "set", name, "master", BRIDGE, "up")
        run("ip", "-n", space, "addr", "add", self.addresses[name] + "/24", "dev", "wire")
        for link in ("lo", "wire"):
            run("ip", "-n", space, "link", "set", link, "up")

    def command(self, name, words):
        """`words` as they run on host `name`."""
        inside = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]
        return ["ip", "netns", "exec", self.spaces[name], *inside, *[str(word) for word in words]]

    def start(self, name, words, log, **environment):
        """Starts `words` on host `name`; what it says goes to the file `log` in the folder."""
        with open(self.folder / log, "ab") as out:
            return subprocess.Popen(self.command(name, words), stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                    env={**os.environ, **environment}, start_new_session=True)

    def processes(self, name):
        found = subprocess.run(["ip", "netns", "pids", self.spaces[name]], check=False, capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def ranks(self, name):
        """Processes of `weft train` on the host; launchers are none."""
        return [pid for pid in self.processes(name) if is_rank(pid)]

    def kill_all(self, name):
        for _ in range(20):
            pids = self.processes(name)
            if not pids:
                return
            for pid in pids:
                kill(pid)
            time.sleep(0.1)

    def kill_host(self, name):
        """As when the power goes: the others hear nothing more, not even that connections end."""
        run("ip", "-n", self.spaces[name], "link", "set", "wire", "down")
        self.kill_all(name)

    def boot(self, name):
        run("ip", "-n", self.spaces[name], "link", "set", "wire", "up")


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def is_rank(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return len(words) > 1 and words[0].endswith((b"/weft", b"/weft-tensors")) and words[1] == b"train"
