"""launch/scripts/eval_jobs.py on small sets in the published forms, made here."""
import gzip
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "launch" / "scripts" / "eval_jobs.py"
XSUM = """==12==
Document-400
the mill burned . nobody was hurt .

Document-Full
The mill burned .
Nobody was hurt .

Reference
a mill has burned .

==13==
Document-400
rain fell .

Document-Full
Rain fell .

Reference
it rained .
"""


class EvalJobs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_on(self, content, *options):
        source = self.folder / "source"
        source.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.out = self.folder / "jobs.jsonl"
        return subprocess.run([sys.executable, SCRIPT, source, "--out", self.out, *options], capture_output=True, text=True)

    def jobs(self, content, *options):
        done = self.run_on(content, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in self.out.read_text(encoding="utf-8").splitlines()]

    def test_each_set_has_its_form(self):
        chat = lambda text: [{"role": "user", "content": text}]
        gsm8k = self.jobs('{"question": "2+2?", "answer": "4"}\n{"question": "3\\u2019s?", "answer": "3"}\n')
        self.assertEqual([job["body"]["messages"] for job in gsm8k], [chat("2+2?"), chat("3’s?")])
        self.assertEqual([job["custom_id"] for job in gsm8k], ["gsm8k-0", "gsm8k-1"])
        self.assertEqual(gsm8k[0]["body"]["max_tokens"], 128)
        code = self.jobs(gzip.compress(b'{"task_id": "HumanEval/0", "prompt": "def f():\\n", "test": ""}\n'))
        self.assertEqual(code, [{"custom_id": "humaneval-HumanEval/0",
                                 "body": {"temperature": 0, "max_tokens": 128, "prompt": "def f():\n"}}])
        turns = self.jobs('{"question_id": 81, "turns": ["First.", "Second."]}\n')
        self.assertEqual(turns[0]["body"]["messages"], chat("First."))
        xsum = self.jobs(XSUM)
        self.assertEqual([job["body"]["prompt"] for job in xsum], ["The mill burned .\nNobody was hurt .", "Rain fell ."])
        self.assertEqual([job["custom_id"] for job in xsum], ["xsum-12", "xsum-13"])
        asked = self.jobs(XSUM, "--form", "chat")
        self.assertTrue(asked[1]["body"]["messages"][0]["content"].endswith("\n\nRain fell ."))
        self.assertNotIn("prompt", asked[1]["body"])

    def test_a_part_of_a_set(self):
        lines = "".join(f'{{"question": "{i}?"}}\n' for i in range(10))
        part = self.jobs(lines, "--skip", "3", "--limit", "2", "--max-tokens", "7")
        self.assertEqual([job["custom_id"] for job in part], ["gsm8k-3", "gsm8k-4"])
        self.assertEqual(part[0]["body"]["max_tokens"], 7)

    def test_what_is_no_such_set_is_refused_and_leaves_nothing(self):
        for content, said in (("not json\n", ":1 cannot be read"), ('{"text": "a"}\n', ':1 has no text'),
                              ('{"question": 5}\n', ":1 has no text"), ('{"turns": []}\n', ":1 cannot be read"),
                              ("", "no job is left"), ("==1==\nDocument-400\na\n", "Document-Full"), (b"\xff\xfe", "cannot be read"),
                              (gzip.compress(b"{}")[:8], "cannot be read")):
            done = self.run_on(content)
            self.assertNotEqual(done.returncode, 0, content)
            self.assertIn(said, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
