"""What the two learners by reinforcement share: arguments, environments with reward methods, rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from memenvs.baselines.episode import Episode
from memenvs.baselines.options import TrainingArgs, check_ranges, check_training, read_json
from memenvs.baselines.rollout import Clock
from memenvs.baselines.run import Run, group_seeds
from memenvs.baselines.world import World
from memenvs.wrappers import RewardWrapper, VectorRewardWrapper
from memenvs.wrappers.registry import make_methods
from memenvs.wrappers.scorers import HFScorer, Scorer, ScoreRequest, TokenScores

SHOWN = ("return", "success", "kl_old", "kl_ref", "entropy", "eval_success", "tokens_per_second")


class Training(Run):
    """A run that learns from its own rollouts.

    Args:
        args: of the run.
        world: the processes.
        methods: reward methods that the learner itself needs, beside those of the arguments.

    Raises:
        ValueError: arguments that do not fit each other.
    """

    args: TrainingArgs

    def __init__(self, args: TrainingArgs, world: World, methods: Sequence[Any] = ()) -> None:
        check_ranges(args)
        check_training(args)
        named = read_json("methods", args.methods, list)
        if named:
            make_methods(named)  # so that no model is loaded for a wrong one
        super().__init__(args, world)
        self.reference = self._load(args.reference or args.model) if args.kl_coef else None
        self._scorer: Timed | None = None
        self._tree_env: gym.Env[Any, Any] | None = None
        self.venv = self._with_methods([*named, *methods])

    def rollouts(self, step: int, clock: Clock, part: int = 0) -> list[Episode]:
        """The episodes of a step, of all processes, in the order of their groups.

        Args:
            step: number of it.
            clock: counts the seconds.
            part: number of the batch of tasks within the step.
        """
        if self._scorer:
            self._scorer.clock = clock
        # Part 1 of step 0 is what evaluations play.
        seeds = group_seeds(self.args.seed, step, part, self.args.groups)
        return self.play(self.venv, seeds, self.args.group_size, clock)

    def tree_env(self) -> gym.Env[Any, Any]:
        """One environment with the run's methods, for trees; made once."""
        if self._tree_env is None:
            env: gym.Env[Any, Any] = gym.make(self.args.env, disable_env_checker=True, **self.args.env_args)
            methods = read_json("methods", self.args.methods, list)
            scorer = None if self.args.scorer == "policy" else self.args.scorer
            self._tree_env = RewardWrapper(env, methods, scorer) if methods else env
        return self._tree_env

    def _with_methods(self, methods: list[Any]) -> Any:
        venv = self.make_venv()
        if not methods:
            return venv
        policy, own = self.policy, self.args.scorer == "policy"
        scorer: Any = HFScorer(policy.model, policy.tokenizer) if own else self.args.scorer
        template = policy.template if own else None
        host = VectorRewardWrapper(venv, methods, scorer, self.args.group_size, template)
        if host.scorer is not None:
            host.scorer = self._scorer = Timed(host.scorer)
        host.reset(seed=0)  # a method that this environment cannot serve says so here, not in a run
        return host


class Timed:
    """A scorer that knows how many seconds it took.

    Args:
        scorer: does the work.
    """

    def __init__(self, scorer: Scorer) -> None:
        self._scorer, self.clock = scorer, Clock()

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """See `Scorer.logprobs`."""
        scores: list[TokenScores] = self.clock.run("scoring", self._scorer.logprobs, requests)
        return scores
