"""The one loop: it plays episodes in plain environments, each at its pace, and credits groups as they end.

`memenvs.collect("MemChunkQA-v0", "lexical", [0, 1], methods=["TAMTRL"], scorer="lexical")`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from msgspec.structs import replace

from memenvs.core.arguments import check_env_arguments, find_spec
from memenvs.core.data import Count, Whole, check, checked, shown
from memenvs.core.env import (
    check_text_info,
    check_text_observations,
    prepare_together,
    task_options,
    text_env_of,
)
from memenvs.core.episode import Episode, Reply
from memenvs.core.errors import error_line
from memenvs.core.progress import Progress
from memenvs.rollout.continuations import Continuing
from memenvs.rollout.policy import AnsweredRequest, Policy, Request, as_policy
from memenvs.wrappers.credit import Errors, assign_credit, check_methods
from memenvs.wrappers.registry import MethodSpec, ScorerSpec, make_methods, make_scorer

MakeEnv = Callable[[], gym.Env[Any, str]]
Group = Sequence[Episode]


class Timer:
    """Seconds spent on named kinds of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time inside a `with`, also where it raises."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@checked
def collect(
    env: str | gym.Env[Any, str] | MakeEnv,
    policy: Any,
    seeds: Iterable[int],
    n: Count = 1,
    methods: Sequence[MethodSpec] = (),
    scorer: ScorerSpec = None,
    *,
    env_args: Mapping[str, Any] | None = None,
    tasks: Iterable[int | None] = (),
    concurrency: Count = 64,
    max_new_tokens: Count = 512,
    errors: Errors = "fail",
) -> list[Episode]:
    """Play `n` episodes of the task of each seed, and give every turn its credit.

        episodes = memenvs.collect("MemSokoban-v0", agent, range(8), n=4, methods=["GiGPO"])

    Member j of the group of seed s draws from `np.random.default_rng([s, j])`: what is sampled depends
    neither on `concurrency` nor on the other episodes. A reply ends at its own limit or at the model's
    window. A prompt that leaves no room gets an empty reply, so that the episode still ends.

    Args:
        env: a text environment's id; an environment, which is copied; or a function that makes one.
        policy: a name (`"lexical"`, `"hf:MODEL"`, `"openai:URL"`), a function from an observation and its
            info to a reply, or a model, as for `memenvs.rollout.policies.choose_policy`.
        seeds: seeds of the groups, all different; each names its group.
        n: episodes of a group.
        methods: reward methods, as `memenvs.wrappers.registry.make_methods` takes them. Those that compare
            the rollouts of a task compare the n episodes of a group.
        scorer: gives methods log-probabilities, as `memenvs.wrappers.registry.make_scorer` takes it.
        env_args: arguments of an environment given by its id.
        tasks: the number of each group's task, as of `memenvs.rollout.order.draw_tasks`; where it is None, or
            there are none, the seed draws the task.
        concurrency: episodes that are played at once.
        max_new_tokens: most tokens of a model's reply.
        errors: what an error of the environment, the policy or the scorer does.

    Returns:
        The episodes group by group, in the order of the seeds. A failed episode says why in `error`.

    Raises:
        ValueError: two seeds are equal, one is negative or no whole number, there is no such policy, the
            environment is not a text environment, a method does not fit it, or `env` gives one environment
            twice.
    """
    seeds = [seed.item() if hasattr(seed, "item") else seed for seed in seeds]  # NumPy's
    check("seeds", seeds, list[Whole])
    if len({*seeds}) < len(seeds):
        raise ValueError(f"seeds must all be different, since each names a group, got {seeds}")
    plan = [[Episode(seed=seed, group=seed, member=member) for member in range(n)] for seed in seeds]
    numbers = list(tasks)
    for group, number in zip(plan, numbers, strict=True) if numbers else ():
        for episode in group:
            episode.number = number
    make = maker(env, env_args)
    if isinstance(policy, str):
        from memenvs.rollout.policies import policy_by_name  # which imports what most policies do not need

        replies = policy_by_name(policy, make, max_new_tokens=max_new_tokens)
    else:
        replies = as_policy(policy, max_new_tokens)
    loop = Loop(make, replies, methods, scorer, concurrency=concurrency, errors=errors)
    return loop.play_all(plan)


def maker(
    env: str | gym.Env[Any, str] | MakeEnv, env_args: Mapping[str, Any] | None = None, **settings: Any
) -> MakeEnv:
    """A function that makes an environment at each call.

    Args:
        env: an environment's id; an environment, which is copied; or a function that makes one.
        env_args: arguments of an environment given by its id.
        **settings: more arguments of `gym.make` for an id, such as `render_mode`.

    Raises:
        gymnasium.error.Error: there is no such environment.
        ValueError: it has no such argument, or a value has the wrong type.
    """
    if isinstance(env, str):
        # Checked once: the check takes five times as long as making an environment of Sokoban.
        arguments = dict(env_args or {})
        check_env_arguments(env, arguments)
        spec = find_spec(env)  # by its id, `gym.make` would compare it with every registered one
        return functools.partial(gym.make, spec, disable_env_checker=True, **settings, **arguments)
    if env_args:
        raise ValueError(f"env_args need an environment's id, got {shown(env_args)}; give them to gym.make")
    if isinstance(env, gym.Env):
        return lambda: copy.deepcopy(env)
    return env


