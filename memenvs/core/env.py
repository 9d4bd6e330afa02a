"""The contract of a text environment: one text and one reply a turn, the reward in named components."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

import gymnasium as gym
import msgspec
from gymnasium.error import ResetNeeded

from memenvs.core.data import check, is_whole, shown
from memenvs.core.lazy import LazyFields
from memenvs.core.spaces import UnicodeText, clean_text
from memenvs.core.state import NO_EPISODE, Replayable
from memenvs.core.tools import ToolUse

MAX_REPLY_CHARS = 1_000_000

Info = dict[str, Any]
Agent = Callable[[Any, Info], Any]  # a function from an observation and its info to an action
End = Literal["", "terminated", "truncated"]
_HIDDEN = ("privileged", "events", "signals", "measured", "error")  # a policy does not see them in an info
Text = str | Callable[[], str]  # a text, or a function that makes it when it is first read


@dataclass
class EpisodeState:
    """All that changes while an episode is played; environments add fields of their own.

    Attributes:
        task: number of the task.
        turn: turns played.
        turn_rewards: the reward of each turn played.
        end: how the episode ended; empty while it runs.
    """

    task: int
    turn: int = 0
    turn_rewards: list[float] = field(default_factory=list)
    end: End = ""


E = TypeVar("E", bound=EpisodeState)
O = TypeVar("O")  # noqa: E741  # the observation's type: a text, or with pictures


@dataclass
class _Last:
    """The last reply and what it earned, which `render` shows."""

    reply: str | None = None
    rewards: dict[str, float] = field(default_factory=dict)


class TextEnv(Replayable, gym.Env[O, str], Generic[O, E], ABC):
    """An environment with a text to read as its observation and the raw reply as its action.

    Action:
        Any `str`. Lone surrogates become U+FFFD, and text beyond `MAX_REPLY_CHARS` is truncated. No text
        raises an error.

    Observation:
        Exactly what the policy must read at this turn. `info["context"]` says how it follows the previous
        one: `"append"` (previous + reply + feedback, to the character) or `"rewrite"` (a fresh prompt). It is
        the class's `context` at reset, and at every step unless the environment starts over in between.
        The reply is the cleaned one (see Action) and `info["feedback"]` what the environment put after it, so
        you can make token sequences and chat messages without parsing the observation.

    Reward:
        The sum of `info["rewards"]`, whose keys are always `components`.

    End:
        `terminated` when the task is over, `truncated` at a limit. `info["turn_rewards"]` holds the reward of
        every turn played; at the end its sum is the episode's return.

    Info:
        The same keys at reset and at every step: `task` (id), `turn` (turns played), `context`, `feedback`
        (empty at reset and where the context is rewritten; see Observation), `rewards`, `turn_rewards` (of
        the turns played so far, so it is complete when an outer wrapper ends the episode), `metrics`
        (zeros until the end; `success` is among them) and `privileged`: what only a trainer may see about
        the observation it comes with. A wrapper that changes observations must set its own `context` and
        `feedback`.

    Privileged:
        The scoring fields, which every bundled environment has, so that a reward method that uses
        log-probabilities (`needs`) runs on any of them. All are texts except `memory_span`:

        - `question`; `target` and `target_wrapped`: the right answer, bare and in the required format.
        - `memory`: what the agent has written for later turns; `memory_span`: where in the last reply it is,
          [start, end) in characters, None if that reply wrote none.
        - `reply`: the part of the final reply that counts; empty before the end.
        - `prompt_with_memory`, `prompt_without_memory`, `prompt_with_history`: the prompt for the answer,
          with that memory, with an empty one, and with the turns so far.
        - `teacher_prompt`, `teacher_prompt_global`: this turn's prompt with the evidence that belongs to the
          turn, and with all evidence; empty after the end.

        Where the context is rewritten, the memory is what the prompt repeats of it; `_rewritten_fields` fills
        in all but the first three. Where it is appended, everything stays in the prompt, and
        `_appended_fields` fills them in: the memory is the last reply, the prompt with memory is the one with
        history, and a reply that ends the episode is an answer, not a memory. Where a reply writes a change
        of the memory, such as a note, `written` is the text at `memory_span`; elsewhere that is the memory.
        Other fields are the environment's own: `answers` are for each objective its accepted answers, where
        these can be listed, and `state` is a text that is equal in equal states, where the observation is
        not.

    To write one (docs/environments.md has a complete example):
        Class variables: `components`, `metric_names`, `context`, and `unhashed` of `Replayable`. An
        environment that lacks a required method cannot be constructed.
        Required, in the order in which `step` calls them:

        - `_begin(task)`: called by `reset`; returns a new episode's state. Every random choice comes from
          `self.np_random`.
        - `_play(reply)`: changes the state, sets its `end`, returns the components that are not 0;
          `state.turn` counts the turns before this one.
        - `_metrics()`: a value for each of `metric_names`; called when the episode has ended, after
          `state.turn += 1`.
        - `_feedback()`, if `context` is `"append"`: what the environment added after the last reply, also at
          the end; called after every turn.
        - `_observe()`: the observation, a function of the state alone.
        - `gold_reply()`: what an agent that knows the answer would reply now.

        Optional:

        - `_privileged()`: the fields above, plain data; `{}` by default, which is enough to train on the
          outcome alone. Called at `reset` and after every turn. A field may be a function without arguments,
          which is called when the field is first read; or one function makes all fields (see `LazyFields`).
        - `_context()`: how the observation follows the previous one; `context` by default.
        - `_task_id()`: the task's id; its number by default.
        - `tool_use()`: how an agent that calls tools plays it; see `memenvs.core.tools`.
        - `render()`: None without a `render_mode`; with `"ansi"` a text without control characters. Pass the
          line about the reward through `reward_lines`, so that a reward wrapper can replace it. The `play`
          command shows the observation of an environment that has none.
        - `changing`: names of attributes beside the state that change during an episode, so that a deep
          copy copies them.
        - `task_set()`: name and hash of the tasks, for states.

    Args:
        n_tasks: number of tasks; `reset(options={"task": i})` takes a number below it.
        render_mode: one of `metadata["render_modes"]`, or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012
    components: ClassVar[tuple[str, ...]] = ("outcome",)
    metric_names: ClassVar[tuple[str, ...]] = ("success",)
    context: Literal["append", "rewrite"] = "append"
    changing: ClassVar[tuple[str, ...]] = (*Replayable.changing, "_state", "_last")

    def __init__(self, n_tasks: int, render_mode: str | None = None) -> None:
        check("render_mode", render_mode, Literal[(*self.metadata["render_modes"], None)])
        self.render_mode = render_mode
        self.n_tasks = n_tasks
        self.action_space = UnicodeText()
        self.observation_space = self._make_observation_space()
        self._state: E | None = None
        self._last = _Last()
        self._reward_lines: Sequence[str] = ()

    # What an environment writes.

    @abstractmethod
    def _begin(self, task: int) -> E:
        """The state at the start of the numbered task; every random choice comes from `self.np_random`."""

    @abstractmethod
    def _observe(self) -> O:
        """The observation of the state now."""

    @abstractmethod
    def _play(self, reply: str) -> dict[str, float]:
        """Take a clean reply: change the state, set its `end`, return the components that are not 0."""

    @abstractmethod
    def _metrics(self) -> dict[str, float]:
        """The metrics of an ended episode, a value for each of `metric_names`."""

    @abstractmethod
    def gold_reply(self) -> str:
        """What an agent that knows the answer would reply now."""

    def _privileged(self) -> dict[str, Any] | Callable[[], dict[str, Any]]:
        """What only a trainer may see; always the same keys, plain data. Empty is enough for the outcome."""
        return {}

    def _task_id(self) -> str:
        """The id of the episode's task; its number by default."""
        return str(self.state.task)

    def tool_use(self) -> ToolUse | None:
        """How an agent that calls tools plays; None where the actions are not tools."""
        return None

    def tools(self) -> list[dict[str, Any]]:
        """The tools that do the environment's actions, in OpenAI's schema; empty where it has none."""
        use = self.tool_use()
        return [tool.schema for tool in use.tools] if use else []

    @staticmethod
    def prepare(plays: Iterable[tuple[Any, str]]) -> None:
        """Do work for several environments at once that each would do in `step`, such as a search. Optional.

        `memenvs.collect` and a `TextVectorEnv` call it before they step the environments. What fails is left
        to each environment's own `step`.

        Args:
            plays: environments whose `prepare` this is, unwrapped, and the reply that each plays next.
        """

    def _context(self) -> Literal["append", "rewrite"]:
        """How the observation follows the one before; `context` by default."""
        return self.context

    def _feedback(self) -> str:
        """What the environment added after the last reply; required where the context is `"append"`."""
        raise NotImplementedError(f"{type(self).__name__} has context 'append': write _feedback()")

    def _appended_fields(self, start: Text, now: Text, evidence: str = "") -> dict[str, Any]:
        """The scoring fields of an appended context except `question` and the targets; see Privileged.

        Args:
            start: the text at reset.
            now: the text now, with the last reply and `_feedback()` at its end.
            evidence: what a teacher reads after it.
        """
        reply, end = self._last.reply or "", self.state.end
        return appended_fields(reply, self._feedback() if end else "", end, start, now, evidence)

    def _rewritten_fields(
        self,
        memory: str,
        with_memory: Text,
        without_memory: Text,
        teacher: Text,
        teacher_global: Text | None = None,
    ) -> dict[str, Any]:
        """The scoring fields of a rewritten context except `question` and the targets; see Privileged.

        The whole last reply counts: as the memory, or, if it ended the episode, as the answer. An environment
        that keeps only part of a reply replaces `memory_span` and `reply`. A prompt may be a function that
        makes it (see `LazyFields`).

        Args:
            memory: the memory as the prompt shows it.
            with_memory: the prompt for the answer, with this memory.
            without_memory: the same with an empty memory.
            teacher: this turn's prompt with the evidence that belongs to the turn; ignored after the end.
            teacher_global: the same with all evidence; by default `teacher`.
        """
        reply, ended = self._last.reply or "", bool(self.state.end)
        return scoring_fields(reply, ended, memory, with_memory, without_memory, teacher, teacher_global)

    def _make_observation_space(self) -> gym.Space[O]:
        return UnicodeText()  # type: ignore[return-value]  # of the text environments

    # Gymnasium.

    @property
    def state(self) -> E:
        """The state of the current episode; raises `ResetNeeded` before the first `reset`."""
        if self._state is None:
            raise ResetNeeded(NO_EPISODE)
        return self._state

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[O, Info]:
        """Start an episode.

        Args:
            seed: picks the task and every random choice; equal seeds give equal episodes. Without one, the
                environment's own generator draws it.
            options: `{"task": i}` picks the task by number.
        """
        options = options or {}
        check_task(options, self.n_tasks)
        # Every episode has a seed, also one that was not asked for, so that its state can be played again.
        if seed is None:
            seed = int(self.np_random.integers(2**63))
        elif is_whole(seed):  # Gymnasium refuses NumPy's, and whatever is no number
            seed = int(seed)
        super().reset(seed=seed)
        self._begun = {"seed": seed, "options": {name: int(value) for name, value in options.items()}}
        self._actions = []
        task = options["task"] if "task" in options else self.np_random.integers(self.n_tasks)
        self._state = self._begin(int(task))
        self._last = _Last()
        return self._observe(), self._info({})

    def step(self, action: str) -> tuple[O, float, bool, bool, Info]:
        """Take a reply; see the class for what comes back."""
        if not isinstance(action, str):
            raise TypeError(f"an action is a str, got {type(action).__name__}; decode it first")
        state = self.state
        if state.end:
            raise ResetNeeded(f"the episode is {state.end}; call reset() before the next step()")
        reply = clean_text(action, MAX_REPLY_CHARS)
        rewards = self._play(reply)
        state.turn += 1
        state.turn_rewards.append(sum(rewards.values(), 0.0))
        self._last = _Last(reply, rewards)
        self._actions.append(reply)
        info = self._info(rewards)
        end: str = self.state.end  # read again: a type checker still has it as empty
        return self._observe(), state.turn_rewards[-1], end == "terminated", end == "truncated", info

    @contextlib.contextmanager
    def show_rewards(self, lines: Sequence[str]) -> Iterator[Sequence[str]]:
        """Have `render` show, inside a `with`, what a reward wrapper paid for the last reply.

        Args:
            lines: text. Of wrappers inside each other the outermost one's are shown.

        Yields:
            The lines that are shown, if `render` shows any (`reward_lines`).
        """
        before = self._reward_lines
        self._reward_lines = before or lines
        try:
            yield self._reward_lines
        finally:
            self._reward_lines = before

    def reward_lines(self, *lines: str) -> Sequence[str]:
        """Lines for `render` that say what the last reply earned: a reward wrapper's, or these `lines`."""
        return self._reward_lines or lines

    def privileged(self) -> Mapping[str, Any]:
        """What only a trainer may see of the turn that is played now: `info["privileged"]`."""
        return LazyFields(self._privileged())

    def _info(self, rewards: dict[str, float]) -> Info:
        state = self.state
        names, ended = self.metric_names, bool(state.end)
        metrics = self._metrics() if ended else dict.fromkeys(names, 0.0)
        context = self._context()
        return {
            "task": self._task_id(),
            "turn": state.turn,
            "context": context,
            "feedback": self._feedback() if state.turn and context == "append" else "",
            "rewards": {name: float(rewards.get(name, 0.0)) for name in self.components},
            "turn_rewards": list(state.turn_rewards),
            "metrics": {name: float(metrics[name]) for name in names} if ended else metrics,
            "privileged": self.privileged(),
        }


