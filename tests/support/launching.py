"""Learners in several processes, which find each other as under `accelerate launch`."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys

from memenvs.baselines.flags import main as learn

LEARNERS = ["mt_ppo", "grpo", "distill", "prm"]


def launch(learner, flags, count):
    """Run a learner in `count` processes, forked after it is imported; the lines of its log."""
    if count == 1:
        main(learner, flags, {})
    else:
        context = multiprocessing.get_context("forkserver")
        libraries = ["torch", "transformers", "tyro"]
        context.set_forkserver_preload([*libraries, *(f"memenvs.baselines.{name}" for name in LEARNERS)])
        ranks = [
            context.Process(target=main, args=(learner, flags, variables))
            for variables in environments(count)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(240)
            assert rank.exitcode == 0
    out = flags[flags.index("--out") + 1]
    with open(f"{out}/log.jsonl") as file:
        return [json.loads(line) for line in file]


def main(learner, flags, variables):
    """Run a learner in this process, with more variables of the environment."""
    os.environ.update(variables)
    assert learn([learner, *flags]) == 0


def run_together(script, count):
    """Run Python in processes of their own."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script], stderr=subprocess.PIPE, env={**os.environ, **variables}
        )
        for variables in environments(count)
    ]
    for rank in ranks:
        _, said = rank.communicate(timeout=240)
        assert rank.returncode == 0, said.decode()[-2000:]


def environments(count):
    """What tells each of the processes which one it is."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    return [{**address, "RANK": str(rank), "WORLD_SIZE": str(count)} for rank in range(count)]