def count_tasks(env: str, env_args: Mapping[str, Any]) -> int:
    """The number of tasks of an environment that a language model can play.

    Raises:
        ValueError: its observations are not texts, or it does not take an argument.
    """
    with contextlib.closing(maker(env, env_args)()) as opened:
        check_text_observations(opened)
        return int(text_env_of(opened).n_tasks)


def episode_rng(episode: Episode) -> np.random.Generator:
    """The generator of an episode's replies."""
    return np.random.default_rng([episode.group, episode.member])


class Loop:
    """Plays groups of episodes, any number of times, in environments that it keeps, for `collect`.

    Args:
        make_env: makes an environment.
        policy: replies.
        methods: reward methods.
        scorer: gives them log-probabilities.
        concurrency: episodes that are played at once.
        errors: what an error does.
        rng: gives each episode the generator of its replies.
        timer: counts the seconds of `"sampling"` and `"environment"` (scoring included).
        on_truncated: is given the turn that would have followed where a limit truncated an episode.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        policy: Policy,
        methods: Sequence[MethodSpec] = (),
        scorer: ScorerSpec = None,
        *,
        concurrency: int = 64,
        errors: Errors = "fail",
        rng: Callable[[Episode], np.random.Generator] = episode_rng,
        timer: Timer | None = None,
        on_truncated: Callable[[Request], None] | None = None,
    ) -> None:
        self.on_truncated = on_truncated
        self.make_env, self.policy = make_env, policy
        # of an endpoint, or of one that a policy of token ids samples from
        self._watch = getattr(policy, "watch", None) or getattr(getattr(policy, "model", None), "watch", None)
        self.methods = make_methods(methods) if methods else []
        self.scorer = make_scorer(scorer)
        self.concurrency, self.errors = concurrency, errors
        self.rng, self.timer = rng, timer or Timer()
        self._envs: dict[int, gym.Env[Any, str]] = {}  # by the identity of what is inside the wrappers
        self._free: list[gym.Env[Any, str]] = []
        self.continuing = Continuing(self.methods)
        self._open: list[Group] = []
        self._playing = 0
        self._checked = False

    def play(self, groups: Iterable[Group], progress: Progress | None = None) -> Iterator[Group]:
        """Fill the records of groups, and yield each group, with its credit, when its last episode has ended.

        Args:
            groups: the records. A record says what is played: its `seed`, and the `number` of the task where
                it has one (otherwise the seed draws the task). One that is over is not played again.
            progress: counts the episodes that have been played, and replies.
        """
        self._open, self._playing, n_replies = [], 0, 0
        self.continuing.reset()
        waiting = self._waiting(groups)
        requests = self._begin(waiting)
        open_requests = set[int]()  # a policy may still answer requests of a play that was interrupted
        while self._open or self.continuing.under_way:
            if self._playing:
                open_requests |= {id(request) for request in requests}
                with self.timer("sampling"):
                    replies = self.policy.replies(requests)
                    answers = [(request, reply) for request, reply in replies if id(request) in open_requests]
                open_requests -= {id(request) for request, _ in answers}
                # Not those that are played on from a state, in copies of environments.
                episodes = [request.episode for request, _ in answers if self._is_ours(request.env)]
                with self.timer("environment"):
                    requests = self._step(answers)
                n_replies += len(answers)
                if progress:
                    progress.add(sum(episode.over for episode in episodes), replies=n_replies)
            else:
                requests = []
            requests += self._begin(waiting)
            with self.timer("environment"):
                ended = self._ended()
            yield from ended

    def play_all(self, groups: Sequence[Group]) -> list[Episode]:
        """Fill the records of groups, close the environments, and return the records in their order."""
        with contextlib.closing(self):
            for _ in self.play(groups):
                pass
        return [episode for group in groups for episode in group]

    def close(self) -> None:
        """Close the environments, and warn of what the replies of an endpoint have shown."""
        for env in self._envs.values():
            env.close()
        self._envs, self._free = {}, []
        if self._watch:
            self._watch.end()

    def _make(self) -> gym.Env[Any, str]:
        env = self.make_env()
        if id(env.unwrapped) in self._envs:
            raise ValueError(
                "two of the environments are the same object; give a function that makes a new environment "
                "at each call, such as lambda: gym.make(…)"
            )
        self._envs[id(env.unwrapped)] = env
        return env

    def _is_ours(self, env: gym.Env[Any, str]) -> bool:
        """Whether the loop made an environment; a continuation is played in a copy of one."""
        return id(env.unwrapped) in self._envs

    def _discard(self, env: gym.Env[Any, str]) -> None:
        """Close an environment whose episode failed, and forget it."""
        del self._envs[id(env.unwrapped)]
        # The error that failed the episode is the one to report, not one that follows from it.
        with contextlib.suppress(Exception):
            env.close()

    def _waiting(self, groups: Iterable[Group]) -> Iterator[Episode]:
        """The episodes in their order; a group is open from its first one on."""
        for group in groups:
            self._open.append(group)
            yield from (episode for episode in group if not episode.over)

    def _begin(self, waiting: Iterator[Episode]) -> list[Request]:
        """Begin episodes while there is room; their first turns."""
        requests: list[Request] = []
        with self.timer("environment"):
            while self._playing < self.concurrency and (request := self.continuing.next()) is not None:
                requests.append(request)
                self._playing += 1
            while self._playing < self.concurrency and (episode := next(waiting, None)) is not None:
                env = self._free.pop() if self._free else self._make()
                with failing(episode, self.errors):
                    request = begin(env, episode, self.rng(episode))
                    self.continuing.save(request)
                    requests.append(request)
                    self._playing += 1
                if episode.error:
                    self._discard(env)
                elif not self._checked:  # once, since the keys of an info never change in an environment
                    check_text_info(env, requests[-1].info)
                    check_methods(self.methods, self.scorer, requests[-1].info, plays_on=True)
                    self._checked = True
        return requests

    def _step(self, answers: Sequence[AnsweredRequest]) -> list[Request]:
        """Play replies, with what environments can do together done first; the turns that follow."""
        replies = [
            (request.env.unwrapped, reply.text) for request, reply in answers if isinstance(reply, Reply)
        ]
        prepare_together(replies)
        following: list[Request] = []
        for request, reply in answers:
            after = None
            with failing(request.episode, self.errors):
                after = step(request, reply, self.on_truncated)
                if after:
                    self.continuing.save(after)
            if after and not after.episode.over:  # its state may have failed to be copied
                following.append(after)
                continue
            self._playing -= 1
            if self._watch:
                self._watch.see_episode(request.episode)
            if not self._is_ours(request.env):
                continue
            if request.episode.end == "failed":  # an environment that raised is not used again
                self._discard(request.env)
            else:
                self._free.append(request.env)
        return following

    def _ended(self) -> list[Group]:
        """The groups that have just ended, with their credit."""
        ended = [group for group in self._open if all(episode.over for episode in group)]
        if ended:
            self._open = [group for group in self._open if not all(episode.over for episode in group)]
        if ended := self.continuing.value(ended):
            if self.methods:  # one call of the scorer for all that have just ended
                episodes = [episode for group in ended for episode in group]
                assign_credit(episodes, self.methods, self.scorer, self.errors)
        return ended


def begin(env: gym.Env[Any, str], episode: Episode, rng: np.random.Generator | None = None) -> Request:
    """Begin an episode in an environment; its first turn.

    Args:
        env: plays the episode.
        episode: the record to fill, with the `seed` and perhaps the `number` of its task.
        rng: generator of the replies; by default the episode's own.
    """
    seed = None if episode.seed < 0 else episode.seed
    observation, info = env.reset(seed=seed, options=task_options(episode.number))
    turn = episode.begin(env, observation, info)
    return Request(env, episode, turn, episode_rng(episode) if rng is None else rng, first=True)


def step(
    request: Request, reply: Reply | Exception, on_truncated: Callable[[Request], None] | None = None
) -> Request | None:
    """Play a reply and record the turn; the turn that follows, None where the episode has ended.

    `on_truncated` is that of `Loop`.

    Raises:
        Exception: what the policy or the environment raised; the record keeps the reply that could not be
            played.
    """
    if isinstance(reply, Exception):
        raise reply
    episode, turn = request.episode, request.turn
    try:
        result = request.env.step(reply.text)
    except Exception:
        info = {**turn.before, "feedback": "", "rewards": dict.fromkeys(turn.before["rewards"], 0.0)}
        episode.add(replace(turn, reply=reply, info=info))
        raise
    following = Request(request.env, episode, episode.play(turn, reply, result), request.rng)
    if episode.end == "truncated" and on_truncated is not None:
        on_truncated(following)
    return None if episode.over else following


@contextlib.contextmanager
def failing(episode: Episode, errors: Errors = "fail") -> Iterator[None]:
    """An error inside a `with` fails the episode, where errors are not raised."""
    try:
        yield
    except Exception as error:
        if errors == "raise":
            raise
        episode.fail(error_line(error))
