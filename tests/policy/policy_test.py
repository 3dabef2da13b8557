"""Shows for each tool of tools/check.sh that it passes a good tree and fails a bad one."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class PolicyTest(unittest.TestCase):
    tool = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("weft/core/CMakeLists.txt", "weft_module(NAME core)\n")
        self.write("weft/core/text.h", "#pragma once\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_tool(self):
        command = [sys.executable, str(ROOT / "tools" / self.tool), str(self.root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 1 if "weft/" in done.stdout else 0, done.stdout)
        return done.stdout.splitlines()

    def expect(self, *findings):
        self.assertEqual(self.run_tool(), list(findings))


class CheckLayers(PolicyTest):
    tool = "check_layers.py"

    def setUp(self):
        super().setUp()
        self.write("weft/shard/CMakeLists.txt", "weft_module(NAME shard DEPS core)\n")
        self.write("weft/io/CMakeLists.txt",
                   "weft_module(NAME io DEPS core # not shard\n"
                   "            TORCH_SOURCES load.cpp TORCH_DEPS shard)\n")
        self.write("weft/shard/layout.cpp", '#include "weft/core/text.h"\n')
        self.write("weft/io/load.cpp", '#include "weft/core/text.h"\n#include "weft/shard/split.h"\n')

    def test_accepts_includes_that_go_down(self):
        self.write("weft/shard/split.cpp", '#include "weft/shard/split.h"\n#include <vector>\n'
                                           '#include "weft/core/text.h"\n')
        self.expect()

    def test_refuses_a_listed_folder_that_no_file_includes(self):
        self.write("weft/io/load.cpp", '#include "weft/core/text.h"\n')
        self.expect("weft/io/CMakeLists.txt:1: io lists shard, but no file of it includes that; remove it")

    def test_refuses_a_cycle_of_folders_inside_an_area(self):
        self.write("weft/io/a/one.h", '#include "weft/io/b/two.h"\n#include "weft/io/face.h"\n')
        self.write("weft/io/b/two.h", '#include "weft/io/c/three.h"\n#include "weft/io/b/in/side.h"\n')
        self.write("weft/io/b/in/side.h", '#include "weft/io/b/two.h"\n')
        self.write("weft/io/face.h", '#include "weft/io/a/one.h"\n')
        self.expect()
        self.write("weft/io/c/three.h", '#include "weft/io/a/one.h"\n')
        tail = "which closes a cycle; move what both need below them"
        self.expect(f"weft/io/a: weft/io/a/one.h includes weft/io/b/two.h, {tail}",
                    f"weft/io/b: weft/io/b/two.h includes weft/io/c/three.h, {tail}",
                    f"weft/io/c: weft/io/c/three.h includes weft/io/a/one.h, {tail}")

    def test_refuses_an_old_cycle_that_is_none_any_more(self):
        self.write("weft/io/views/view.h", '#include "weft/io/shard_info/plan.h"\n')
        self.write("weft/io/shard_info/plan.h", "#pragma once\n")
        self.expect("weft/io/views: io/views -> io/shard_info closes no cycle; remove it from OLD_CYCLES in "
                    "tools/scan/include_graph.py")
        self.write("weft/io/shard_info/plan.h", '#include "weft/io/views/view.h"\n')
        self.expect()

    def test_refuses_a_folder_that_is_not_listed(self):
        self.write("weft/io/read.cpp", '\n#include "weft/shard/split.h"\n')
        self.expect("weft/io/read.cpp:2: io includes weft/shard/split.h, "
                    "but its weft_module() does not list shard")

    def test_refuses_an_upward_dependency(self):
        self.write("weft/core/CMakeLists.txt", "\nweft_module(NAME core DEPS shard)\n")
        self.write("weft/core/text.h", '#include "weft/shard/split.h"\n')
        self.expect("weft/core/CMakeLists.txt:2: core (band 0) lists shard (band 1); "
                    "include only from a lower band",
                    "weft/core/text.h:1: core includes weft/shard/split.h, "
                    "which is not in a lower band")

    def test_refuses_heavy_and_bare_includes_and_using_namespace_in_headers(self):
        self.write("weft/core/text.h",
                   '#include <torch/torch.h>\n#include "error.h"\n  using namespace std;\n')
        self.expect("weft/core/text.h:1: a header includes torch/torch.h (15 s per file); "
                    "include the ATen header it needs",
                    'weft/core/text.h:2: "error.h" is no path from the root; write "weft/core/…"',
                    "weft/core/text.h:3: `using namespace` in a header; name what you use")

    def test_refuses_flags_in_strings_of_libraries(self):
        self.write("weft/core/a.cpp", '// "--tp"\nint b = a-- - "--- -- a--b"[0];\n'
                                      'fail("; give --tp or (--dp=2)", "--force: ");\n')
        tail = "only weft/cli has flags: say what to change"
        self.expect(*(f"weft/core/a.cpp:3: names the flag {flag}; {tail}"
                      for flag in ("--tp", "--dp", "--force")))

    def test_refuses_an_old_flag_that_is_none_any_more(self):
        self.write("weft/cuda/CMakeLists.txt", "weft_module(NAME cuda)\n")
        self.write("weft/cuda/matrix.cpp", "\n")
        self.expect("weft/cuda/matrix.cpp:1: does not name --device; remove it from tools/scan/flag_names.py")

    def test_refuses_an_unknown_folder(self):
        self.write("weft/misc/CMakeLists.txt", "weft_module(NAME misc)\n")
        self.expect("weft/misc/CMakeLists.txt:1: folder misc has no band; "
                    "add it to tools/check_layers.py")

    def test_refuses_files_without_a_module(self):
        self.write("weft/nn/layers/norm.h", "#pragma once\n")
        self.expect("weft/nn/CMakeLists.txt:1: no weft_module() for the files of this folder")


class CheckSizes(PolicyTest):
    tool = "check_sizes.py"

    def test_accepts_what_is_at_the_limit(self):
        self.write("weft/core/a.cpp", "int f(int a, int b, int c, int d, int e, int g) {\n"
                   + "  a++;\n" * 57 + "  return a;\n}\n" + "// x\n" * 340)
        self.expect()

    def test_refuses_a_long_file_unless_it_is_generated(self):
        self.write("weft/core/a.cpp", "// x\n" * 401)
        self.write("weft/core/b.cpp", "// generated by tools/make_b.py\n" + "// x\n" * 401)
        self.expect("weft/core/a.cpp:401: file has 401 lines, at most 400; split it")

    def test_refuses_a_long_function_wherever_it_stands(self):
        body = " {\n" + "  if (a) { a = {1}; }  // } \" {\n" * 59 + "}\n"
        self.write("weft/core/a.cpp", "namespace weft {\nclass C {\n public:\n  void f() const"
                   + body + "};\nC::C(int a) : a_{a}, b_(a)" + body + "auto g() -> std::vector<int>"
                   + body + "}\n")
        self.expect("weft/core/a.cpp:4: f has 61 lines, at most 60; split it",
                    "weft/core/a.cpp:66: C::C has 61 lines, at most 60; split it",
                    "weft/core/a.cpp:127: g has 61 lines, at most 60; split it")

    def test_refuses_many_parameters_in_declarations_too(self):
        many = "f(std::map<int, int> a = {}, int b = g(1, 2), int c, int d, int e, int h, int i)"
        self.write("weft/core/a.h", f"/// Adds.\nint {many};\ntemplate <class A, class B>\n"
                                    f"int {many} {{ return 0; }}\n")
        tail = "f has 7 parameters, at most 6; pass an options struct"
        self.expect(f"weft/core/a.h:2: {tail}", f"weft/core/a.h:3: {tail}")

    def test_refuses_a_crowded_folder(self):
        for i in range(25):
            self.write(f"weft/core/b{i}.cpp", "\n")
        self.expect("weft/core: 26 files, at most 25; give parts of it folders")


class CheckDocs(PolicyTest):
    tool = "check_docs.py"

    def test_accepts_documented_declarations(self):
        self.write("weft/core/a.h", """
