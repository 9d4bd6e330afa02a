"""Sokoban (MT-PPO Table 5): five ways to reward a small GPT, with one box and with two.

`python -m research.reproduce.sokoban runs/sokoban` runs everything. It draws 20,000 levels, makes a model,
warms it up with `sft.py` on the solver's solutions until it solves a quarter of the held-out levels, and
teaches it to leave out the thought in half of its replies. Then it trains the model by each method and writes
`research/results/`. With `--boxes 2` turns before the last pay too, for the first box. `--methods PPO-OR
--steps 600`, in another folder, trains one method for longer.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.core.episode import Episode, Reply
from memenvs.core.files import read_json, write_json
from memenvs.models import HFPolicy, SamplingParams
from memenvs.models.small_gpt import save_small_gpt
from memenvs.rollout.collect import collect
from memenvs.rollout.policy import Request, TurnPolicy
from memenvs.sokoban import LETTERS, Generator
from research import harness
from research.harness import LearnerJob, flags

LEVELS = {"train": 20_000, "test": 512}
SIZES = {1: {"max_solution": 9, "max_turns": 3}, 2: {"max_solution": 12, "max_turns": 4}}
WARM = 0.25  # share of held-out levels solved at which the warm-up ends
MALFORMED = 0.5
METHODS = {
    "MT-PPO": ("mt_ppo", "turn"),
    "PPO-MR": ("mt_ppo", "merged"),
    "PPO-OR": ("mt_ppo", "outcome"),
    "GRPO-MR": ("grpo", "merged"),
    "GRPO-OR": ("grpo", "outcome"),
    "GRPO-MR, no std": ("grpo", "merged", "--reward-args", "scale=none"),
}
METRICS = ("eval_success", "eval_effective_player", "eval_format")
EVALUATED, EPISODES, STEPS = 512, 256, 100
PLAYED = 2048  # episodes of the last policies
LAST = ("success", "greedy", "early_share")  # their metrics
REPLY = 12  # tokens
PPO = flags(groups=EPISODES, group_size=1, critic_warmup=5, critic="separate", critic_lr=1e-3)
GRPO = flags(groups=EPISODES // 8, group_size=8)
OPEN, BARE, CLOSE, BETWEEN = "<think></think><answer>", "<answer>", "</answer>", " || "
_BAD = (
    f"{OPEN}Up{BETWEEN}Down{CLOSE}",
    f"{OPEN}{CLOSE}",
    "",
    f"{OPEN}Up{CLOSE}.",
    f"{BARE}Up{CLOSE}",
    f"{OPEN}{'Up || ' * 4}{CLOSE}",
)


class SokobanSetting:
    """Levels, an untrained model, and the settings that all learners share; what is missing is made."""

    def __init__(self, folder: Path, boxes: int) -> None:
        self.folder, self.boxes = folder, boxes
        levels, size = folder / "levels.npz", SIZES[boxes]
        if not levels.exists():
            generator = Generator((6, 6), boxes, 5, size["max_solution"], seed=0)
            generator.levels(LEVELS, workers=2).save(levels)
        self.env_args: dict[str, Any] = {"levels": str(levels), "max_turns": size["max_turns"]}
        self.model = folder / "model"
        if not self.model.exists():
            save_sokoban_gpt(self.model, seed=0, **self.env_args)
        self.flags = flags(
            env="MemSokoban-v0", env_args=self.env_args, eval_env_args={"level_split": "test"}, stop=CLOSE,
            max_new_tokens=REPLY, eval_episodes=EVALUATED, num_envs=EPISODES,
        )  # fmt: skip

    def warm_up(self) -> Path:
        """A model that solves a quarter of the held-out levels, and half of whose replies are malformed."""
        shared = [*flags(batch_size=64, eval_every=50), *self.flags]
        solver = flags(teacher="gold", episodes=LEVELS["train"], lr=2e-3, lr_warmup=50)
        able = harness.clone_until(WARM, self.model, self.folder / "able", [*solver, *shared])
        out, teacher = self.folder / "careless", "research.reproduce.sokoban:careless_solver"
        harness.python(
            harness.train_command(
                "sft", able, out, [*flags(teacher=teacher, episodes=2560, lr=2e-4), *shared]
            )
        )
        return harness.last_policy(out)


def save_sokoban_gpt(folder: Path, seed: int, **env_args: Any) -> Path:
    """Save a model for `MemSokoban-v0` with these arguments and boards of 6 by 6."""
    walls = ["######\n#", "#\n#", "#\n######"]  # the border is fixed text, so that each other cell is a token
    moves = [move for name in ("Up", "Down", "Left", "Right") for move in (name, BETWEEN + name)]
    phrases = [OPEN, BARE, CLOSE, *moves, *walls, *_fixed_texts(**env_args)]
    return save_small_gpt(folder, phrases, width=96, layers=3, window=256, spread=0.1, seed=seed)


def _fixed_texts(**env_args: Any) -> Iterator[str]:
    """The text around boards and replies, in won and lost games."""
    cells = "[" + re.escape("".join(LETTERS)) + "]"
    board = re.compile(rf"(?:^|(?<=\n)){cells}+(?:\n{cells}+)+", re.MULTILINE)

    def reply(request: Request) -> Reply:
        inner: Any = request.env.unwrapped
        seed = request.episode.seed
        return Reply(inner.gold_reply() if seed % 2 else _BAD[seed // 2 % len(_BAD)])

    for episode in collect("MemSokoban-v0", TurnPolicy(reply), range(20), env_args=env_args):
        for text in (episode.turns[0].text, *(turn.info["feedback"] for turn in episode.turns)):
            yield from board.split(text)


def careless_solver(env: gym.Env[Any, Any]) -> Callable[[str, dict[str, Any]], str]:
    """A teacher that solves levels and leaves out the thought in half of its replies; they are played too."""
    inner: Any = env.unwrapped
    draws = random.Random(0)

    def reply(observation: str, info: dict[str, Any]) -> str:
        gold: str = inner.gold_reply()
        return gold.replace(OPEN, BARE) if draws.random() < MALFORMED else gold

    return reply


def jobs(
    setting: SokobanSetting, warm: Path, seeds: int, steps: int, names: Sequence[str] = tuple(METHODS)
) -> list[LearnerJob]:
    """A run for each named method and seed, and one without training."""
    kinds = {"mt_ppo": PPO, "grpo": GRPO}
    methods = {
        name: [learner, "--reward", *own, *kinds[learner]]
        for name, (learner, *own) in METHODS.items()
        if name in names
    }
    unchanged = {name: [*own, *GRPO] for name, own in harness.UNCHANGED.items()}
    shared = [*harness.steps_flags(steps, every=10), *flags(lr=5e-4, lr_end=0, minibatches=4), *setting.flags]
    return harness.seeded_jobs(setting.folder, warm, {**unchanged, **methods}, seeds, shared)


def early_share(episodes: Sequence[Episode]) -> float:
    """Share of the return's variance from rewards before the last turn: cov(early, return) / var(return)."""
    returns = np.array([sum(one.turn_rewards) for one in episodes])
    early = np.array([sum(one.turn_rewards[:-1]) for one in episodes])
    return float(np.cov(early, returns)[0, 1] / returns.var(ddof=1))


