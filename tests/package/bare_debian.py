#!/usr/bin/env python3
"""Tries the packages where nothing is installed: bare_debian.py PACKAGES MODEL [ROOT]

PACKAGES is the folder in which `./start package` left the archive and the Debian package, MODEL a
model file. Both are tried in a bare Debian 12 of their own: a folder ROOT that debootstrap made, or
a temporary one that it makes now, from the network. The archive is unpacked and run before anything is
installed, then the package is installed by dpkg alone, so that it names no package that a bare Debian
lacks. Each shows its version, passes `weft doctor` and answers a question on one and on two ranks.
Needs root; CI does not run it, because it takes a minute and Debian's mirror.
"""

import pathlib
import subprocess
import sys
import tempfile

QUESTION = "What is the capital of France?"
SUITE = "bookworm"
# What the chroot sees: processes, devices, shared memory, and the model and the packages read-only.
ENTER = """
set -e
mount --make-rprivate /
mount -t proc proc "$ROOT/proc"
mount -t tmpfs -o mode=755 tmpfs "$ROOT/dev"
for name in null zero urandom; do
  touch "$ROOT/dev/$name"
  mount --bind "/dev/$name" "$ROOT/dev/$name"
done
mkdir "$ROOT/dev/shm"
mount -t tmpfs tmpfs "$ROOT/dev/shm"
mkdir -p "$ROOT/mnt/packages" "$ROOT/mnt/model"
mount --bind -o ro "$PACKAGES" "$ROOT/mnt/packages"
mount --bind -o ro "$MODEL_FOLDER" "$ROOT/mnt/model"
exec chroot "$ROOT" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
"""


class Root:
    """A bare Debian in a folder."""

    def __init__(self, folder, packages, model):
        self.model = f"/mnt/model/{model.name}"
        self.settings = {"ROOT": str(folder), "PACKAGES": str(packages), "MODEL_FOLDER": str(model.parent),
                         "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

    def run(self, *command):
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "bash", "-c", ENTER, "bash", *command],
                              env=self.settings, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def try_program(self, weft):
        version = self.run(weft, "--version")
        expect(version.startswith("weft "), f"{weft} --version", version)
        doctor = self.run(weft, "doctor", self.model)
        expect(doctor.endswith("all is well\n"), f"{weft} doctor", doctor)
        for ranks in ("1", "2"):
            answer = self.run(weft, "chat", "-m", self.model, "--tp", ranks, "-n", "16", "-p", QUESTION)
            expect("Paris" in answer, f"{weft} chat --tp {ranks}", answer)
            print(f"{weft} on {ranks} ranks: {answer.strip()}", flush=True)


def expect(is_right, what, got):
    if not is_right:
        raise SystemExit(f"{what}: got: {got}")


def only_file(folder, pattern):
    found = sorted(folder.glob(pattern))
    expect(len(found) == 1, f"{folder}: expected one {pattern}", found)
    return found[0].name


def try_packages(packages, model, folder):
    root = Root(folder, packages, model)
    archive, package = only_file(packages, "weft-*.tar.gz"), only_file(packages, "weft_*.deb")
    root.run("mkdir", "-p", "/srv/any where")
    root.run("tar", "-xzf", f"/mnt/packages/{archive}", "-C", "/srv/any where")
    root.try_program(f"/srv/any where/{archive.removesuffix('.tar.gz')}/bin/weft")
    root.run("dpkg", "--install", f"/mnt/packages/{package}")
    root.try_program("/usr/bin/weft")
    root.run("dpkg", "--purge", "weft")
    left = [path for path in ("usr/bin/weft", "usr/lib/weft", "usr/share/doc/weft") if (folder / path).exists()]
    expect(not left, "dpkg --purge weft", left)


def main():
    packages, model = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    if len(sys.argv) > 3:
        return try_packages(packages, model, pathlib.Path(sys.argv[3]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["debootstrap", "--variant=minbase", SUITE, folder], check=True,
                       stdout=subprocess.DEVNULL)
        try_packages(packages, model, pathlib.Path(folder))


if __name__ == "__main__":
    main()
