"""Reward methods on one text environment, and on many that are stepped together."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

import memenvs
from memenvs.core.checks import Range, check_whole, is_whole
from memenvs.core.env import Info, TextEnv, end_of
from memenvs.core.state import State, check_keys, from_plain, to_plain
from memenvs.core.vector import Mask, Step, TextVectorEnv, read_mask
from memenvs.envs.render import earned_lines
from memenvs.rollout.records import Episode
from memenvs.wrappers.episode_rewards import METHOD_FIELDS, EpisodeRewards, Groups, MethodStack, Scores, Slot
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.registry import MethodSpec, ScorerSpec, make_methods, plain_method, plain_scorer
from memenvs.wrappers.scorers import Scorer


class _HasMethods:
    """The properties that both wrappers have of their methods."""

    _stack: MethodStack

    @property
    def methods(self) -> list[Any]:
        """The methods."""
        return self._stack.methods

    @property
    def scorer(self) -> Scorer | None:
        """The scorer that they ask."""
        return self._stack.scorer

    @property
    def replaces_outcome(self) -> bool:
        """Whether a method replaces the outcome; R^O is then the last turn's reward."""
        return self._stack.replaces_outcome


class RewardWrapper(_HasMethods, gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Add the components of reward methods to a text environment.

    Reward:
        The environment's, and of each method a component of its name. What a method knows at its turn is paid
        there; what it knows only in hindsight is paid at the last turn. At the last turn
        `info["turn_rewards"]` says what each turn was worth; the two sums are equal. A method that replaces
        the outcome sets that component to 0; `info["metrics"]["outcome"]` keeps it. A component whose method
        could not score is NaN; the reward leaves it out.

    Info:
        As the environment's, with `signals` (each method's raw number at this turn), `credits` (each method's
        `Credit`s; empty until the end) and, in `metrics`, `outcome` and for each method `NAME_unscored` (its
        credits without a number).

    Alone, a method that compares the rollouts of a task falls back to statistics of earlier episodes (its
    docstring says which); they are part of the state. `VectorRewardWrapper` compares real groups.

    Args:
        env: a text environment, wrapped or not.
        methods: see `memenvs.wrappers.registry.make_methods`; any order.
        scorer: see `memenvs.wrappers.registry.make_scorer`; a spec can be rebuilt only with a name.
        template: what the scorer's model is shown, `{prompt}` its place: its chat template, written out. The
            prompt as it is by default.

    Raises:
        ValueError: no or unknown methods, two of one name, no such scorer, a template without `{prompt}`; and
            at `reset`, an environment that does not give what a method needs.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        methods: Sequence[MethodSpec],
        scorer: ScorerSpec = None,
        template: str | None = None,
    ) -> None:
        self._stack = MethodStack(methods, scorer, template)
        RecordConstructorArgs.__init__(
            self,
            methods=[plain_method(method) for method in self.methods],
            scorer=plain_scorer(scorer),
            template=template,
        )
        gym.Wrapper.__init__(self, env)
        self._episode: EpisodeRewards | None = None

    @property
    def record(self) -> Episode:
        """The episode that is being played or has just ended."""
        record = self._stack.record(self._current)
        record.env = self.spec.id if self.spec else type(self.unwrapped).__name__
        record.seed = -1  # of the reset: not kept
        return record

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; what methods remember of earlier ones is kept."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode = EpisodeRewards.begin(self._stack, observation, info)
        return observation, self._episode.info

    def step(self, action: str) -> tuple[Any, float, bool, bool, Info]:
        """Play a reply; the reward is the environment's with what the methods pay at this turn."""
        stack, episode = self._stack, self._current
        episode.check_paid()
        observation, reward, terminated, truncated, info = self.env.step(action)
        episode.add_turn(action, observation, info, end_of(terminated, truncated))
        (scores,) = stack.score(stack.requests([episode.last_turn]))
        reward = episode.pay(stack, float(reward), scores)
        if episode.over:
            for method in self.methods:
                (credits,) = stack.assign_credit(method, [episode])
                reward += episode.settle(method.name, credits)
        return observation, reward, terminated, truncated, episode.info

    def render(self) -> Any:
        """What the environment renders; of a text, the reward is this wrapper's, with signals and credits.

        Signals are those of the last turn, credits those of it that are known; at the end every turn's are.
        """
        episode, inner = self._episode, self.unwrapped
        if episode is None or not episode.actions or episode.unpaid:
            return self.env.render()
        info = episode.info
        own = earned_lines(info["rewards"], info["signals"], info["credits"], info["turn_rewards"])
        with inner.drawn_with(own) if isinstance(inner, TextEnv) else contextlib.nullcontext(own) as earned:
            drawn = self.env.render()
        said = "\n".join(earned)
        return drawn if not isinstance(drawn, str) or said in drawn else f"{drawn}\n{said}"

    def get_state(self) -> State:
        """The state of the environment, of this episode's rewards, and the methods with what they remember.

        Plain data that JSON gives back equal.

        Raises:
            TypeError: an observation, an info or a method holds something else; see
                `memenvs.core.state.to_plain`.
        """
        return {
            "inner": memenvs.get_state(self.env),
            "record": to_plain(self._current),
            **self._stack.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Go on from a state of a wrapper with the same methods and settings.

        Raises:
            ValueError: it is of another environment or of other methods, or no episode can be so; nothing has
                changed then.
        """
        check_keys(state, "inner", "record")
        with self._stack.restored(state):
            episode = from_plain(state["record"], EpisodeRewards, "the state's record")
            episode.check(self._stack, state["inner"])
            memenvs.set_state(self.env, state["inner"])
        self._episode = episode

    @property
    def _current(self) -> EpisodeRewards:
        if self._episode is None:
            raise gym.error.ResetNeeded("no episode yet; call reset() first")
        return self._episode


class VectorRewardWrapper(_HasMethods, VectorWrapper[Any, Any, Any, Any, Any]):
    """Add the components of reward methods to text environments that are stepped together.

    Reward and Info:
        As of `RewardWrapper`, for each environment; `infos_list` holds the infos one by one. All requests of
        a step, over all environments and methods, are one call of the scorer; equal requests are scored once.
        The environment inside goes on giving its own rewards and infos; once wrapped, step it by the wrapper.

    Group:
        Environments 0 to G - 1 are a group, G to 2G - 1 the next, and so on; they play one task.
        `reset(seed=s)` gives the environments of a group one seed (s, s + 1, … for the groups). An episode
        that begins without a seed has one of its group and its number, so that the n-th episodes of a group
        play one task whenever they begin. A method that compares rollouts assigns credit when the last of
        them has ended, and `completed_groups` holds the episodes of the groups that the last step completed.

        An episode that ended before its group shows at its end what is known by then. What its group
        brings is paid, with the then final `turn_rewards` and `credits` in its info, at the step that
        completes the group, if `autoreset_mode` is `"Disabled"`; a mode that has begun another episode by
        then leaves it to `completed_groups`.

    Errors:
        With the `TextVectorEnv`'s `errors="truncate"` a scorer that raises ends no more than it must: the
        requests are scored again environment by environment, and where that fails too the episode ends (as
        truncated, unless the step ended it) with the error in its info. Of an episode that an error ended
        the credits are NaN with the error as their reason, but for those paid at earlier turns; credit is
        assigned to its group without it when the others have ended, with its signals NaN.

    With `group_size=1` a method that compares rollouts falls back to statistics of earlier episodes, of all
    environments. One wrapper takes any number of methods; a second one around it is refused.

    Args:
        env: a `TextVectorEnv`, wrapped or not.
        methods: see `memenvs.wrappers.registry.make_methods`; any order.
        scorer: see `memenvs.wrappers.registry.make_scorer`.
        group_size: G, a divisor of the number of environments.
        template: see `RewardWrapper`.

    Raises:
        TypeError: `env` is no `TextVectorEnv`.
        ValueError: see `RewardWrapper`; or `group_size` is no divisor.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        methods: Sequence[MethodSpec],
        scorer: ScorerSpec = None,
        group_size: int = 1,
        template: str | None = None,
    ) -> None:
        inner = env.unwrapped
        if not isinstance(inner, TextVectorEnv):
            raise TypeError(f"env must be a memenvs.core.vector.TextVectorEnv, got {type(inner).__name__}")
        between: Any = env
        while between is not inner:
            if isinstance(between, VectorRewardWrapper):
                raise ValueError("there is a VectorRewardWrapper inside; give one wrapper all the methods")
            between = between.env
        super().__init__(env)
        self.completed_groups: list[list[Episode]] = []
        self.infos_list: list[Info] = [{}] * inner.num_envs
        self._stack = MethodStack(methods, scorer, template)
        self._groups = Groups(inner.num_envs, group_size)
        self._venv = inner
        self._base_seed = int(np.random.default_rng().integers(2**63))  # of the seeds nobody gives

    @property
    def group_size(self) -> int:
        """G."""
        return self._groups.size

    @property
    def records(self) -> list[Episode]:
        """The episode that each environment is playing or has just ended."""
        return [self.record(i) for i in range(self.num_envs)]

    def record(self, i: int) -> Episode:
        """Environment i's episode; the others may not have begun any."""
        return self._stack.record(self._groups.current(i))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Start episodes; see `TextVectorEnv.reset`, and the class for seeds."""
        self.completed_groups = []
        chosen = read_mask("reset_mask", (options or {}).get("reset_mask"), self.num_envs)
        size = self.group_size
        for first in range(0, self.num_envs, size):
            if chosen[first : first + size].all():
                self._groups.forget(first, restart=seed is not None)
        if seed is None:
            seed = self._seeds()
        elif size > 1 and is_whole(seed):
            self._base_seed = int(np.asarray(seed))
            seed = [self._base_seed + i // size for i in range(self.num_envs)]
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        begun = np.flatnonzero(chosen).tolist()
        for i in begun:
            self._begin(i, observations[i])
        own_infos = self._venv.batch_infos({i: self.infos_list[i] for i in begun})
        return observations, {**infos, **own_infos}

    def step(self, actions: Sequence[str], mask: Mask | None = None) -> Step:
        """Play one reply in each environment; see `TextVectorEnv.step`."""
        self.completed_groups = []
        venv = self._venv
        plays = read_mask("mask", mask, self.num_envs)
        begins = plays & venv.over  # by autoreset; in mode "Disabled" the environment refuses the step
        playing = np.flatnonzero(plays & ~begins).tolist()
        for i in playing:
            self._check_in_step(i)
        if venv.autoreset_mode is not AutoresetMode.DISABLED:
            venv.seed_autoreset(self._seeds(ended=self._same_step))
        # Wrappers of Gymnasium's between the two know nothing of masks.
        stepped: Step = self.env.step(actions, *(() if mask is None else (mask,)))
        observations, rewards, terminated, truncated, infos = stepped
        rewards, truncated = rewards.copy(), truncated.copy()  # those of a wrapper between stay as they are
        for i in np.flatnonzero(begins).tolist():
            self._begin(i, observations[i])
        finals = dict(venv.finals)
        episodes = {i: self._groups.current(i) for i in playing}
        for i, episode in episodes.items():
            if not episode.actions:
                self._groups.check_task(i)
            observation, info = finals.get(i, (observations[i], venv.infos_list[i]))
            episode.add_turn(actions[i], observation, info, end_of(terminated[i], truncated[i]))
            if error := self._error_of(info):
                episode.fail(error)
        late = self._pay(episodes, rewards)
        for i in (*playing, *late):
            self.infos_list[i] = self._groups.current(i).info
        failed = [i for i in playing if episodes[i].error and not (terminated[i] or truncated[i])]
        for i in failed:
            venv.truncate(i, episodes[i].error)
            truncated[i] = True
        if self._same_step and failed:
            finals |= {i: (observations[i], self.infos_list[i]) for i in failed}
            again = {"reset_mask": np.isin(np.arange(self.num_envs), failed)}
            observations, _ = self.env.reset(seed=self._seeds(), options=again)  # type: ignore[arg-type]
        ended = {i: (observation, self.infos_list[i]) for i, (observation, _) in finals.items()}
        for i in ended:
            self._begin(i, observations[i])
        shown = {i: self.infos_list[i] for i in {*np.flatnonzero(plays).tolist(), *late, *ended}}
        if not late and not ended:  # the rest is in `infos` already
            shown = {
                i: {name: info[name] for name in METHOD_FIELDS if name in info} for i, info in shown.items()
            }
        return observations, rewards, terminated, truncated, {**infos, **venv.batch_infos(shown, ended)}

    def get_states(self) -> list[State]:
        """The state of every environment, its current episode and those that wait, and the methods' memories.

        See `RewardWrapper.get_state`.
        """
        inner: Any = self.env
        shared = {"group_size": self.group_size, "base_seed": self._base_seed, **self._stack.get_state()}
        return [
            {"inner": state, "slot": to_plain(slot), **shared}
            for state, slot in zip(inner.get_states(), self._groups.slots, strict=True)
        ]

    def set_states(self, states: Sequence[State], observations: Sequence[Any]) -> None:
        """Go on from states, with the observations that were shown in them.

        What the methods remember, and the seeds of episodes that begin by themselves, are the first state's.

        Raises:
            ValueError: see `RewardWrapper.set_state` and `TextVectorEnv.set_states`; or the groups were of
                another size.
        """
        inner: Any = self.env
        if len(states) != self.num_envs:
            raise ValueError(f"states must have {self.num_envs} entries, got {len(states)}")
        slots = [self._slot(state) for state in states]
        with self._stack.restored(states[0]):
            inner.set_states([state["inner"] for state in states], observations)
        self._groups.slots = slots
        self.infos_list = [slot.episodes[-1].info if slot.episodes else {} for slot in slots]
        self._base_seed = states[0]["base_seed"]
        self.completed_groups = []

    @property
    def _same_step(self) -> bool:
        return self._venv.autoreset_mode is AutoresetMode.SAME_STEP

    def _seeds(self, ended: bool = False) -> list[int | None]:
        """The seeds of the episodes that begin next, where nobody gives one; none in groups of one.

        Args:
            ended: the episodes at hand count as ended.
        """
        if self.group_size == 1:
            return [None] * self.num_envs
        seeds: list[int | None] = []
        for i, slot in enumerate(self._groups.slots):
            number = slot.number + 1 if ended else slot.next_number
            place = [self._base_seed, i // self.group_size, number]
            seeds.append(int(np.random.SeedSequence(place).generate_state(1)[0]))
        return seeds

    def _error_of(self, info: Info) -> str:
        return str(info["error"]) if self._venv.errors == "truncate" else ""

    def _check_in_step(self, i: int) -> None:
        """Refuse environment i if it was reset or stepped without this wrapper, or a step interrupted."""
        episode = self._groups.current(i)
        episode.check_paid(f"environment {i}")
        ours, theirs = episode.infos[-1], self._venv.infos_list[i]
        if any(ours[name] != theirs[name] for name in ("task", "turn")):
            raise ValueError(
                f"environment {i} is at turn {theirs['turn']} of task {theirs['task']!r}, this wrapper at "
                f"turn {ours['turn']} of {ours['task']!r}; reset it by the wrapper, then step that alone"
            )

    def _begin(self, i: int, observation: Any) -> None:
        """Environment i has begun an episode, or failed to."""
        info = self._venv.infos_list[i]
        episode = EpisodeRewards.begin(self._stack, observation, info, self._error_of(info))
        self._groups.slots[i].begin(episode)
        if episode.over:
            self._assign_credit({i: episode}, np.zeros(self.num_envs), pays_late=False)
        self.infos_list[i] = episode.info

    def _pay(self, episodes: dict[int, EpisodeRewards], rewards: NDArray[np.float64]) -> list[int]:
        """Add to `rewards` what the last turns bring; which environments are paid that did not play."""
        stack = self._stack
        living = {i: episode for i, episode in episodes.items() if not episode.error}
        requests = stack.requests([episode.last_turn for episode in living.values()])
        score = stack.score_apart if self._venv.errors == "truncate" else stack.score
        scores: dict[int, Scores] = {}
        for i, made in zip(living, score(requests), strict=True):
            if isinstance(made, str):
                episodes[i].fail(made)
            else:
                scores[i] = made
        for i, episode in episodes.items():
            rewards[i] = episode.pay(stack, float(rewards[i]), scores.get(i, {}))
        ended = {i: episode for i, episode in episodes.items() if episode.over}
        pays_late = self._venv.autoreset_mode is AutoresetMode.DISABLED
        return self._assign_credit(ended, rewards, pays_late=pays_late)

    def _assign_credit(
        self, ended: dict[int, EpisodeRewards], rewards: NDArray[np.float64], *, pays_late: bool
    ) -> list[int]:
        """Settle the episodes that ended, and the groups they complete.

        Args:
            ended: by environment.
            rewards: (N,) of the step; what is settled is added.
            pays_late: also what a group brings an episode that had ended before.

        Returns:
            The environments that are paid late.
        """
        self._settle([method for method in self.methods if not method.group], ended, rewards, set(ended))
        late: list[int] = []
        for i in ended:
            group = self._groups.complete(i)
            for j, episode in group.items():
                if ended.get(j) is not episode:  # it ended in an earlier step, whose rewards are given out
                    episode.rewards = dict.fromkeys(episode.rewards, 0.0)
                    if pays_late and self._groups.current(j) is episode:
                        late.append(j)
            if group:
                paid = {j for j in group if ended.get(j) is group[j] or j in late}
                self._settle([method for method in self.methods if method.group], group, rewards, paid)
                self.completed_groups.append([self._stack.record(episode) for episode in group.values()])
        return late

    def _settle(
        self,
        methods: Sequence[RewardMethod],
        episodes: dict[int, EpisodeRewards],
        rewards: NDArray[np.float64],
        paid: set[int],
    ) -> None:
        """Assign the methods' credit to episodes; the rewards of the environments in `paid` take it."""
        for method in methods:
            credits = self._stack.assign_credit(method, list(episodes.values()))
            for (i, episode), own in zip(episodes.items(), credits, strict=True):
                total = episode.settle(method.name, own)
                if i in paid:
                    rewards[i] += total

    def _slot(self, state: State) -> Slot:
        """The slot of a state, which is checked for what all environments share."""
        check_keys(state, "inner", "slot", "group_size", "base_seed")
        check_keys(state["inner"], "inner")
        self._stack.check_state(state)
        if state["group_size"] != self.group_size:
            raise ValueError(
                f"this state is of groups of {state['group_size']!r:.80}, not of {self.group_size}; "
                "make the wrapper with that group_size"
            )
        check_whole(Range(0), **{"the state's base_seed": state["base_seed"]})
        slot = from_plain(state["slot"], Slot, "the state's slot")
        slot.check(self._stack, state["inner"]["inner"])
        return slot


