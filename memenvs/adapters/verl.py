"""verl: an agent loop that plays episodes, and advantage estimators over the rewards of their turns.

    algorithm.adv_estimator=memenvs_mt_grpo

with VERL_USE_EXTERNAL_MODULES=memenvs.adapters.verl in every process.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from memenvs.adapters.common import open_env, plain
from memenvs.core.optional import check_version, require
from memenvs.credit import Ended, igpo, mt_grpo, normalize_turns, place_rewards
from memenvs.models import Reply
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.rollout.records import Episode, Sample
from memenvs.rollout.session import NO_REPLY, Session
from memenvs.wrappers.registry import MethodSpec, ScorerSpec

check_version("verl", "0.9.1", "0.9.2", "verl")
agent_loop: Any = require("verl.experimental.agent_loop.agent_loop", "verl")
core_algos: Any = require("verl.trainer.ppo.core_algos", "verl")
torch: Any = require("torch", "verl")

Rows = list[NDArray[np.float64]]
Credit = Callable[[Rows, list[Hashable]], Sequence[Any]]
C = TypeVar("C", bound=Credit)


@agent_loop.register("memenvs")
class EpisodeLoop(agent_loop.AgentLoopBase):
    """Plays an episode of any text environment for verl's V1 trainer.

    An environment whose prompts grow gives one row, one that rewrites them a list, a row a turn. The reward
    of a turn lies on the last token that it sampled. `prompt_length` is the limit of a fresh prompt and
    `response_length` the limit of everything after it in a row; where they leave no room the reply is empty.
    A row names its task by `extra_info["seed"]`, so that the rollouts of one prompt are a group. The chat
    template has the arguments `data.apply_chat_template_kwargs`, as in verl's own loops.

    Args:
        *args: verl's.
        env: the environment's id.
        settings: its arguments.
        methods: reward methods around it. Each rollout has an environment of its own, so a method that
            compares the rollouts of a task (`RewardMethod.group`) sees one episode; a warning names it.
        scorer: theirs.
        **kwargs: verl's.
    """

    def __init__(
        self,
        *args: Any,
        env: str,
        settings: Mapping[str, Any] | None = None,
        methods: Sequence[MethodSpec] = (),
        scorer: ScorerSpec = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._make = partial(open_env, env, settings, methods, scorer)
        self._tokens = ChatTokens(self.tokenizer, chat_args=plain(self.apply_chat_template_kwargs))

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """Play the episode of a row, which names a seed; one `TurnOutput`, or a list of them."""
        seed = (row.get("extra_info") or {}).get("seed")
        if seed is None:
            raise ValueError('the dataset needs extra_info={"seed": …}, or a group plays different tasks')
        env = await asyncio.to_thread(self._make)
        warn_alone(tuple(method.name for method in getattr(env, "methods", ()) if method.group))
        timer = require("verl.utils.profiler", "verl").simple_timer
        encoder: Any = ChatPolicy(self._tokens)
        session = Session(encoder, Episode(group=int(seed), seed=int(seed)))
        request, start = uuid4().hex, 0
        sampled: list[Any] = []
        seconds: dict[str, float] = {}
        session.begin(*await asyncio.to_thread(env.reset, seed=int(seed)))
        while not session.over:
            prompt = session.prompt
            if session.fresh:
                start = len(prompt)
            room = self.rollout_config.response_length - (len(prompt) - start)
            reply = NO_REPLY
            if room > 0 and start <= self.rollout_config.prompt_length:
                with timer("generate_sequences", seconds):
                    output = await self.server_manager.generate(
                        request_id=request,
                        prompt_ids=prompt.tolist(),
                        sampling_params={**sampling_params, "max_tokens": room},
                    )
                sampled.append(output)
                reply = self._reply(output, room)
            with timer("tool_calls", seconds):
                await asyncio.to_thread(session.step, env, reply)
        session.finish(session.info)
        rows = rows_of(session.episode, sampled, seconds, min(self._tokens.ends))
        return rows[0] if session.info["context"] == "append" and len(rows) == 1 else rows

    def _reply(self, output: Any, room: int) -> Reply:
        ids = np.array(output.token_ids[:room], dtype=np.int64)
        if not len(ids):
            return NO_REPLY
        logprobs = np.array((output.log_probs or [0.0] * room)[: len(ids)], dtype=np.float64)
        return Reply(self._tokens.reply_text(ids), ids, logprobs, int(ids[-1]) in self._tokens.ends)


@cache  # once a process, whatever resets Python's own record of warnings
def warn_alone(methods: tuple[str, ...]) -> None:
    """Warn that these methods, which compare the rollouts of a task, see one rollout each time."""
    if methods:
        warnings.warn(
            "verl plays each rollout in an environment of its own, so these methods cannot compare the "
            f"rollouts of a task and use the statistics of a single episode instead: {', '.join(methods)} "
            "(docs/trainers.md, under Groups, says what each then pays)",
            stacklevel=2,
        )


def estimator(name: str) -> Callable[[C], C]:
    """Register credit of turns as verl's advantage estimator `name`."""

    def register(credit: C) -> C:
        def advantages(token_level_rewards: Any, response_mask: Any, index: Any = None, **rest: Any) -> Any:
            return by_run(token_level_rewards, response_mask, index, credit)

        core_algos.register_adv_est(name)(advantages)
        return credit

    return register


