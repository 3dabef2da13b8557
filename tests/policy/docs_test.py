"""What the documentation shows is there: code, tests, links and the programs of its commands."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
READMES = [path for folder in ("weft", "tests", "examples")
           for path in sorted((ROOT / folder).rglob("README.md"))]
CODE = re.compile(r"^```cpp\n(.*?)^```", re.M | re.S)
TEST_NAME = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
SEED = re.compile(r"`(?:(\w+)/)?([\w*]+)`")
READ = re.compile(r'(?:getenv|envname|from_env|env\.(?:text|text_or_empty|has|integer|integer_or))\("(\w+)"')
NAMES = re.compile(r"read_numbers\([^;]*;", re.S)
FILE = re.compile(r"`(?:[\w./]*/)?([\w-]+\.(?:h|cpp|cu|py|sh|toml|md|\*))`")
# Names that are put together from flags and keys, of which the page has examples.
FLAGS = {"WEFT_CTX_SIZE", "WEFT_TP", "WEFT_MODEL", "WEFT_DP", "WEFT_OPTIMIZER_LR", "WEFT_PORT", "WEFT_"}
ELSEWHERE = {"torch.h", "version.h", "NAME_fuzz.cpp"}  # not in the tree, or no file's name
EXAMPLE = re.compile(r"build/examples/(\w+)")


def tests_of_tree():
    names = set()
    for path in (ROOT / "tests").rglob("*_test.cpp"):
        names.update(re.findall(r"^TEST(?:_P|_F)?\((\w+),\s*(\w+)\)", path.read_text(), re.M))
    return names


class Docs(unittest.TestCase):
    def test_code_stands_in_an_example(self):
        examples = [path.read_text() for path in (ROOT / "examples").rglob("*.cpp")]
        blocks = [block for page in PAGES for block in CODE.findall(page.read_text())]
        self.assertGreater(len(blocks), 2)
        for block in blocks:
            self.assertTrue(any(block in example for example in examples), block)

    def test_tests_that_are_named_exist(self):
        known = tests_of_tree()
        named = [name for page in PAGES for name in TEST_NAME.findall(page.read_text())]
        self.assertGreater(len(named), 8)
        for name in named:
            self.assertIn(name, known)

    def test_seeds_that_are_named_exist(self):
        rows = [line.split("|") for line in (ROOT / "docs/HOSTILE_FILES.md").read_text().splitlines()]
        cells = [row[3] for row in rows if len(row) == 5]
        self.assertGreater(len(cells), 30)
        for cell in cells:
            folder = None
            for target, pattern in SEED.findall(cell):
                folder = target or folder
                found = list((ROOT / "tests/fuzz/seeds" / folder).glob(pattern))
                self.assertTrue(found, f"{folder}/{pattern}")

    def test_links_lead_somewhere(self):
        for page in PAGES + READMES:
            for link in LINK.findall(page.read_text()):
                self.assertTrue((page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}")

    def test_files_that_are_named_exist(self):
        folders = ("weft", "tests", "tools", "examples", "bench", "cmake", "deploy", "docs")
        names = {path.name for folder in folders for path in (ROOT / folder).rglob("*")} | ELSEWHERE
        names.update(name.rsplit(".", 1)[0] + ".*" for name in list(names) if "." in name)
        for page in PAGES + READMES:
            for name in FILE.findall(page.read_text()):
                self.assertTrue(name in names, f"{page.relative_to(ROOT)}: {name}")

    def test_every_environment_variable_is_listed(self):
        sources = [path.read_text() for path in (ROOT / "weft").rglob("*.cpp")]
        read = {name for text in sources for name in READ.findall(text)}
        read.update(name for text in sources for call in NAMES.findall(text)
                    for name in re.findall(r'"([A-Z]\w+)"', call))
        tests = [path for ending in ("h", "cpp") for path in (ROOT / "tests" / "text").rglob(f"*.{ending}")]
        read.update(name for path in tests for name in READ.findall(path.read_text()))
        self.assertGreater(len(read), 30)
        page = (ROOT / "docs/environment.md").read_text()
        listed = set(re.findall(r"`([A-Z]\w+)`", page))
        self.assertEqual(read - listed, set())
        weft = {name for name in listed if name.startswith("WEFT_")}
        self.assertEqual(weft - read - FLAGS - {"WEFT_JOBS", "WEFT_REQUIRE"}, set())

    def test_the_changelog_begins_with_the_version_of_the_build(self):
        version = re.search(r"project\(weft VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
        heading = re.search(r"^## \[([\d.]+)\] - (?:Unreleased|\d{4}-\d\d-\d\d)$",
                            (ROOT / "CHANGELOG.md").read_text(), re.M)
        self.assertEqual(heading.group(1), version.group(1))

    def test_examples_that_are_run_exist(self):
        named = {name for page in PAGES for name in EXAMPLE.findall(page.read_text())}
        for name in named:
            self.assertTrue((ROOT / "examples" / f"{name}.cpp").exists(), name)


if __name__ == "__main__":
    unittest.main()