class _Scored(RewardWrapper):
    """One method that asks a scorer: `TAMTRL(env, scorer)` is `RewardWrapper(env, ["TAMTRL"], scorer)`."""

    method: str

    def __init__(
        self, env: gym.Env[Any, Any], scorer: ScorerSpec, template: str | None = None, **settings: Any
    ) -> None:
        made = make_methods([[self.method, settings]])
        RecordConstructorArgs.__init__(
            self, scorer=plain_scorer(scorer), template=template, **plain_method(made[0])[1]
        )
        super().__init__(env, made, scorer, template)


class _Unscored(RewardWrapper):
    """One method that needs no scorer."""

    method: str

    def __init__(self, env: gym.Env[Any, Any], **settings: Any) -> None:
        made = make_methods([[self.method, settings]])
        RecordConstructorArgs.__init__(self, **plain_method(made[0])[1])
        super().__init__(env, made)


class TAMTRL(_Scored):
    """Give each turn the outcome times a teacher's score of its memory; settings of `TAMTRLMethod`."""

    method = "TAMTRL"


class InfoMem(_Scored):
    """Reward the final memory's information about the answer; settings of `InfoMemMethod`."""

    method = "InfoMem"


class MemPO(_Scored):
    """Give the tokens of each memory an advantage of their own; settings of `MemPOMethod`."""

    method = "MemPO"


