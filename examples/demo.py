"""Build a generated world, read it chunk by chunk, and see how far word overlap gets."""

import tempfile
from pathlib import Path

import gymnasium as gym

import memenvs  # noqa: F401  # registers the environments
from memenvs.commands.build import main as build
from memenvs.core.terminal import show
from memenvs.evaluation.summary import metric_interval
from memenvs.rollout.scripted import make_policy, play_episode, play_tasks
from memenvs.wrappers import TAMTRL, RewardWrapper

TASKS = 50
POLICIES = ("gold", "lexical", "silent")


def main() -> None:
    """Build, show one episode, and score three policies."""
    with tempfile.TemporaryDirectory() as folder:
        tasks = Path(folder) / "world"
        print("1. Build a world: invented people, places and works, and questions about them.\n")
        size = ["--entities", "1000", "--num-tasks", str(TASKS), "--documents", "100", "--seed", "7"]
        print("$ memenvs build world", *size, "--out world")
        if build(["world", *size, "--out", str(tasks)]):
            raise SystemExit(1)

        env = gym.make("MemChunkQA-v0", tasks=str(tasks), chunk_size=4000, render_mode="ansi")
        rewarded = RewardWrapper(env, [TAMTRL()], scorer="lexical")
        scores = {name: play_tasks(env, make_policy(name, env), range(TASKS)) for name in POLICIES}

        print("\n2. One episode, read by word overlap in chunks of 4,000 tokens.\n")
        print("TAMTRL asks a scorer how likely each memory is, given the evidence of its turn:")
        print("the signal. At the end each turn is paid its share of the outcome: the credit.\n")
        solved = scores["lexical"]["em"].index(1.0) if 1.0 in scores["lexical"]["em"] else 0
        policy = make_policy("lexical", env)
        play_episode(rewarded, policy, task=solved, on_turn=lambda: show(f"{rewarded.render()}\n\n"))

        print(f"3. Three policies on {TASKS} tasks: mean and 95% interval.\n")
        print(f"{'policy':10}{'EM':>23}{'F1':>23}{'sub_em':>23}")
        for name, metrics in scores.items():
            columns = [metric_interval(m, metrics[m]) for m in ("em", "f1", "sub_em")]
            print(f"{name:10}" + "".join(f"{column!s:>23}" for column in columns))
        print("\nA small language model reads: make demo-lm")


if __name__ == "__main__":
    main()
