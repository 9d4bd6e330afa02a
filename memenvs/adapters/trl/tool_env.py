"""A text environment comes in; what TRL calls an environment goes out: an object whose methods are tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from memenvs.adapters.plain import open_env
from memenvs.adapters.versions import check_version
from memenvs.wrappers import RewardWrapper
from memenvs.wrappers.registry import MethodSpec, ScorerSpec

OVER = "The episode is over. Reply without calling a tool."


class ToolEnv:
    """A text environment for `environment_factory`: TRL makes a tool of every public method.

    A call of a tool is a turn. TRL has no signal that an episode is over: later calls are told so and change
    nothing. A rollout that stops before its end is silent from then on: empty replies are played when the
    reward is asked for. All else is private, or it would become a tool.

    Args:
        methods: reward methods around the environment; see `memenvs.wrappers.RewardWrapper`. Those that
            compare the rollouts of a task fall back to statistics of the episodes this object has played.
        scorer: theirs.
        **settings: of the environment.

    Raises:
        ImportError: TRL is missing or of another version.
        ValueError: the environment rewrites its prompts.
    """

    _id: ClassVar[str]

    def __init__(
        self, methods: Sequence[MethodSpec] = (), scorer: ScorerSpec = None, **settings: Any
    ) -> None:
        check_version("trl", "1.16", "1.17", "trl")
        self._env = open_env(self._id, settings, methods, scorer)
        if self._inner.context == "rewrite":
            raise ValueError(
                f"{self._id} rewrites its prompts, and a chat with tools only grows; use EpisodeRollout with "
                "TurnAdvantages"
            )
        self._outcome_is_last_turn = isinstance(self._env, RewardWrapper) and self._env.spends_outcome
        self._over = True
        self._info: dict[str, Any] = {}
        self._paid: list[float] = []  # the outcome component of each turn

    def reset(self, seed: int | None = None, task: int | None = None, **row: Any) -> str:
        """Start an episode; the text goes behind the last message of the prompt.

        Args:
            seed: picks the task and every random choice.
            task: the task by number.
            **row: the dataset's other columns, the prompt among them: TRL passes them all.

        Raises:
            ValueError: neither is given, so that the members of a group would play different tasks.
        """
        if seed is None and task is None:
            raise ValueError("the dataset needs a column `seed` or `task`, or a group plays different tasks")
        options = {} if task is None else {"task": int(task)}
        _, self._info = self._env.reset(seed=None if seed is None else int(seed), options=options)
        self._over, self._paid = False, []
        return self._prompt()

    def get_reward(self) -> float:
        """The return of the episode; one that has not ended is ended by silence."""
        while not self._over:
            self._play("")
        return float(sum(self._turn_rewards))

    @property
    def _inner(self) -> Any:
        """The environment without its wrappers."""
        return self._env.unwrapped

    @property
    def _turn_rewards(self) -> list[float]:
        """The reward of each turn played, (K,)."""
        return list(self._info.get("turn_rewards", []))

    @property
    def _outcomes(self) -> list[float]:
        """The part of them that is the outcome, (K,)."""
        if self._outcome_is_last_turn and self._over:
            return [0.0] * (len(self._paid) - 1) + self._turn_rewards[-1:]
        return list(self._paid)

    def _play(self, reply: str) -> str:
        """Play a reply; what the environment put behind it."""
        if self._over:
            return OVER
        _, _, terminated, truncated, self._info = self._env.step(reply)
        self._paid.append(self._info["rewards"].get("outcome", 0.0))
        self._over = bool(terminated or truncated)
        said = self._info["feedback"].strip()
        return f"{said}\n{OVER}".strip() if self._over else said

    def _prompt(self) -> str:
        raise NotImplementedError