namespace weft::core {
class Forward;
/// A thing.
class A : public B {
  void undocumented_members_are_fine(int a);
};
/// Adds.
template <class T>
T add(T a, T b);
T subtract(T a, T b);

inline void A::undocumented_members_are_fine(int a) {}
namespace detail {
void helper();
}
TORCH_MODULE(Linear);
}
""")
        self.expect()

    def test_refuses_undocumented_declarations(self):
        self.write("weft/core/a.h", """
namespace weft::core {
// Not a documentation comment.
enum class Kind { kA };
/// Far away.

struct S {};
template <class T>
T add(T a, T b);
}
""")
        tail = "has no /// comment right above it"
        self.expect(f"weft/core/a.h:4: enum Kind {tail}", f"weft/core/a.h:7: struct S {tail}",
                    f"weft/core/a.h:8: function add {tail}")


class DrawRecords(PolicyTest):
    tool = "records/draw_records.py"
    record = {"title": "A & B", "date": "2026-01-31", "commit": "abc", "machine": "a machine", "command": "run",
              "unit": "s", "notes": ["Once."], "series": ["old", "new"],
              "rows": [{"name": "one", "figures": [1000, None]}, {"name": "two", "figures": [0.5, 2]}]}

    def run_with(self, *arguments):
        command = [sys.executable, str(ROOT / "tools" / self.tool), *arguments, str(self.root)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_draws_and_says_what_is_not_up_to_date(self):
        self.write("bench/records/2026-01-31-a.json", json.dumps(self.record))
        done = self.run_with("--check")
        tail = "not what its record says; run tools/records/draw_records.py\n"
        self.assertEqual((done.returncode, done.stdout),
                         (1, f"bench/records/README.md: {tail}docs/images/a.svg: {tail}"))
        self.assertEqual(self.run_with().returncode, 0)
        self.assertEqual(self.run_with("--check").stdout, "")
        self.assertIn("A &amp; B", (self.root / "docs/images/a.svg").read_text())
        self.assertIn("| one | 1,000 |  |", (self.root / "bench/records/README.md").read_text())
        self.write("docs/images/old.svg", "<svg/>")
        self.assertEqual(self.run_with("--check").stdout, f"docs/images/old.svg: {tail}")

    def test_refuses_a_record_that_lacks_something(self):
        self.write("bench/records/2026-01-31-a.json", json.dumps({**self.record, "series": ["old"]}))
        self.assertIn("one: one figure for each series", self.run_with("--check").stderr)


class CheckUnused(PolicyTest):
    tool = "check_unused.py"

    def setUp(self):
        super().setUp()
        self.write("weft/core/a.h", """
