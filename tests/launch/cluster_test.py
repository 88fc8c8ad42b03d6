"""launch/cluster/slurm and launch/cluster/kubernetes without a cluster: the batch scripts with stand-ins for srun, torchrun, scontrol and dex
that record what they were given, and the manifests' structure."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import yaml

TREE = Path(__file__).parents[2]

# Ranks one after the other; the largest code is returned, as the real one does.
SRUN = r"""#!/usr/bin/env bash
echo "srun $*" >>"$FAKE/log"
while [[ $1 == --* ]]; do shift; done
worst=0
for ((rank = 0; rank < ${FAKE_TASKS:-4}; ++rank)); do
  code=0
  SLURM_PROCID=$rank SLURM_NTASKS=${FAKE_TASKS:-4} "$@" || code=$?
  [ "$code" -le "$worst" ] || worst=$code
done
exit "$worst"
"""
# Any failure of a rank is 1, as with the real one.
TORCHRUN = r"""#!/usr/bin/env bash
echo "torchrun $*" >>"$FAKE/log"
while [[ $1 == --* ]]; do shift; done
worst=0
for ((rank = 0; rank < SLURM_GPUS_ON_NODE; ++rank)); do
  LOCAL_RANK=$rank RANK=$((SLURM_PROCID * SLURM_GPUS_ON_NODE + rank)) "$@" || worst=1
done
exit "$worst"
"""
SCONTROL = r"""#!/usr/bin/env bash
echo "scontrol $*" >>"$FAKE/log"
if [ "$1 $2" = "show hostnames" ]; then printf 'node3\nnode4\n'; fi
"""
# Its code is the line of $FAKE/codes for its rank; decoding copies jobs to answers.
DEX = r"""#!/usr/bin/env bash
rank=${RANK:-${SLURM_PROCID:-0}}
echo "dex $rank $*" >>"$FAKE/log"
if [ "$1" = decode ]; then
  while [ "$1" != --input ]; do shift; done
  sed 's/$/"error":null/' "$2" >"$4"
