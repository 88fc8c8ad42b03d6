# Which operators have a function per device, as kernels/cuda/README.md says.
import pathlib
import re
import unittest

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"


def functions(device):
    names = set()
    for header in KERNELS.glob("*.h"):
        for body in re.findall(rf"^namespace {device} {{$(.*?)^}}  // namespace {device}$", header.read_text(), re.M | re.S):
            names |= set(re.findall(r"^\w+ (\w+)\(const \w+& p\b", body, re.M))
    return names


class Operators(unittest.TestCase):
    def test_all_but_the_named_ones_run_on_both_devices(self):
        readme = (KERNELS / "cuda" / "README.md").read_text()
        named = re.search(r"All but\s(.*?):", readme, re.S)
        self.assertIsNotNone(named, "kernels/cuda/README.md names no operators of the CPU alone")
        alone = set(re.findall(r"`(\w+)`", named[1]))
        self.assertGreater(len(functions("cpu")), 8)
        self.assertEqual(functions("cpu") - functions("cuda"), alone)


if __name__ == "__main__":
    unittest.main()
