"""launch/scripts/plot_ead.py: its numbers, its pictures and its refusals."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from PIL import Image

LAUNCH = Path(__file__).parents[2] / "launch" / "scripts"
sys.path.insert(0, str(LAUNCH))
import plot_ead  # noqa: E402

RUN = {
    "label": "no adapters", "model": "tiny", "num_layers": 4, "depths": [2, 3, 4],
    "first": [2, 4, 2], "stable": [2, 4, 4],
    "map": {"name": "p", "tokens": [" a", "\n", "$x"], "matched": [[1, 1, 1], [0, 0, 1], [1, 0, 1]], "stable": [2, 4, 4]},
}


class PlotEad(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.directory = Path(self.temporary.name)

    def draw(self, run):
        (self.directory / "run").mkdir()
        (self.directory / "run" / "ead.json").write_text(json.dumps(run))
        command = [sys.executable, LAUNCH / "plot_ead.py", self.directory / "run", self.directory / "run", "--out", self.directory / "out"]
        return subprocess.run(command, capture_output=True, text=True)

    def test_a_share_counts_the_tokens_ready_at_a_depth_or_before(self):
        shares = plot_ead.cumulative_share(RUN["stable"], RUN["depths"])
        self.assertEqual([round(share, 3) for share in shares], [33.333, 33.333, 100.0])

    def test_a_cell_tells_a_passing_match_from_a_lasting_one(self):
        states = plot_ead.cell_states(RUN["map"]["matched"], RUN["map"]["stable"], RUN["depths"]).tolist()
        none, passing, lasting = plot_ead.NOT_MATCHED, plot_ead.MATCHED, plot_ead.STABLE
        self.assertEqual(states, [[lasting, none, passing], [lasting, none, none], [lasting, lasting, lasting]])

    def test_both_pictures_are_1200_pixels_wide(self):
        outcome = self.draw(RUN)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertEqual(sorted(path.name for path in (self.directory / "out").iterdir()), ["ead_map.png", "ead_share.png"])
        for path in (self.directory / "out").iterdir():
            with Image.open(path) as picture:
                self.assertEqual(picture.width, 1200)

    def test_a_run_that_lacks_a_field_is_named_with_the_field(self):
        outcome = self.draw({key: value for key, value in RUN.items() if key != "stable"})
        self.assertNotEqual(outcome.returncode, 0)
        self.assertIn("run/ead.json lacks stable", outcome.stderr)


if __name__ == "__main__":
    unittest.main()