namespace weft::core {
/// Adds; sum() calls it in a comment.
int add(int a,
        int b);
/// A pair.
struct Pair {};
/// A kind.
enum class Kind { kA };
}
""")
        self.write("weft/core/a.cpp", '#include "weft/core/add.h"\nint add(int a,\n        int b) { return a + b; }\n'
                                      'const char* text = "add(1, 2)";\n')
        self.write("tests/core/a_test.cpp", "  add(1, 2); Pair(); Kind::kA;\n")

    def test_accepts_what_weft_or_an_example_uses(self):
        self.write("weft/core/b.cpp", "Pair both() {\n  return add(1, 2);\n}\n")
        self.write("examples/c.cpp", "int main() {\n  Kind kind;\n}\n")
        self.expect()

    def test_refuses_what_only_tests_use(self):
        tail = "is used by tests alone; delete it, or give a reason in tools/check_unused.py"
        self.expect(f"weft/core/a.h:4: function add {tail}", f"weft/core/a.h:7: struct Pair {tail}",
                    f"weft/core/a.h:9: enum Kind {tail}")

    def test_refuses_a_listed_name_that_is_used(self):
        self.write("weft/core/a.h", "/// Looks.\nbool has_device();\n")
        self.expect()
        self.write("weft/core/b.cpp", "int f() {\n  return has_device();\n}\n")
        self.expect("weft/core/a.h: has_device is used; remove it from ALLOWED in tools/check_unused.py")


class MakeApiPages(PolicyTest):
    tool = "make_api_pages.py"

    def setUp(self):
        super().setUp()
        self.write("weft/core.h", '#include "weft/core/a.h"\n')
        self.write("weft/core/a.h", "/// Adds `a<b>`.\nint add(int a, int b);\n")

    def test_makes_a_page_of_what_an_area_reaches(self):
        self.write("weft/core/inner.h", "/// Not public: <think> \\xNN.\nstruct Inner {};\n")
        self.expect()
        command = [sys.executable, str(ROOT / "tools" / self.tool), str(self.root), "-o", str(self.root / "api")]
        subprocess.run(command, check=True)
        self.assertIn("add", (self.root / "api/html/a_8h.html").read_text())
        self.assertFalse(list(self.root.glob("api/html/*nner*")))

    def test_refuses_a_comment_that_doxygen_does_not_understand(self):
        self.write("weft/core/a.h", "/// Adds <think> blocks.\nint add(int a, int b);\n")
        self.assertIn("weft/core/a.h:1: warning: Unsupported xml/html tag <think> found", self.run_tool())


if __name__ == "__main__":
    unittest.main()
