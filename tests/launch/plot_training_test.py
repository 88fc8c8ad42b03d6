"""launch/scripts/plot_training.py, compare_training.py and compare_rounds.py: their numbers, a picture, and refusals."""
import json
import math
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from PIL import Image

LAUNCH = Path(__file__).parents[2] / "launch" / "scripts"
sys.path.insert(0, str(LAUNCH))
import compare_rounds  # noqa: E402
import compare_training  # noqa: E402
import plot_training  # noqa: E402


def step(number, loss):
    return {"step": number, "tokens": 500 * number, "loss": loss, "loss_by_depth": {"8": loss, "16": loss}, "agreement": {"8": 0.25, "16": 0.5}}


def scores(hops):
    return {"agreement": [0.25, 0.5], "hops": hops + 0.1, "decs_hops": hops, "rows": 200, "texts": 4, "rounds": 460}


LINES = [{"step": 0, "evaluation": {"none": scores(2.7), "start": scores(2.4)}}, step(1, 3.0), step(2, None), step(3, 1.0),
         {"step": 3, "evaluation": {"trained": scores(2.3)}, "forecast": {"trained": {"explorers_here_tokens_per_second": 20.5}}}]


class Training(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.run_dir = Path(self.temporary.name) / "run"
        (self.run_dir / "best").mkdir(parents=True)
        (self.run_dir / "best" / "best.json").write_text('{"step": 3}')
        self.write_metrics(LINES)

    def write_metrics(self, lines, torn='{"step": 4, "lo'):
        (self.run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)

    def command(self, script, *arguments):
        return subprocess.run([sys.executable, LAUNCH / script, *arguments], capture_output=True, text=True)

    def test_depths_are_in_the_order_of_their_numbers_and_a_skipped_step_has_no_value(self):
        steps, _ = plot_training.read_metrics(self.run_dir)
        values = plot_training.by_depth(steps, "loss_by_depth")
        self.assertEqual(list(values), ["8", "16"])
        self.assertEqual([values["8"][0], values["8"][2]], [3.0, 1.0])
        self.assertTrue(math.isnan(values["8"][1]))

    def test_a_running_mean_leaves_out_what_is_no_number(self):
        self.assertEqual(plot_training.running_mean([4, math.nan, 2, 8], 2), [4, 4, 2, 5])

    def test_held_out_values_begin_with_the_start(self):
        _, evaluations = plot_training.read_metrics(self.run_dir)
        self.assertEqual(plot_training.held_out(evaluations, lambda s: s["decs_hops"]), ([0, 3], [2.4, 2.3]))

    def test_a_picture_is_drawn_with_and_without_evaluations(self):
        for lines, height in ((LINES, 1296), (LINES[1:4], 864)):
            self.write_metrics(lines)
            outcome = self.command("plot_training.py", self.run_dir)
            self.assertEqual(outcome.returncode, 0, outcome.stderr)
            with Image.open(self.run_dir / "training.png") as picture:
                self.assertEqual(picture.size, (1200, height))
        self.assertFalse((self.run_dir / "training.part.png").exists())

    def test_runs_are_drawn_side_by_side_over_the_tokens_that_each_has_seen(self):
        run = compare_training.Run(self.run_dir)
        self.assertEqual(run.seen, {0: 0, 1: 0.5, 2: 1.5, 3: 3})
        self.assertEqual(run.trained(lambda s: s["decs_hops"]), ([0, 3], [2.4, 2.3]))
        picture = self.run_dir / "both.png"
        other = Path(self.temporary.name) / "elsewhere" / "run"
        shutil.copytree(self.run_dir, other)
        outcome = self.command("compare_training.py", self.run_dir, other, "--out", picture)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        with Image.open(picture) as image:
            self.assertEqual(image.size, (1200, 1296))

    def test_what_cannot_be_drawn_is_one_line_of_error(self):
        elsewhere = Path(self.temporary.name) / "other"
        elsewhere.mkdir()
        (elsewhere / "metrics.jsonl").write_text('{"step": 1, "loss_by_depth": {"8": 1}}\n')
        for script, arguments in (("compare_training.py", [self.run_dir, elsewhere, "--out", elsewhere / "a.png"]),
                                  ("compare_training.py", [self.run_dir, self.run_dir, "--out", elsewhere / "a.png"]),
                                  ("compare_training.py", [self.run_dir, "--out", elsewhere]),
                                  ("compare_training.py", [self.run_dir, "--out", elsewhere / "none" / "a.png"]),
                                  ("compare_training.py", [self.run_dir, "--out", "/dev/null"]),
                                  ("plot_training.py", [elsewhere])):
            outcome = self.command(script, *arguments)
            self.assertNotEqual(outcome.returncode, 0, arguments)
            self.assertNotIn("Traceback", outcome.stderr)
            self.assertTrue(outcome.stderr.strip())
        self.assertEqual([path.name for path in elsewhere.iterdir()], ["metrics.jsonl"])

    def test_a_run_without_a_step_is_refused(self):
        self.write_metrics([])
        outcome = self.command("plot_training.py", self.run_dir)
        self.assertNotEqual(outcome.returncode, 0)
        self.assertIn("no finished step", outcome.stderr)

    def test_predicted_and_taken_rounds_stand_side_by_side(self):
        ead = Path(self.temporary.name) / "ead"
        ead.mkdir()
        (ead / "summary.json").write_text(json.dumps({"dtype": "f32", "readings": {"adapters": {"texts": 2, "tokens": 100, "rounds": 230}}}))
        taken = Path(self.temporary.name) / "full.json"
        taken.write_text('{}\n{"counts": {"texts": 2, "tokens": 100, "rounds": 231, "tokens_per_second": 9.5}}\n')
        rows = compare_rounds.rows_of(self.run_dir, ead, [("full", taken)])
        self.assertEqual([row[1:] for row in rows], [(4, 200, 460, None, 20.5), (2, 100, 230, None, None), (2, 100, None, 231, 9.5)])
        outcome = self.command("compare_rounds.py", "--train", self.run_dir, "--ead", ead, "--decode", f"full={taken}")
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        lines = outcome.stdout.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(lines[1].split()[-6:], ["4", "200", "460", "-", "2.300", "20.5"])
        self.assertEqual(lines[3].split()[-6:], ["2", "100", "-", "231", "2.310", "9.5"])

    def test_a_run_without_rounds_is_refused_by_name(self):
        outcome = self.command("compare_rounds.py", "--train", self.temporary.name)
        self.assertNotEqual(outcome.returncode, 0)
        self.assertIn("metrics.jsonl cannot be read", outcome.stderr)


if __name__ == "__main__":
    unittest.main()