class SearchRewards(_Unscored):
    """Reward what each turn of a search did; settings of `SearchRewardsMethod`."""

    method = "SearchRewards"


class SearchR1(_Unscored):
    """Pay Search-R1's merged reward at the end of a search; settings of `SearchR1Method`."""

    method = "SearchR1"


class ToolRewards(_Unscored):
    """Reward a tool call and the answer; settings of `ToolRewardsMethod`."""

    method = "ToolRewards"


class GiGPO(_Unscored):
    """Compare actions that were taken in equal states; settings of `GiGPOMethod`."""

    method = "GiGPO"


class IGPO(_Scored):
    """Reward each turn's gain of information about the answer; settings of `IGPOMethod`."""

    method = "IGPO"


class ReMemR1(_Unscored):
    """Reward what each memory adds to the recall of the answer's words; settings of `ReMemR1Method`."""

    method = "ReMemR1"


class StepSearch(_Unscored):
    """Reward what each search adds to the evidence found; settings of `StepSearchMethod`."""

    method = "StepSearch"


class OTC(_Unscored):
    """Multiply the outcome by how few calls of a tool it took; settings of `OTCMethod`."""

    method = "OTC"


class QuestionCredit(_Unscored):
    """Credit each answer for its own question; settings of `QuestionCreditMethod`."""

    method = "QuestionCredit"


class Judge(_Unscored):
    """Reward by a judge model's scores; settings of `JudgeMethod`."""

    method = "Judge"


class PRM(_Unscored):
    """Reward by a process reward model's probabilities; settings of `PRMMethod`."""

    method = "PRM"


class FormatGate(_Unscored):
    """Pay the outcome where an episode is in form; settings of `FormatGateMethod`."""

    method = "FormatGate"


class MovieRecall(_Unscored):
    """Pay the recall of recommended movies (MemoryAgentBench's ReDial); settings of `MovieRecallMethod`."""

    method = "MovieRecall"
