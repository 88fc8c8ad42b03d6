#!/usr/bin/env python3
"""Deletes each barrier, wait and fence of the CUDA kernels in turn and demands that an emulated test program fails.

    tests/kernels/cuda/mutations.py BUILD [--only TEXT]

BUILD is a build folder whose cuda_emulated*_tests are up to date. Nothing in it or in the sources is changed. Prints a table:
for each deleted line which programs failed (plain: results in some order of threads; asan; tsan). Exit code 1 if some deletion
is seen by none of them, unless UNSEEN below says why that must be so.
"""
import argparse, glob, json, os, re, shlex, subprocess, sys, tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
DELETED = re.compile(r"(gpu::)?(__syncthreads\(\)|__syncwarp\(\w*\)|__threadfence\(\)|cp_async_wait<[^;]*>\(\)|"
                     r"cp_async_commit\(\)|bar_(sync|arrive)\([^;]*\));")
VARIANTS = {"plain": "", "asan": "_asan", "tsan": "_tsan"}
# What the emulator cannot show, by file and place among the file's deletions.
UNSEEN = {
    ("linear.cu", "__threadfence();", 2):
        "the emulator's fence before the count orders both ways; a GPU needs one on either side",
}


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


class Program:
    """One variant: how its kernels are compiled, and what they are linked with."""

    def __init__(self, build, suffix, commands):
        self.name = f"cuda_emulated{suffix}_tests"
        self.folder = os.path.join(build, f"tests/kernels/cuda/CMakeFiles/{self.name}.dir")
        self.compile = {}
        for entry in commands:
            file = entry["file"]
            if (f"/{self.name}.dir/" in entry["command"] and "/kernels/cuda/" in file and file.endswith(".cu")
                    and "/tests/" not in file):
                self.compile[os.path.basename(file)] = (entry["directory"], shlex.split(entry["command"]), file)
        link = run(["ninja", "-C", build, "-t", "commands", self.name]).stdout.strip().splitlines()[-1]
        link = next(part for part in re.split(r"&&|\n", link) if f"-o {self.name}" in part)
        self.link = [word for word in shlex.split(link)]
        self.build = build

    def fails(self, sources, overlay):
        """Whether the tests fail with these kernel files compiled again from the overlay."""
        objects = {}
        for source in sources:
            directory, command, path = self.compile[source]
            target = os.path.join(overlay, f"{self.name}.{source}.o")
            changed = os.path.join(overlay, "kernels/cuda", source)
            command = [changed if word == path and os.path.exists(changed) else word for word in command]
            old = command[command.index("-o") + 1]
            command[command.index("-o") + 1] = target
            position = next(i for i, word in enumerate(command) if word.endswith(("g++", "c++", "clang++"))) + 1
            done = run(command[:position] + ["-I" + overlay] + command[position:], cwd=directory)
            if done.returncode != 0:
                sys.exit(f"{source} does not compile:\n{done.stdout}")
            objects[old] = target
        program = os.path.join(overlay, self.name)
        link = [objects.get(word, word) for word in self.link]
        link[link.index("-o") + 1] = program
        done = run(link, cwd=self.build)
        if done.returncode != 0:
            sys.exit(f"{self.name} does not link:\n{done.stdout}")
        start = ["setarch", "-R"] if self.name.endswith("_tsan_tests") else []
        environment = dict(os.environ, TSAN_OPTIONS="halt_on_error=1")
        try:
            return run(start + [program, "--abort"], timeout=600, env=environment).returncode != 0
        except subprocess.TimeoutExpired:
            return True


def deletions():
    for path in sorted(glob.glob(os.path.join(ROOT, "kernels/cuda/*"))):
        name, seen = os.path.basename(path), {}
        if name in ("gpu.h", "CMakeLists.txt"):
            continue
        lines = open(path).read().splitlines(keepends=True)
        for number, line in enumerate(lines):
            found = DELETED.search(line)
            if not found or line.lstrip().startswith("//"):
                continue
            text = found.group(0)
            seen[text] = seen.get(text, 0) + 1
            mutant = lines[:number] + [line[:found.start()] + ";" + line[found.end():]] + lines[number + 1:]
            yield name, number + 1, text, seen[text], "".join(mutant)


def sources_with(name):
    """The kernel files a change of `name` reaches."""
    if name.endswith(".cu"):
        return [name]
    found, headers = [], {name}
    paths = glob.glob(os.path.join(ROOT, "kernels/cuda/*"))
    for _ in paths:
        for path in paths:
            if os.path.isfile(path) and any(f'kernels/cuda/{h}"' in open(path).read() for h in headers):
                headers.add(os.path.basename(path))
    return sorted(h for h in headers if h.endswith(".cu"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", default="", help="deletions whose 'file:line text' holds this")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    commands = json.load(open(os.path.join(build, "compile_commands.json")))
    programs = {variant: Program(build, suffix, commands) for variant, suffix in VARIANTS.items()}
    missed = tried = 0
    print(f"{'deleted':60} {'plain':6} {'asan':6} {'tsan':6}", flush=True)
    for name, line, text, nth, mutant in deletions():
        label = f"{name}:{line} {text}"
        if options.only not in label:
            continue
        tried += 1
        with tempfile.TemporaryDirectory() as overlay:
            os.makedirs(os.path.join(overlay, "kernels/cuda"))
            with open(os.path.join(overlay, "kernels/cuda", name), "w") as file:
                file.write(mutant)
            caught = {variant: program.fails(sources_with(name), overlay) for variant, program in programs.items()}
        decision = "" if any(caught.values()) else "  NOT SEEN"
        reason = UNSEEN.get((name, text, nth))
        if decision and reason:
            decision = f"  not seen: {reason}"
        elif decision:
            missed += 1
        print(f"{label:60} " + " ".join(f"{'fails' if caught[v] else '-':6}" for v in VARIANTS) + decision, flush=True)
    print(f"{tried} deletions, {missed} of them not seen that should be")
    return 1 if missed or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
