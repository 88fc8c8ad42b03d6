"""launch/bench_peers with stand-ins for dex, llama-bench and transformers: order of runs, ratios, the page, refusals."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "launch" / "bench_peers"

# Each stand-in appends its name to a log and speaks as its original does; dex slows down from call to call.
DEX = """#!/bin/sh
echo "dex $*" >>LOG
case "$*" in *int8*) echo "dex: error: no int8 here" >&2; exit 2 ;; esac
n=$(grep -c ^dex LOG)
echo "a table"
echo "{\\"methods\\": {\\"ar\\": {\\"prompt_tokens_per_second\\": 100.0, \\"tokens_per_second\\": $((60 / n)).0}}}"
"""
LLAMA = """#!/bin/sh
echo "llama $*" >>LOG
echo 'a warning'
echo '{"n_prompt": 512, "n_gen": 0, "samples_ts": [50.0]}'
echo '{"n_prompt": 0, "n_gen": 64, "samples_ts": [20.0, 10.0, 30.0]}'
"""
HF = """import sys
open("LOG", "a").write("hf " + " ".join(sys.argv[1:]) + "\\n")
print("HF f32 thr=1: 15.0 tok/s")
print("prefill 400 tok/s")
"""


class BenchPeers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        for name, text in {"dex": DEX, "llama-bench": LLAMA, "hf.py": HF}.items():
            (self.dir / name).write_text(text.replace("LOG", str(self.dir / "log")))
            (self.dir / name).chmod(0o755)
        (self.dir / "model").mkdir()
        (self.dir / "gguf").mkdir()
        for name in ("f32", "bf16", "q8_0"):
            (self.dir / "gguf" / f"{name}.gguf").touch()

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, str(SCRIPT), "--dex", self.dir / "dex", "--model", self.dir / "model", "--llama-bench",
                               self.dir / "llama-bench", "--ggufs", self.dir / "gguf", "--work", self.dir / "work", "--out",
                               self.dir / "page.md", *arguments], capture_output=True, text=True)

    def test_pairs_alternate_and_ratios_are_medians_of_pairs(self):
        done = self.run_script("--dtypes", "f32", "--threads", "1", "--pairs", "3", "--hf-script", self.dir / "hf.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        order = [line.split()[0] for line in (self.dir / "log").read_text().splitlines()]
        self.assertEqual(order, ["dex", "llama", "llama", "dex", "dex", "llama", "dex", "hf", "hf", "dex", "dex", "hf"])
        page = (self.dir / "page.md").read_text()
        self.assertEqual(page.strip(), done.stdout.strip())
        # dex gives 60, 30, 20, 15, 12, 10 tokens/s in turn.
        self.assertIn("| prefill | f32 | 1 | llama.cpp | 100.0 | 50.0 | **2.00** | 2.00 .. 2.00 |", page)
        self.assertIn("| decode | f32 | 1 | llama.cpp | 30.0 | 20.0 | **1.50** | 1.00 .. 3.00 |", page)
        self.assertIn("| decode | f32 | 1 | transformers | 12.0 | 15.0 | **0.80** | 0.67 .. 1.00 |", page)
        self.assertIn("`llama-bench -m f32.gguf -t 1 -p 512 -n 64 -r 1 -o jsonl`", page)
        self.assertNotIn(str(self.dir), page)
        samples = [json.loads(line) for line in (self.dir / "work" / "samples.jsonl").read_text().splitlines()]
        self.assertEqual(len(samples), 12)

    def test_what_cannot_run_is_said_on_the_page(self):
        done = self.run_script("--dtypes", "bf16,int8", "--threads", "2", "--pairs", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("- llama.cpp, int8, 2 thread(s): not measured, dex: error: no int8 here", done.stdout)
        self.assertIn("| decode | bf16 | 2 | llama.cpp |", done.stdout)

    def test_wrong_options_are_refused(self):
        for arguments in (["--dtypes", "f16"], ["--pairs", "0"], ["--threads", "many"], ["--no-llama"], ["--dex", "/nonexistent"]):
            self.assertEqual(self.run_script(*arguments).returncode, 2, arguments)


if __name__ == "__main__":
    unittest.main()
