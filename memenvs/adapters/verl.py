"""verl: an agent loop that plays the rollouts of a prompt as one group, and writes the credit of every token.

    algorithm.adv_estimator=memenvs_as_paid

with VERL_USE_EXTERNAL_MODULES=memenvs.adapters.verl in every process.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import uuid4

import numpy as np

from memenvs.adapters.common import open_env, plain, read_draw
from memenvs.adapters.servers import Sampled, server_policy
from memenvs.baselines.advantages import record_advantages
from memenvs.core.asynchronous import in_thread
from memenvs.core.episode import Episode, Floats, Sample, valid
from memenvs.core.episode_file import EpisodeWriter
from memenvs.core.optional import check_version, require
from memenvs.credit import all_equal, place_rewards
from memenvs.credit.tokens import Placement
from memenvs.models import Ids
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.models.settings import ChatSettings
from memenvs.rollout.collect import Loop
from memenvs.wrappers.registry import MethodSpec, ScorerSpec, make_scorer
from memenvs.wrappers.scorers import ScoreRequest, TokenScores
from memenvs.wrappers.scorers.protocol import PairScorer, TokenPair

check_version("verl", "0.9.1", "0.9.2", "verl")
agent_loop: Any = require("verl.experimental.agent_loop.agent_loop", "verl")
core_algos: Any = require("verl.trainer.ppo.core_algos", "verl")
llm_server: Any = require("verl.workers.rollout.llm_server", "verl")
torch: Any = require("torch", "verl")

AS_PAID = "memenvs_as_paid"
"""The estimator by which verl takes advantages as they are."""
BY_ROW = "memenvs_as_paid_by_row"
"""The same where `actor.loss_agg_mode` is a mean over rows."""


@dataclass
class Meeting:
    """The rollouts of a prompt: how many have come and, once all have, the rows of each."""

    members: int = 0
    played: asyncio.Future[list[list[TurnOutput]]] | None = None


OPEN: dict[str, Meeting] = {}
"""The prompts whose rollouts are coming in."""


class EpisodeLoop(agent_loop.AgentLoopBase):
    """Plays the n rollouts of a prompt as one group of any text environment, for verl's V1 trainer.

    verl runs the rollouts of a prompt in one worker. They meet there, and play the task of the row's
    `extra_info` (`task`, its number; `seed`; or both) side by side. When the last one has ended, the reward
    methods compare the group, as in our own learners, and each rollout returns its rows: one in an
    environment whose prompts grow, one per turn where every prompt is fresh.

    With `comparison`, a row has the advantage of each sampled token where verl has its reward, for the
    estimator `memenvs_as_paid`, or `memenvs_as_paid_by_row` if the loss is a mean over rows. These are the
    numbers of `memenvs.baselines.advantages.group_advantages` for the group: TAMTRL's min-max (eq. 5) runs
    over the group, not over the batch. Without `comparison`, the last token of a turn has what the turn
    earned (`placement`), for an estimator of verl's such as `gae`. Rows whose `extra_info["split"]` is not
    `"train"` are for validation: they use no methods, and the score of each is the environment's return.

    A rollout fails if its environment, a scorer or the inference server raises. The others are compared
    without it, and it returns a row that trains nothing, with a return of 0 and a warning.
    `reward_extra_info` holds the environment's metrics, the `return`, and `success`, `failed` and
    `above_worst`, which are 1 or 0; by the last (an outcome above the worst of its group) `filter_groups`
    keeps groups with right and wrong answers.

    `prompt_length` limits a fresh prompt and `response_length` everything after it in a row; where they leave
    no room the reply is empty. The chat template has the arguments `data.apply_chat_template_kwargs`.

    Args:
        *args: verl's.
        env: the environment's id.
        settings: the environment's arguments.
        methods: reward methods, as `memenvs.wrappers.registry.make_methods` takes them.
        scorer: gives them log-probabilities, as `memenvs.wrappers.registry.make_scorer` takes it; or
            `"policy"`, which asks the inference servers, in the chat template.
        comparison: arguments of `memenvs.baselines.advantages.read_comparison`.
        placement: without `comparison`, where rewards are paid (`memenvs.credit.place_rewards`).
        max_new_tokens: most tokens of a reply; None: what `response_length` leaves.
        ends: token ids that end a reply, as the model names them
            (`memenvs.models.hf.named_ends`); the tokenizer's and the template's end one too.
        chat: `memenvs.models.chat.ChatSettings`, whose `chat_args` are `data.apply_chat_template_kwargs`.
        mask_truncated: with `comparison`, leave replies that reached their limit of tokens out of the loss.
        overlong: with `comparison`, DAPO's penalty on long episodes (`memenvs.credit.overlong_penalty`): at
            this many tokens it is 1, and it rises from 0 over this many before.
        drop_flat_groups: with `comparison`, leave groups without any advantage out of the loss and its mean.
        rows: fewest rows of an episode in training; those that it lacks train nothing. Where verl counts rows
            to split a step into mini-batches, they make their number constant.
        episodes: file to which every episode is appended, with its advantages, for `memenvs view`.
        **kwargs: verl's.

    Raises:
        ValueError: verl's configuration does not fit; the message says what to set.
    """

    def __init__(
        self,
        *args: Any,
        env: str,
        settings: Mapping[str, Any] | None = None,
        methods: Sequence[MethodSpec] = (),
        scorer: ScorerSpec = None,
        comparison: Mapping[str, Any] | None = None,
        placement: Placement = "turn",
        max_new_tokens: int | None = None,
        ends: Sequence[int] = (),
        chat: Mapping[str, Any] | None = None,
        mask_truncated: bool = False,
        overlong: tuple[int, int] | None = None,
        drop_flat_groups: bool = False,
        rows: int = 1,
        episodes: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if not self.config.trainer.use_v1:
            raise ValueError("EpisodeLoop needs trainer.use_v1=True, got False; set it")
        algorithm = self.config.algorithm
        mode = self.config.actor_rollout_ref.actor.loss_agg_mode
        ours = BY_ROW if mode.startswith("seq-mean") else AS_PAID
        fits = algorithm.adv_estimator == ours
        if comparison is None:
            fits = algorithm.adv_estimator not in (AS_PAID, BY_ROW)
        if not fits:
            raise ValueError(
                f"comparison and, for loss_agg_mode={mode}, algorithm.adv_estimator={ours} need each other, "
                f"got comparison {plain(comparison)} and {algorithm.adv_estimator}; set both, or neither"
            )
        if comparison is not None and algorithm.use_kl_in_reward:
            raise ValueError(
                "algorithm.use_kl_in_reward=True would change the advantages; set actor.use_kl_loss instead"
            )
        filtering = algorithm.get("filter_groups") or {}
        if comparison is not None and filtering.get("enable") and filtering["metric"] == "reward":
            raise ValueError(
                "filter_groups with metric reward would compare sums of advantages; set metric=above_worst"
            )
        if comparison is None and (mask_truncated or overlong or drop_flat_groups):
            raise ValueError(
                f"mask_truncated, overlong and drop_flat_groups need comparison, got {mask_truncated}, "
                f"{plain(overlong)} and {drop_flat_groups} without it; leave them out, or give comparison"
            )
        chat = {"chat_args": self.apply_chat_template_kwargs, **(chat or {})}
        self._tokens = _chat_tokens(self.tokenizer, tuple(ends), json.dumps(plain(chat)))
        self._mask_truncated, self._overlong = mask_truncated, plain(overlong)
        self._drop_flat_groups, self._fewest_rows = drop_flat_groups, rows
        self._env, self._settings, self._episodes = env, settings, episodes
        self._max_new_tokens, self._placement = max_new_tokens, placement
        self._methods, self._scorer, self._comparison = plain(methods), plain(scorer), plain(comparison)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """Play the group of a row with the other rollouts of its prompt; the rows of this one."""
        info = row.get("extra_info") or {}
        if info.get("split") is None:
            raise ValueError('the dataset needs extra_info={"task": …, "split": "train" or "test"}')
        read_draw(info)
        meeting = OPEN.setdefault(row["uid"], Meeting())
        place, meeting.members = meeting.members, meeting.members + 1
        await asyncio.sleep(0)  # verl starts the n rollouts at once, so the others come in now
        if meeting.played is None:
            del OPEN[row["uid"]]
            loop = asyncio.get_running_loop()
            played = in_thread(self._play, loop, meeting.members, sampling_params, row)
            meeting.played = asyncio.ensure_future(played)
        return (await meeting.played)[place]

    def _play(
        self, loop: Any, size: int, sampling_params: Mapping[str, Any], row: Mapping[str, Any]
    ) -> list[list[TurnOutput]]:
        """The rows of each rollout of a group, in a thread beside the event loop."""
        info, step = row["extra_info"], row["global_steps"]
        (seed, task), training = read_draw(info), info["split"] == "train"
        ends = sorted(self._tokens.ends)  # a base model's server does not know its template's end token
        names = [uuid4().hex for _ in range(size)]  # the turns of an episode go to one server
        outputs: list[list[Any]] = [[] for _ in range(size)]

        async def generate(index: int, prompt: Ids, room: int) -> Sampled:
            room = min(room, self._max_new_tokens or room)
            output = await self.server_manager.generate(
                request_id=names[index],
                prompt_ids=prompt.tolist(),
                sampling_params={**sampling_params, "max_tokens": room, "stop_token_ids": ends},
            )
            if not episodes[index].over:  # otherwise it continues an ended one, from a state
                outputs[index].append(output)
            return Sampled(output.token_ids, output.log_probs)

        limits = self.rollout_config
        policy = server_policy(generate, loop, self._tokens, limits.prompt_length, limits.response_length)
        scorer, template = self._scorer, None
        if scorer == "policy":
            pairs = pair_scorer(self.tokenizer, limits.get("max_model_len"))
            scorer, template = PolicyScorer(self.server_manager, loop, pairs), self._tokens.template
        methods, comparison = (self._methods, self._comparison) if training else ((), None)
        shared: dict[str, Any] = {"group": seed, "seed": seed, "number": task, "step": step}
        episodes = [Episode(**shared, phase="train" if training else "eval", member=i) for i in range(size)]
        make_env = functools.partial(open_env, self._env, self._settings)
        concurrency = max(size, 64)  # of continuations there may be many more than rollouts
        rollouts = Loop(make_env, policy, methods, make_scorer(scorer, template), concurrency=concurrency)
        rollouts.play_all([episodes])
        encoder = ChatPolicy(self._tokens)
        record_advantages(episodes, encoder, comparison, rollouts.methods, self._overlong)
        if self._episodes is not None:
            with EpisodeWriter(self._episodes) as writer:
                for episode in episodes:
                    writer.write(episode, encoder)
        scored_by = sorted(scorer.versions) if isinstance(scorer, PolicyScorer) else None
        rows = self._rows(episodes, outputs, step, scored_by)
        if not sampling_params.get("logprobs"):
            for output in itertools.chain.from_iterable(rows):
                output.response_logprobs = None
        return rows

    def _rows(
        self, group: Sequence[Episode], outputs: Sequence[Sequence[Any]], step: int, scored_by: Any
    ) -> list[list[TurnOutput]]:
        """The rows of each episode of a group that has ended, by the servers' answers in each.

        `scored_by` are the versions of the weights that scored for the methods; None if another model did.
        """
        worst = min((episode.outcome for episode in valid(group)), default=0.0)
        flat = not any(np.any(episode.advantages) for episode in group)
        rows_of_group = []
        for episode, answers in zip(group, outputs, strict=True):
            if episode.error:
                warnings.warn(f"a rollout of seed {episode.seed} failed: {episode.error}", stacklevel=1)
            training = episode.phase == "train"
            end, truncated = min(self._tokens.ends), training and self._mask_truncated
            rows = rows_of(episode, end, self._placement, truncated, self._fewest_rows if training else 1)
            weights = weights_of(answers, step)
            if scored_by is not None:
                weights["score_global_steps"] = scored_by
            above = bool(valid([episode])) and not all_equal([episode.outcome, worst])
            for output in rows:
                if not training:
                    output.token_scores = None  # verl's validation reads the last row alone
                elif flat and self._drop_flat_groups:
                    output.response_mask = [0] * len(output.response_mask)
                output.extra_fields |= weights
                output.extra_fields["reward_extra_info"]["above_worst"] = float(above)
            rows_of_group.append(rows)
        return rows_of_group


@core_algos.register_adv_est(AS_PAID)
def as_paid(token_level_rewards: Any, response_mask: Any, **rest: Any) -> tuple[Any, Any]:
    """Advantages (B, T) and, the same, returns: what `EpisodeLoop` wrote with `comparison`."""
    advantages = token_level_rewards * response_mask
    return advantages, advantages.clone()


@core_algos.register_adv_est(BY_ROW)
def as_paid_by_row(token_level_rewards: Any, response_mask: Any, **rest: Any) -> tuple[Any, Any]:
    """As `as_paid`, for a loss that is a mean over rows: those without a token in it do not count.

    verl divides by the number of all rows, with those that fill up its batch; our learner by that of the
    others, which get as much more weight here.
    """
    learned = response_mask.any(-1).sum().clamp(min=1)
    return as_paid(token_level_rewards * (len(response_mask) / learned), response_mask)


@cache
def _chat_tokens(tokenizer: Any, ends: tuple[int, ...], settings: str) -> ChatTokens:
    """Made once a process, although verl asks for it at every rollout; `settings` are JSON."""
    return ChatTokens(tokenizer, ends=ends, settings=ChatSettings(**json.loads(settings)))


@cache
def pair_scorer(tokenizer: Any, window: int | None) -> PairScorer:
    """Made once a process too; a server makes one token more than it is asked to score."""
    return PairScorer(tokenizer, None if window is None else window - 1, None)


class PolicyScorer:
    """Scores text under the current policy, by the `prompt_logprobs` of verl's inference servers; a `Scorer`.

    Args:
        client: verl's.
        loop: where the client runs, beside the thread that asks for scores.
        pairs: makes token ids of requests, and refuses those that do not fit a server's window.

    Attributes:
        versions: the versions of the weights that gave the scores, verl's `global_steps`.
    """

    def __init__(self, client: Any, loop: Any, pairs: PairScorer) -> None:
        self._client, self._loop, self._pairs = client, loop, pairs
        self.versions: set[int] = set()

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,) of the tokens of each continuation."""
        return asyncio.run_coroutine_threadsafe(self._score(self._pairs.pairs(requests)), self._loop).result()

    async def _score(self, pairs: Sequence[TokenPair]) -> list[TokenScores]:
        return await asyncio.gather(*map(self._score_pair, pairs))

    async def _score_pair(self, pair: TokenPair) -> TokenScores:
        if not pair.continuation:
            return np.zeros(0)
        ids, params = [*pair.prompt, *pair.continuation], {"max_tokens": 1, "prompt_logprobs": 0}
        while True:
            # The asynchronous trainers' client drops `prompt_logprobs`, its base class does not.
            ask = llm_server.LLMServerClient.generate
            output = await ask(self._client, uuid4().hex, prompt_ids=ids, sampling_params=dict(params))
            if output.stop_reason not in ("aborted", "abort"):
                break
            await asyncio.sleep(1)  # new weights are being loaded
        if "prompt_logprobs" not in output.extra_fields:
            raise ValueError("the servers give no prompt_logprobs; use rollout.name=vllm, or another scorer")
        self.versions.add(output.extra_fields["global_steps"])
        entries = output.extra_fields["prompt_logprobs"]  # entry i is of token i + 1
        return np.array([entry[0] for entry in entries[len(pair.prompt) - 1 : -1]])