def public_info(info: Info) -> Info:
    """What a policy may see of an info: all but what only a trainer may see.

    Without `privileged`, `events`, and the `signals`, `measured` and `error` of reward methods, which rest
    on the right answer, and with the reason of a credit only up to its colon, after which it may quote a
    judge that has read the answer.
    """
    public = {name: value for name, value in info.items() if name not in _HIDDEN}
    if "credits" in info:
        public["credits"] = {
            method: [
                msgspec.structs.replace(credit, reason=credit.reason.partition(":")[0]) for credit in credits
            ]
            for method, credits in info["credits"].items()
        }
    return public


def privileged_of(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an info says to trainers and viewers alone; empty where it says nothing."""
    fields: Mapping[str, Any] = info.get("privileged", {})
    return fields


def scoring_fields(
    reply: str,
    ended: bool,
    memory: str,
    with_memory: Text,
    without_memory: Text,
    teacher: Text,
    teacher_global: Text | None = None,
) -> dict[str, Any]:
    """The fields of `TextEnv._rewritten_fields`; `ended`: whether `reply` ended the episode."""
    return {
        "memory": memory,
        "memory_span": [0, len(reply)] if reply and not ended else None,
        "reply": reply if ended else "",
        "prompt_with_memory": with_memory,
        "prompt_without_memory": without_memory,
        "prompt_with_history": with_memory,
        "teacher_prompt": "" if ended else teacher,
        "teacher_prompt_global": "" if ended else teacher if teacher_global is None else teacher_global,
    }


def appended_fields(
    reply: str, feedback: str, end: End, start: Text, now: Text, evidence: str = ""
) -> dict[str, Any]:
    """The fields of `TextEnv._appended_fields`; `reply` and `feedback` are those of the last turn."""

    def text() -> str:
        return now() if callable(now) else now

    if not end:
        return scoring_fields(reply, False, reply, text, start, lambda: text() + evidence)
    before = len(reply + feedback)
    return scoring_fields(reply, True, "", lambda: text()[: -before or None], start, "")


def check_task(options: Mapping[str, Any], n_tasks: int) -> None:
    """Raise a one-line `ValueError` unless the options of a reset name at most a task, by its number."""
    is_named = isinstance(options, Mapping) and not options.keys() - {"task"}
    task: Any = options.get("task", 0) if is_named else None
    if not is_whole(task) or not 0 <= task < n_tasks:
        raise ValueError(
            f"the one option of a reset is 'task', a number from 0 to {n_tasks - 1}, got {shown(options)}"
        )


def env_name(env: gym.Env[Any, Any]) -> str:
    """The id of an environment, or the name of its class if it was not made by its id."""
    # A wrapper's own spec is a deep copy with the wrappers added, which costs more than a step of Sokoban.
    inner = env.unwrapped
    return inner.spec.id if inner.spec else type(inner).__name__


def text_env_of(env: gym.Env[Any, Any]) -> TextEnv[Any, Any]:
    """The text environment inside wrappers.

    Raises:
        ValueError: the environment is of another kind.
    """
    if not isinstance(inner := env.unwrapped, TextEnv):
        raise ValueError(f"{env_name(env)} is not a text environment, which extends memenvs.TextEnv")
    return inner


def prepare_together(plays: Iterable[tuple[Any, str]]) -> None:
    """Call `TextEnv.prepare` once for all environments that have the same one.

    Args:
        plays: environments without their wrappers, and the reply that each plays next.
    """
    calls: dict[Any, list[tuple[Any, str]]] = {}
    for env, reply in plays:
        if hasattr(env, "prepare"):
            calls.setdefault(env.prepare, []).append((env, reply))
    for prepare, together in calls.items():
        prepare(together)


def check_text_observations(env: gym.Env[Any, Any]) -> None:
    """Raise a one-line `ValueError` unless a language model can read the observations, which are texts."""
    if not isinstance(env.observation_space, UnicodeText):
        raise ValueError(
            f"{env_name(env)} has observations that are not texts; give a text environment, such as "
            "MemSokoban-v0"
        )


def check_text_actions(env: gym.Env[Any, Any]) -> None:
    """Raise a one-line `ValueError` unless actions are texts, which those of `ChooseReply` are not."""
    if not isinstance(env.action_space, (UnicodeText, gym.spaces.Text)):
        raise ValueError(
            f"{env_name(env)} has actions here that are not texts; a wrapper that chooses replies, such as "
            "ChooseReply, goes around the others"
        )


def check_text_info(env: gym.Env[Any, Any], info: Mapping[str, Any]) -> None:
    """Raise a one-line `ValueError` unless the info of a reset is that of a text environment."""
    if "rewards" not in info:
        raise ValueError(
            f"{env_name(env)} is not a text environment, which extends memenvs.TextEnv: no info['rewards']"
        )


def task_options(task: int | None) -> dict[str, Any]:
    """The options of a reset that plays a task by its number; none where it is None and the seed draws it."""
    return {} if task is None else {"task": task}


def end_of(terminated: bool, truncated: bool) -> End:
    """How an episode ended, by the flags of its last step."""
    return "terminated" if terminated else "truncated" if truncated else ""