fi
code=$(sed -n "$((rank + 1))p" "$FAKE/codes" 2>/dev/null)
[ "${code:-0}" -le 128 ] || kill -s $((code - 128)) $$
exit "${code:-0}"
"""
JOB = {"SLURM_JOB_ID": "1234567", "SLURM_JOB_NODELIST": "node[3-4]", "SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "2"}


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        (self.dir / "launch").symlink_to(TREE / "launch")
        (self.dir / "bin").mkdir()
        for name, text in {"srun": SRUN, "torchrun": TORCHRUN, "scontrol": SCONTROL, "dex": DEX}.items():
            (self.dir / "bin" / name).write_text(text)
            (self.dir / "bin" / name).chmod(0o755)

    def submit(self, script, *arguments, codes=(), **variables):
        (self.dir / "codes").write_text("".join(f"{code}\n" for code in codes))
        (self.dir / "log").write_text("")
        environment = {"PATH": f"{self.dir}/bin:{os.environ['PATH']}", "FAKE": str(self.dir), "DEX": str(self.dir / "bin" / "dex"),
                       "TORCHRUN": "torchrun", **JOB, **variables}
        done = subprocess.run(["bash", str(TREE / "launch" / "cluster" / "slurm" / script), *map(str, arguments)], cwd=self.dir,
                              env=environment, capture_output=True, text=True, timeout=60)
        self.log = (self.dir / "log").read_text().splitlines()
        self.requeued = [line.split()[-1] for line in self.log if line.startswith("scontrol requeue")]
        return done

    def train(self, codes, script="train_srun.sbatch", **variables):
        return self.submit(script, "--config", "x.conf", "--data", "a b", "--out", self.dir / "out", codes=codes, **variables)

    def test_every_rank_of_srun_runs_what_was_asked_for(self):
        done = self.train([0, 0, 0, 0])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line for line in self.log if line.startswith("dex")],
                         [f"dex {rank} train --resume --config x.conf --data a b --out {self.dir}/out" for rank in range(4)])
        self.assertIn("--kill-on-bad-exit=1", self.log[0])
        self.assertEqual(self.requeued, [])
        self.assertEqual(list(self.dir.glob("dex-codes*")), [])

    def test_only_what_another_try_can_help_is_queued_again(self):
        for codes, wanted, again in [([75] * 4, 75, True), ([75, 137, 75, 75], 75, True), ([2, 75, 75, 75], 2, False),
                                     ([75, 1, 75, 75], 1, False), ([75, 75, 75, 74], 74, False), ([0, 3, 0, 0], 3, False)]:
            for script in ("train_srun.sbatch", "train_torchrun.sbatch"):
                tasks = "4" if script == "train_srun.sbatch" else "2"
                with self.subTest(codes=codes, script=script):
                    shutil.rmtree(self.dir / "out", ignore_errors=True)
                    for old in self.dir.glob("dex-codes*"):
                        shutil.rmtree(old)
                    done = self.train(codes, script, FAKE_TASKS=tasks)
                    self.assertEqual(done.returncode, wanted, done.stderr)
                    self.assertEqual(self.requeued, [JOB["SLURM_JOB_ID"]] if again else [])

    def test_an_srun_that_fails_before_any_rank_is_not_repeated(self):
        (self.dir / "bin" / "srun").write_text("#!/bin/sh\nexit 1\n")
        done = self.train([])
        self.assertEqual(done.returncode, 1)
        self.assertIn("of the ranks: none", done.stderr)
        self.assertEqual(self.requeued, [])

    def test_array_tasks_are_queued_by_their_own_name(self):
        self.train([75] * 4, SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID="5")
        self.assertEqual(self.requeued, ["77_5"])

    def test_three_tries_without_a_new_checkpoint_are_the_last(self):
        def attempt(restart, step):
            (self.dir / "out" / "checkpoints" / f"step-{step}").mkdir(parents=True, exist_ok=True)
            self.train([75] * 4, SLURM_RESTART_COUNT=str(restart))
            return bool(self.requeued)
        self.assertEqual([attempt(0, 90), attempt(1, 90), attempt(2, 100), attempt(3, 100), attempt(4, 100)],
                         [True, True, True, True, False])

    def test_torchrun_meets_at_the_first_node_and_knows_its_gpus(self):
        done = self.train([0] * 4, "train_torchrun.sbatch", FAKE_TASKS="2")
        self.assertEqual(done.returncode, 0, done.stderr)
        launched = next(line for line in self.log if line.startswith("torchrun"))
        for words in ("--no-python", "--nnodes=2", "--nproc-per-node=2", "--max-restarts=0", "--rdzv-id=1234567",
                      f"--rdzv-endpoint=node3:{20000 + 1234567 % 40000}"):
            self.assertIn(words, launched)
        self.assertEqual([line.split()[1] for line in self.log if line.startswith("dex")], ["0", "1", "2", "3"])

    def test_missing_options_are_usage_errors(self):
        for script in ("train_srun.sbatch", "train_torchrun.sbatch", "decode_array.sbatch"):
            done = self.submit(script, "--config")
            self.assertEqual(done.returncode, 2, script)
            self.assertEqual(self.log, [], script)

    def test_a_warning_signal_reaches_the_rank_and_its_code_is_kept(self):
        leave = subprocess.run(["bash", "-c", 'cd "$1"; SLURM_JOB_ID=1; . launch/cluster/slurm/exit_codes.sh; printf %s "$leave_code"', "x", self.dir],
                               capture_output=True, text=True, check=True).stdout
        rank = 'trap "exit 75" USR1 TERM; touch ready; for i in $(seq 200); do sleep 0.05; done'
        for sent in (signal.SIGUSR1, signal.SIGTERM):
            codes = self.dir / f"codes-{sent}"
            codes.mkdir()
            (self.dir / "ready").unlink(missing_ok=True)
            process = subprocess.Popen(["bash", "-c", leave, "rank", codes, "bash", "-c", rank], cwd=self.dir, start_new_session=True)
            while not (self.dir / "ready").exists():
                time.sleep(0.01)
            os.killpg(process.pid, sent)
            self.assertEqual(process.wait(timeout=30), 75)
            self.assertEqual([file.read_text() for file in codes.iterdir()], ["75\n"])

    def test_an_array_answers_all_pieces_once(self):
        jobs = self.dir / "jobs.jsonl"
        jobs.write_text("".join(f'{{"prompt": "{i}"}}\n' for i in range(600)))  # three pieces
        for task in (3, 4):
            done = self.submit("decode_array.sbatch", jobs, "answers", "--model", "m", SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID=str(task),
                               SLURM_ARRAY_TASK_MIN="3", SLURM_ARRAY_TASK_COUNT="2")
            self.assertEqual(done.returncode, 0, done.stderr)
            pieces = [line.split("pieces/")[1].split()[0] for line in self.log if line.startswith("dex")]
            self.assertEqual(pieces, [["000000.jsonl", "000002.jsonl"], ["000001.jsonl"]][task - 3])
        self.assertEqual((self.dir / "answers" / "answers.jsonl").read_text().replace('"error":null', ""), jobs.read_text())
        done = self.submit("decode_array.sbatch", jobs, "more", "--model", "m", codes=[75], SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID="0",
                           SLURM_ARRAY_TASK_MIN="0", SLURM_ARRAY_TASK_COUNT="1")
        self.assertEqual((done.returncode, self.requeued), (75, ["77_0"]))

    def test_a_signal_to_the_script_of_an_array_ends_all_it_has_started(self):
        jobs = self.dir / "jobs.jsonl"
        jobs.write_text('{"prompt": "0"}\n')
        for sent, stubborn, code in ((signal.SIGTERM, False, 75), (signal.SIGINT, False, 130), (signal.SIGHUP, False, 129),
                                     (signal.SIGTERM, True, 75)):
            with self.subTest(sent=sent, stubborn=stubborn):
                name = f"{sent}-{stubborn}"
                # a decoder with a child of its own, which may take its time
                trap = "trap 'sleep 1; exit 1' TERM; " if stubborn else ""
                (self.dir / "bin" / "dex").write_text(f'#!/usr/bin/env bash\n{trap}sleep 300 &\necho $$ $! >"$FAKE/pids"\nwait\nwait\n')
                (self.dir / "pids").unlink(missing_ok=True)
                (self.dir / "log").write_text("")
                environment = {"PATH": f"{self.dir}/bin:{os.environ['PATH']}", "FAKE": str(self.dir), "DEX": str(self.dir / "bin" / "dex"), **JOB,
                               "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "1"}
                script = subprocess.Popen(["bash", str(TREE / "launch" / "cluster" / "slurm" / "decode_array.sbatch"), jobs, name, "--model", "m"],
                                          cwd=self.dir, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                end = time.monotonic() + 60
                while not (self.dir / "pids").exists() or len((self.dir / "pids").read_text().split()) < 2:
                    self.assertLess(time.monotonic(), end, "the decoder was not started")
                    time.sleep(0.01)
                script.send_signal(sent)
                self.assertEqual(script.wait(timeout=60), code)
                for pid in (self.dir / "pids").read_text().split():
                    with self.assertRaises(ProcessLookupError):
                        self.wait_for_end(int(pid))
                self.assertEqual("scontrol requeue 77_0" in (self.dir / "log").read_text(), code == 75)

    @staticmethod
    def wait_for_end(pid):
        """A process that was killed may be there for a moment, or as a zombie that nobody waits for."""
        for _ in range(500):
            os.kill(pid, 0)
            try:
                if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    raise ProcessLookupError
            except FileNotFoundError:
                raise ProcessLookupError from None
            time.sleep(0.01)

    def test_the_scripts_ask_slurm_for_another_try_and_a_warning(self):
        for script in (TREE / "launch" / "cluster" / "slurm").glob("*.sbatch"):
            asked = [line.split()[1] for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
            self.assertIn("--requeue", asked, script)
            self.assertIn("--open-mode=append", asked, script)
            self.assertTrue(any(option.startswith("--signal=") for option in asked), script)
            self.assertEqual(subprocess.run(["bash", "-n", script]).returncode, 0)

    def test_shellcheck_has_nothing_to_say(self):
        if not shutil.which("shellcheck"):
            self.skipTest("no shellcheck here")
        scripts = [*(TREE / "launch" / "cluster" / "slurm").glob("*"), TREE / "launch" / "regenerate", TREE / "launch" / "decode_pieces"]
        done = subprocess.run(["shellcheck", "--shell=bash", "--severity=warning", "--external-sources", "--exclude=SC1091", *scripts],
                              capture_output=True, text=True, cwd=TREE)
        self.assertEqual(done.returncode, 0, done.stdout)


class Manifests(unittest.TestCase):
    """Names of fields were checked against the projects' own schemas; here: what the parts must agree on."""

    def documents(self, name):
        return list(yaml.safe_load_all((TREE / "launch" / "cluster" / "kubernetes" / name).read_text()))

    def check_codes(self, job, container):
        rules = [rule for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
        self.assertEqual([(rule["onExitCodes"]["operator"], rule["onExitCodes"]["values"]) for rule in rules], [("In", [1, 2, 3, 74])])
        pod = job["template"]["spec"]
        self.assertEqual(pod["restartPolicy"], "Never")  # else the policy is refused
        self.assertEqual([one["name"] for one in pod["containers"]], [container])
        self.assertEqual(rules[0]["onExitCodes"]["containerName"], container)
        mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        self.assertEqual(mounted, {volume["name"] for volume in pod["volumes"]})
        return {one["name"]: one.get("value", one.get("valueFrom")) for one in pod["containers"][0]["env"]}

    def check_ranks(self, ranks, environment, arguments, address):
        self.assertEqual(environment["WORLD_SIZE"], str(ranks))
        self.assertEqual(environment["MASTER_ADDR"], address)
        self.assertEqual(environment["RANK"]["fieldRef"]["fieldPath"], "metadata.annotations['batch.kubernetes.io/job-completion-index']")
        recipe = next(word for word in arguments if word.startswith("--config=")).removeprefix("--config=/dex/")
        depths = next(line for line in (TREE / recipe).read_text().splitlines() if line.startswith("depths"))
        self.assertEqual(len(depths.split(",")) + 1, ranks)

    def check_jobset(self, spec, name):
        self.assertEqual(spec["failurePolicy"]["rules"][0]["action"], "FailJobSet")
        self.assertEqual(spec["failurePolicy"]["rules"][0]["onJobFailureReasons"], ["PodFailurePolicy"])
        self.assertGreater(spec["failurePolicy"]["maxRestarts"], 0)
        (ranks,) = spec["replicatedJobs"]
        self.assertEqual((ranks["name"], ranks["replicas"]), (name, 1))
        job = ranks["template"]["spec"]
        self.assertEqual((job["completionMode"], job["backoffLimit"]), ("Indexed", 0))
        self.assertGreaterEqual(job["template"]["spec"]["terminationGracePeriodSeconds"], 30)  # dex saves within 25 s
        return job

    def test_jobset(self):
        (jobset,) = self.documents("jobset.yaml")
        job = self.check_jobset(jobset["spec"], "rank")
        environment = self.check_codes(job, "dex")
        self.assertEqual(job["parallelism"], job["completions"])
        name = jobset["metadata"]["name"]
        self.check_ranks(job["completions"], environment, job["template"]["spec"]["containers"][0]["args"], f"{name}-rank-0-0.{name}")

    def test_trainjob(self):
        runtime, train = self.documents("trainjob.yaml")
        job = self.check_jobset(runtime["spec"]["template"]["spec"], "node")
        environment = self.check_codes(job, "node")
        self.assertEqual((train["spec"]["runtimeRef"]["kind"], train["spec"]["runtimeRef"]["name"]), (runtime["kind"], runtime["metadata"]["name"]))
        self.assertEqual(runtime["spec"]["mlPolicy"]["numNodes"], train["spec"]["trainer"]["numNodes"])
        name = train["metadata"]["name"]
        self.check_ranks(train["spec"]["trainer"]["numNodes"], environment, train["spec"]["trainer"]["args"], f"{name}-node-0-0.{name}")

    def test_decode_job(self):
        (job,) = self.documents("decode_job.yaml")
        environment = self.check_codes(job["spec"], "dex")
        self.assertEqual(environment["SHARES"], str(job["spec"]["completions"]))
        self.assertEqual(job["spec"]["parallelism"], job["spec"]["completions"])
        self.assertIn("backoffLimitPerIndex", job["spec"])
        (container,) = job["spec"]["template"]["spec"]["containers"]
        self.assertNotIn("gpu", str(container["resources"]))  # decoding runs on CPUs
        self.assertGreater(int(container["resources"]["requests"]["cpu"]), 1)


if __name__ == "__main__":
    unittest.main()