class TurnOutput(agent_loop.AgentLoopOutput):
    """A row of verl's with a number for each response token, (T,); None: `reward_score` at the last one."""

    token_scores: list[float] | None

    def as_dict(self) -> dict[str, Any]:
        """As verl's, with the numbers as `rm_scores` (T,)."""
        fields: dict[str, Any] = super().as_dict()
        if scores := fields.pop("token_scores"):
            fields["rm_scores"] = torch.tensor(scores, dtype=torch.float32)
        return fields


def rows_of(
    episode: Episode,
    end: int,
    placement: Placement = "turn",
    mask_truncated: bool = False,
    fewest: int = 1,
) -> list[TurnOutput]:
    """The rows of an episode: with its advantages if it has them, otherwise what its turns earned.

    One that failed, or sampled nothing, has none of its own. verl needs a row of every episode.

    Args:
        episode: has ended.
        end: a token to fill rows with that train nothing.
        placement: where rewards are paid.
        mask_truncated: whether replies that reached their limit of tokens are outside the mask.
        fewest: number of rows that there are at least, with such rows.
    """
    parts: list[tuple[Sample, Floats]] = []
    if valid([episode]):
        values = episode.advantages
        if not len(values):
            outcome = sum(episode.outcome_rewards) if placement == "outcome" else None
            rewards, ends = episode.turn_rewards, episode.turn_ends
            values = place_rewards(rewards, ends, episode.tokens, placement=placement, outcome=outcome)
        parts = [*zip(episode.samples, episode.split(values), strict=True)]
    empty = Sample.of((np.array([end, end]), None, -1)), np.zeros(0)
    parts = [empty] * (fewest - len(parts)) + parts  # before them, as verl's `grpo` reads the last row
    total = 0.0 if episode.error else float(sum(episode.turn_rewards))  # a failed one may have been paid NaN
    metrics = {**episode.metrics, "return": total}
    metrics |= {"success": float(episode.success), "failed": float(bool(episode.error))}
    rows = []
    for sample, numbers in parts:
        mask = sample.response_mask
        start = int(mask.argmax()) if mask.any() else 1
        scores = np.zeros(len(sample.ids))
        scores[mask] = numbers
        if mask_truncated:
            mask = mask.copy()
            mask[mask] = sample.ended
        row = TurnOutput(
            prompt_ids=sample.ids[:start].tolist(),
            response_ids=sample.ids[start:].tolist(),
            response_mask=mask[start:].astype(int).tolist(),
            response_logprobs=sample.logprobs[start:].tolist(),
            token_scores=scores[start:].tolist(),
            reward_score=total,  # set, so that verl calls no reward model
            num_turns=2 * len(episode.replies),
            metrics={},
            extra_fields={"reward_extra_info": metrics},
        )
        rows.append(row)
    return rows


def weights_of(outputs: Sequence[Any], step: int) -> dict[str, Any]:
    """The first and the last version of the weights that sampled an episode, by verl's names.

    Args:
        outputs: the servers' answers.
        step: the trainer's, for an episode without answers, since verl needs a number.
    """
    weights: dict[str, Any] = {}
    for name, choose in (("min_global_steps", min), ("max_global_steps", max)):
        versions = [output.extra_fields.get(name) for output in outputs]
        weights[name] = choose((version for version in versions if version is not None), default=step)
    return weights