@estimator("memenvs_mt_grpo")
def mt_grpo_by_run(turns: Rows, groups: list[Hashable], ended: Ended = "zero") -> Sequence[Any]:
    """MT-GRPO (`mt_grpo`: MT-PPO eq. 12, alpha 1) for rows that are whole episodes.

    What the last turn earns is the outcome. An episode that has ended counts as 0 at turns that others still
    play; `memenvs_mt_grpo_skip` leaves it out of those.
    """
    return mt_grpo(turns, [float(rewards[-1]) for rewards in turns], groups=groups, ended=ended)


estimator("memenvs_mt_grpo_skip")(partial(mt_grpo_by_run, ended="skip"))


@estimator("memenvs_turns")
def turns_of_a_task(turns: Rows, groups: list[Hashable]) -> Sequence[Any]:
    """The reward of each turn, normalised over all turns of its task (TAMTRL eq. 7); rows may be turns."""
    return normalize_turns(turns, tasks=groups)


@estimator("memenvs_igpo")
def igpo_by_run(turns: Rows, groups: list[Hashable]) -> Sequence[Any]:
    """IGPO (`igpo`: gamma 1, normalised apart) for rows that are whole episodes, under the method `IGPO`.

    What the last turn earns is the outcome, what the others earn is their gain. A gain that could not be
    measured was paid 0, and is compared as 0.
    """
    return igpo(turns, [float(rewards[-1]) for rewards in turns], groups=groups)


@estimator("memenvs_as_paid")
def as_paid(turns: Rows, groups: list[Hashable]) -> Sequence[Any]:
    """The reward of each turn as it is: for credit that is already final."""
    return turns


def by_run(rewards: Any, mask: Any, index: Any, credit: Credit) -> tuple[Any, Any]:
    """Advantages (B, T) and, the same, returns: each token gets what `credit` gives its turn.

    Turn k of a row is the k-th run of ones in its mask. Rows without one, such as those verl pads with,
    belong to no group.

    Args:
        rewards: (B, T).
        mask: (B, T), 1 where the policy sampled.
        index: (B,) the task of each row.
        credit: from the turn rewards of rows and their tasks to advantages, one for each turn.
    """
    ones = mask.cpu().numpy().astype(bool)
    starts = ones & ~np.pad(ones, ((0, 0), (1, 0)))[:, :-1]
    runs = np.where(ones, starts.cumsum(1) - 1, -1)
    live = np.flatnonzero(ones.any(1)).tolist()
    paid = rewards.detach().cpu().numpy().astype(np.float64)
    turns: Rows = [np.bincount(runs[i][ones[i]], paid[i][ones[i]]).astype(np.float64) for i in live]
    names: list[Hashable] = [0 if index is None else index[i] for i in live]
    advantages = np.zeros(ones.shape)
    for i, values in zip(live, credit(turns, names), strict=True):
        advantages[i][ones[i]] = np.asarray(values)[runs[i][ones[i]]]
    tensor = rewards.new_tensor(advantages)
    return tensor, tensor.clone()


class TurnOutput(agent_loop.AgentLoopOutput):
    """A row of verl's whose response tokens have rewards of their own, (T,)."""

    token_scores: list[float]

    def as_dict(self) -> dict[str, Any]:
        """As verl's, with `rm_scores` (T,): a reward for each token in place of one score at the last."""
        fields: dict[str, Any] = super().as_dict()
        fields["rm_scores"] = torch.tensor(fields.pop("token_scores"), dtype=torch.float32)
        return fields


def rows_of(
    episode: Episode, sampled: Sequence[Any], seconds: Mapping[str, float], end: int
) -> list[TurnOutput]:
    """The rows of an episode; one that sampled nothing has a row that trains nothing, as verl needs a row.

    Args:
        episode: played to its end.
        sampled: the server's answers.
        seconds: that they and the environment took, by verl's names.
        end: a token to fill that row with.
    """
    # The first and the last version that sampled the episode, as verl names them
    weights: dict[str, Any] = {}
    for name, choose in (("min_global_steps", min), ("max_global_steps", max)):
        versions = [output.extra_fields.get(name) for output in sampled]
        if known := [version for version in versions if version is not None]:
            weights[name] = choose(known)
    has_logprobs = bool(sampled and sampled[-1].log_probs)
    samples, scores = episode.samples, [np.zeros(0)]
    if samples:
        paid = place_rewards(episode.turn_rewards, episode.turn_ends, episode.tokens)
        scores = episode.split(paid)
    else:
        samples = [Sample.prompt(np.array([end])).then(np.array([end]))]
    metrics = {**episode.metrics, "return": float(sum(episode.turn_rewards))}
    rows = []
    for sample, own in zip(samples, scores, strict=True):
        mask = sample.response_mask
        start = int(mask.argmax()) if mask.any() else 1
        token_scores = np.zeros(len(sample.ids))
        token_scores[mask] = own
        row = TurnOutput(
            prompt_ids=sample.ids[:start].tolist(),
            response_ids=sample.ids[start:].tolist(),
            response_mask=mask[start:].astype(int).tolist(),
            response_logprobs=sample.logprobs[start:].tolist() if has_logprobs else None,
            token_scores=token_scores[start:].tolist(),
            reward_score=metrics["return"],  # set, so that verl calls no reward model
            num_turns=2 * len(episode.replies),
            metrics=dict(seconds),
            extra_fields={**weights, "reward_extra_info": metrics},
        )
        rows.append(row)
    return rows
