"""A run of a learner that plays: its environments, rollouts with their credit, and evaluations."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from memenvs import models
from memenvs.baselines.args import PlayArgs, RewardArgs, StepArgs
from memenvs.baselines.metrics import evidence_in_memory, question_in_memory, summary
from memenvs.baselines.optimizer import mix_weights
from memenvs.baselines.processes import ProcessGroup
from memenvs.baselines.train import Run
from memenvs.core.address import without_secrets
from memenvs.core.arguments import REQUIRED, Parameter, env_parameters, shell_form
from memenvs.core.episode import Episode
from memenvs.core.episode_file import EPISODES, EpisodeWriter
from memenvs.core.files import CARD
from memenvs.core.progress import Progress
from memenvs.data import bundled_names
from memenvs.models import TokenPolicy
from memenvs.models.hf import HFPolicy
from memenvs.rollout.collect import Loop, MakeEnv, Timer, count_tasks, maker
from memenvs.rollout.order import draw_tasks, group_seeds
from memenvs.rollout.policy import as_policy
from memenvs.tasks.taskset import HOLDOUT
from memenvs.wrappers import RewardMethod
from memenvs.wrappers.credit import check_methods
from memenvs.wrappers.registry import choose_scorer, make_methods, read_methods
from memenvs.wrappers.scorers import Scorer, ScoreRequest, TokenScores


@dataclass
class TimedScorer:
    """A scorer whose seconds are counted, as `"scoring"`."""

    scorer: Scorer
    timer: Timer

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """The scores of the requests."""
        with self.timer("scoring"):
            return self.scorer.logprobs(requests)


class PlayRun(Run):
    """A policy in training, its environments, its rollouts with their credit, and its evaluations.

    Attributes:
        sampler: the policy that samples: the one in training, or a vLLM engine with its weights.
        n_tasks: number of tasks of the environment.
        ref_model: the model that `kl_coef` pulls to; None without. With `ref_sync_steps` it is among the
            models, so that checkpoints hold it, and its weights are a group of the optimizer without a rate.
        methods: the run's reward methods, with the comparison where it is one.
        scorer: gives them log-probabilities.

    Args:
        args: the run's arguments.
        processes: processes that train together; None: those that were launched.
        comparison: what the learner compares by; if it is a reward method, it joins those of the arguments.

    Raises:
        ValueError: arguments that do not fit each other.
    """

    args: PlayArgs
    ref_model: HFPolicy | None = None
    methods: Sequence[RewardMethod] = ()
    scorer: Scorer | None = None
    _eval_loop: Loop | None = None

    def __init__(
        self, args: PlayArgs, processes: ProcessGroup | None = None, comparison: object = None
    ) -> None:
        super().__init__(args, processes)
        if not isinstance(args, RewardArgs):
            return
        named = [*read_methods(args.methods), *([comparison] if isinstance(comparison, RewardMethod) else [])]
        if not named:
            return
        self.methods = make_methods(named)
        scorer = choose_scorer(args.scorer, self.policy)
        self.scorer = scorer and TimedScorer(scorer, self.timer)
        env = self.make_env()
        # raises here, before the run
        check_methods(self.methods, self.scorer, env.reset(seed=0)[1], plays_on=True)
        env.close()

    def open_data(self) -> None:
        """Check the environments of training and of evaluation."""
        args = self.args
        self.n_tasks, self._eval_tasks = (
            count_tasks(args.env, {**args.env_args, **different}) for different in ({}, args.eval_env_args)
        )

    def load(self, model: str, *, value_head: bool = False, adapt: bool = False, **settings: Any) -> HFPolicy:
        """Load a model with the run's sampling parameters, and a window of `max_model_len`."""
        settings = {"sampling_params": self.args.sampling_params, **settings}
        policy = super().load(model, value_head=value_head, adapt=adapt, **settings)
        policy.window = min(filter(None, (policy.window, self.args.max_model_len)), default=None)
        return policy

    def load_models(self) -> dict[str, HFPolicy]:
        """Load the policy, and start the engine that samples."""
        args, loaded = self.args, super().load_models()
        self.policy = policy = loaded["policy"]
        self.sampler: HFPolicy | models.VLLMPolicy = policy
        if args.vllm is not None:
            if self.processes.size > 1:
                raise ValueError("--vllm works in one process; leave it out with several")
            engine = {"dtype": str(policy.model.dtype).removeprefix("torch.")} | args.vllm
            if args.max_model_len is not None:
                engine = {"max_model_len": policy.window} | engine
            self.sampler = models.VLLMPolicy(
                policy.adapter_of or args.model,
                engine=engine,
                chat_settings=args.chat_settings,
                sampling_params=args.sampling_params,
            )
            self.sampler.check_weights(policy)  # raises here, not after the first step
            if self._begun_from_adapter:
                self.refresh_sampler()  # the engine has the weights without it
        elif args.model_plays:
            policy.check_can_sample()
        if isinstance(args, RewardArgs) and args.kl_coef:
            # A reference that follows an adapter is an adapter too.
            follows = args.ref_sync_steps and policy.adapter_of is not None
            self.ref_model = policy.twin() if follows else self.load_fixed()
            if args.ref_sync_steps:
                loaded["reference"] = self.ref_model
        return loaded

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Also those of a reference model that follows the policy, whose float32 copies are kept there."""
        groups = super().parameter_groups()
        if "reference" in self.models:
            reference = self.models["reference"].model_parameters()
            groups.append({"params": reference, "full_lr": 0.0, "warmup": 0.0})
        return groups

    def load_fixed(self, name: str = "") -> HFPolicy:
        """Load a model that is not trained.

        Args:
            name: the model's name; "" is the initial model, which shares its weights with an adapter in
                training.
        """
        if name or self.policy.adapter_of is None:
            return self.load(name or self.args.model)
        return self.policy.frozen(self.args.model if self._begun_from_adapter else None)

    @property
    def _begun_from_adapter(self) -> bool:
        return self.policy.adapter_of is not None and not self.args.lora_rank

    def refresh_sampler(self) -> None:
        """Give a vLLM engine the weights in training."""
        if isinstance(self.sampler, models.VLLMPolicy if self.args.vllm is not None else ()):
            self.sampler.load_weights(self.policy)

    # Rollouts.

    @functools.cached_property
    def make_env(self) -> MakeEnv:
        """Makes an environment of the run."""
        return maker(self.args.env, self.args.env_args)

    @functools.cached_property
    def loop(self) -> Loop:
        """The loop of the rollouts that are learned from."""
        return self.make_loop(self.make_env, methods=self.methods)

    def make_loop(
        self, make_env: MakeEnv, player: TokenPolicy | None = None, methods: Sequence[RewardMethod] = ()
    ) -> Loop:
        """A loop with its own environments.

        Args:
            make_env: makes an environment.
            player: the policy that samples; None: `sampler`.
            methods: reward methods.
        """
        policy = as_policy(player or self.sampler, self.args.max_new_tokens)
        scorer = self.scorer if methods else None
        return Loop(make_env, policy, methods, scorer, concurrency=self.args.num_envs, timer=self.timer)

    def next_tasks(self, count: int) -> list[int]:
        """The numbers of the next tasks to learn from: each once a pass through the set."""
        start, self.drawn = self.drawn, self.drawn + count
        return draw_tasks(self.n_tasks, [self.args.seed, 0], start, count)

    def rollouts(self, step: int, part: int = 0) -> list[Episode]:
        """Roll out the groups of a step, by all processes; episodes in order of their groups.

        Args:
            step: number of the step.
            part: number of the batch of tasks within the step.
        """
        # Part 1 of step 0 is what evaluations play.
        args = cast(StepArgs, self.args)
        seeds = group_seeds(args.seed, step, part, args.groups)
        return self.play(self.loop, seeds, self.next_tasks(args.groups), args.group_size, self.read)

    def read(self, episode: Episode) -> None:
        """Keep what is learned from an episode's texts, which are dropped when it has ended."""

    def play(
        self,
        loop: Loop,
        seeds: Sequence[int],
        tasks: Sequence[int],
        group_size: int,
        read: Callable[[Episode], None] | None = None,
    ) -> list[Episode]:
        """Roll out a group of episodes for each seed, shared among all processes; in order of the seeds.

        Args:
            loop: plays them.
            seeds: seeds of the groups, which also name them.
            tasks: the number of each group's task.
            group_size: episodes of a group.
            read: is given each episode that this process played to its end, while it has its texts.
        """
        plan = [
            [Episode(seed=seed, group=seed, member=member, number=task) for member in range(group_size)]
            for seed, task in self.processes.shard([*zip(seeds, tasks, strict=True)])
        ]
        played = [episode for group in plan for episode in group]
        with Progress(len(played), "episodes") as shown:
            for _ in loop.play(plan, shown):
                pass  # the records are filled in place
        for episode in played:
            if episode.end != "failed":
                kept = {**evidence_in_memory(episode), **question_in_memory(episode)}
                episode.metrics = {**episode.metrics, **kept}
                if read is not None:
                    read(episode)
        if not loop.methods:  # only reward methods read texts, which are much to gather
            played = self.without_texts(played)
        order = {seed: number for number, seed in enumerate(seeds)}
        return sorted(self.processes.gather(played), key=lambda episode: order[episode.group])

    def without_texts(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Episodes of this process without their texts, except those that may be saved."""
        kept = self.args.save_episodes
        return [*episodes[:kept], *(episode.without_texts() for episode in episodes[kept:])]

    # Evaluations, and what is kept.

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics `eval_NAME` on fixed tasks, each once; empty unless an evaluation is due at this step.

        Methods that compare the rollouts of a task, or play on from its states, pay nothing.
        """
        args, n_tasks = self.args, self._eval_tasks
        if not args.eval_every or step % args.eval_every:
            return {}
        tasks = draw_tasks(n_tasks, [args.seed, 1], 0, min(n_tasks, args.eval_episodes))
        if self._eval_loop is None:
            make_env = maker(args.env, {**args.env_args, **args.eval_env_args})
            alone = [method for method in self.methods if not (method.group or method.continuations)]
            player = self.sampler
            if args.eval_temperature is not None:
                player = self.sampler.at_temperature(args.eval_temperature)
            self._eval_loop = self.make_loop(make_env, player, alone)
        episodes = self.play(self._eval_loop, group_seeds(args.seed, 0, 1, len(tasks)), tasks, 1)
        self.save_episodes(step, "eval", episodes)
        return {f"eval_{name}": value for name, value in summary(episodes).items()}

    def end(self, metrics: dict[str, float], tokens: int, episodes: Sequence[Episode] = ()) -> None:
        """End a step; its first episodes are saved, and the reference follows the policy, if asked for."""
        self.save_episodes(self._step, "train", episodes)
        args = self.args
        if isinstance(args, RewardArgs) and args.ref_sync_steps and self._step % args.ref_sync_steps == 0:
            reference = self.models["reference"].model_parameters()
            mix_weights(reference, self.policy.model_parameters(), args.ref_mixup)
        super().end(metrics, tokens, episodes)

    def save_episodes(self, step: int, phase: Literal["train", "eval"], episodes: Sequence[Episode]) -> None:
        """Append the first episodes to OUT/episodes.jsonl, as many as `--save-episodes` says."""
        if not self.args.save_episodes or not self.processes.is_main:
            return
        with EpisodeWriter(self.args.out / EPISODES) as writer:
            for episode in episodes[: self.args.save_episodes]:
                writer.write(msgspec.structs.replace(episode, step=step, phase=phase), self.policy)

    def next_commands(self) -> list[str]:
        """Also the commands that evaluate the policy, on other tasks, and show the saved episodes."""
        args = self.args
        first, *others = super().next_commands()
        served = not self.policy.can_sample
        command, unknown = evaluation_command(args, f"{args.out}/last/policy", served=served)
        if unknown:
            first = first.replace("next:", "next, with tasks that it has not trained on in place of …:")
        view = [f"  memenvs view {shlex.quote(str(args.out))}"] if args.save_episodes else []
        return [first, command, *view, *others]


def evaluation_command(args: PlayArgs, model: str, *, served: bool = False) -> tuple[str, bool]:
    """The command that evaluates a run's model on other tasks, and whether these are to be filled in.

    Args:
        args: the run's arguments.
        model: the model's folder.
        served: whether vLLM serves it, which can sample from models that `HFPolicy` cannot.
    """
    begin, folder = "  memenvs evaluate run ", shlex.quote(model)
    policy = f"--policy {shlex.quote(f'hf:{model}')}"
    if served:
        begin = f"  vllm serve {folder}\n{begin}"
        policy = f"--policy openai:http://127.0.0.1:8000 --tokens {folder}"
    options = [f"--env {args.env}", policy]
    env_args = evaluation_args(args.env, args.env_args, args.eval_env_args)
    if env_args:
        shown = without_secrets(env_args)
        values = (shell_form(Parameter(name, Any, value)) for name, value in shown.items())
        options.append(f"--env-args {' '.join(values)}")
    if args.stop:
        options.append(f"--stop {shlex.join(args.stop)}")
    options.append(f"--max-new-tokens {args.max_new_tokens}")
    if args.eval_temperature is not None:
        options.append(f"--temperature {args.eval_temperature:g}")
    options.append(f"--out {shlex.quote(f'{args.out}/evaluation')}")
    return begin + " \\\n      ".join(options), REQUIRED in env_args.values()


def evaluation_args(env: str, trained: Mapping[str, Any], evaluated: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an environment with tasks that a run has not trained on.

    Args:
        env: the environment's id.
        trained: its arguments in training.
        evaluated: those that differ in the run's evaluations; without any, the tasks that were set aside
            (`memenvs build --holdout`), or the other split of what ships.

    Returns:
        The arguments; `tasks` or `levels` is `REQUIRED` where other tasks are not known here.
    """
    known = {parameter.name: parameter.default for parameter in env_parameters(env) or ()} | {**trained}
    if not evaluated and "tasks" in known:
        learned = str(known["tasks"]).rstrip("/")
        others = [
            name for name in (f"{learned}{HOLDOUT}", re.sub("-train$", "-test", learned)) if name != learned
        ]
        is_set = [name in bundled_names() or (Path(name) / CARD).is_file() for name in others]
        evaluated = {"tasks": next(itertools.compress(others, is_set), REQUIRED)}
    elif not evaluated and known.get("level_split") == "train":
        evaluated = {"levels": REQUIRED} if "levels" in trained else {"level_split": "test"}
    return {**trained, **evaluated}