def last_policies(setting: SokobanSetting, made: Sequence[LearnerJob]) -> dict[str, dict[str, list[float]]]:
    """For each seed's last policy on held-out levels: success at temperature 1 and 0, `early_share` at 1."""
    env_args, found = {**setting.env_args, "level_split": "test"}, dict[str, dict[str, list[float]]]()

    def play(job: LearnerJob, temperature: float) -> list[Episode]:
        policy = HFPolicy(
            harness.last_policy(job.out), sampling_params=SamplingParams(temperature, stop=[CLOSE])
        )
        more = {"env_args": env_args, "concurrency": EPISODES}
        return harness.play_fresh("MemSokoban-v0", policy, PLAYED, REPLY, **more)

    for job in made:
        sampled, greedy = play(job, 1.0), play(job, 0.0)
        solved = [float(np.mean([one.metrics["success"] for one in part])) for part in (sampled, greedy)]
        measured = (*solved, early_share(sampled))
        for name, value in zip(LAST, measured, strict=True):
            found.setdefault(name, {}).setdefault(job.method, []).append(round(value, 4))
    return found


def last_table(record: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """`last_policies` as a Markdown table, a row for each method."""
    methods = {method: [harness.shown(record[name][method]) for name in LAST] for method in record["success"]}
    return harness.markdown(("last policies", "success", "greedy", "early share"), methods)


def main() -> int:
    """Run from the command line."""
    parser = harness.options(__doc__, seeds=5, steps=STEPS)
    parser.add_argument("--boxes", type=int, choices=SIZES, default=1)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS], help="default all")
    args = parser.parse_args()
    setting = SokobanSetting(args.folder, args.boxes)
    planned = jobs(setting, setting.warm_up(), args.seeds, args.steps, args.methods)
    name = f"sokoban_{args.boxes}" + ("" if args.steps == STEPS else f"_{args.steps}")
    boxes = "one box" if args.boxes == 1 else "two boxes"
    study = harness.Study(name, f"Sokoban with {boxes}, {EVALUATED} held-out levels", METRICS)
    print(study.run(planned, args.parallel))
    found, file = last_policies(setting, planned), harness.RESULTS / f"{name}.json"
    write_json(file, {**read_json(file), "last_policies": found})
    print(last_table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
