"""verl: an agent loop that plays the rollouts of a prompt as one group, and writes the credit of every token.

    algorithm.adv_estimator=memenvs_as_paid

with VERL_USE_EXTERNAL_MODULES=memenvs.adapters.verl in every process.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import gymnasium as gym
import numpy as np

from memenvs.adapters.common import open_env, plain, read_credit
from memenvs.baselines.advantages import group_advantages
from memenvs.core.errors import error_line
from memenvs.core.optional import check_version, require
from memenvs.core.vector import TextVectorEnv
from memenvs.credit import place_rewards
from memenvs.models import Reply
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.rollout.engine import Answer, Engine, Request
from memenvs.rollout.records import Episode, EpisodeWriter, Sample, text_reply, valid
from memenvs.rollout.session import NO_REPLY, Session
from memenvs.wrappers import VectorRewardWrapper
from memenvs.wrappers.registry import MethodSpec, ScorerSpec
from memenvs.wrappers.scorers import ScoreRequest, TokenScores
from memenvs.wrappers.scorers.protocol import PairScorer, TokenPair

check_version("verl", "0.9.1", "0.9.2", "verl")
agent_loop: Any = require("verl.experimental.agent_loop.agent_loop", "verl")
core_algos: Any = require("verl.trainer.ppo.core_algos", "verl")
llm_server: Any = require("verl.workers.rollout.llm_server", "verl")
torch: Any = require("torch", "verl")

AS_PAID = "memenvs_as_paid"
THREADS = ThreadPoolExecutor(4096, "memenvs")  # one a group, which mostly waits for the servers


class Meeting:
    """The rollouts of a prompt: how many have started and, once all have, the future of each one's rows."""

    size = 0
    rows: Any = None


MEETINGS: dict[str, Meeting] = {}  # by the prompt's uid, while its rollouts start


class EpisodeLoop(agent_loop.AgentLoopBase):
    """Plays the n rollouts of a prompt as one group of any text environment, for verl's V1 trainer.

    verl runs the rollouts of a prompt in one worker. They meet there, and play the task of the row's
    `extra_info["seed"]` side by side. When the last one has ended, the reward methods compare the group, as
    in our own learners, and each rollout returns its rows: one in an environment whose prompts grow, one a
    turn where every prompt is fresh.

    With `credit`, a row has the advantage of each sampled token where verl has its reward, for the estimator
    `memenvs_as_paid`. These are the numbers of `memenvs.baselines.advantages.group_advantages` for the group:
    TAMTRL's min-max (eq. 5) runs over the group, not over the batch. Without `credit`, the last token of a
    turn has what the turn earned, for an estimator of verl's such as `gae`. Rows whose `extra_info["split"]`
    is not `"train"` are for validation: they use no methods, and their score is the environment's return.

    A rollout fails if its environment, a scorer or the inference server raises. The others are compared
    without it, and it returns a row that trains nothing, with a warning. `reward_extra_info` holds the
    environment's metrics, the `return`, and `success` and `failed`, which are 1 or 0.

    `prompt_length` limits a fresh prompt and `response_length` everything after it in a row; where they leave
    no room the reply is empty. The chat template has the arguments `data.apply_chat_template_kwargs`.

    Args:
        *args: verl's.
        env: the environment's id.
        settings: its arguments.
        methods: reward methods, see `memenvs.wrappers.registry.make_methods`.
        scorer: theirs, see `memenvs.wrappers.registry.make_scorer`; or `"policy"`, which asks the inference
            servers, in the chat template.
        credit: see `memenvs.adapters.common.read_credit`.
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
        credit: Mapping[str, Any] | None = None,
        episodes: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if not self.config.trainer.use_v1:
            raise ValueError("EpisodeLoop needs trainer.use_v1=True")
        algorithm = self.config.algorithm
        if (credit is None) == (algorithm.adv_estimator == AS_PAID):
            raise ValueError(
                f"credit and algorithm.adv_estimator={AS_PAID} need each other, got credit "
                f"{plain(credit)} and {algorithm.adv_estimator}"
            )
        if credit is not None and algorithm.use_kl_in_reward:
            raise ValueError("use_kl_in_reward would change the advantages; set actor.use_kl_loss instead")
        filtering = algorithm.get("filter_groups") or {}
        if credit is not None and filtering.get("enable") and filtering["metric"] == "reward":
            raise ValueError("filter_groups would compare sums of advantages; set its metric to success")
        self._tokens = chat_tokens(self.tokenizer, json.dumps(plain(self.apply_chat_template_kwargs)))
        self._env, self._settings, self._episodes = env, settings, episodes
        self._methods, self._scorer, self._credit = plain(methods), plain(scorer), plain(credit)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """Play the group of a row with the other rollouts of its prompt; the rows of this one."""
        info = row.get("extra_info") or {}
        if info.get("seed") is None or info.get("split") is None:
            raise ValueError('the dataset needs extra_info={"seed": …, "split": "train" or "test"}')
        meeting = MEETINGS.setdefault(row["uid"], Meeting())
        member, meeting.size = meeting.size, meeting.size + 1
        await asyncio.sleep(0)  # verl starts the n rollouts at once, so that all have come in by now
        if meeting.rows is None:
            del MEETINGS[row["uid"]]
            loop: Any = asyncio.get_running_loop()
            play = contextvars.copy_context().run, self._play  # the context has verl's traces
            meeting.rows = loop.run_in_executor(THREADS, *play, loop, meeting.size, sampling_params, row)
        return (await meeting.rows)[member]

    def _play(
        self, loop: Any, size: int, sampling_params: Mapping[str, Any], row: Mapping[str, Any]
    ) -> list[list[TurnOutput]]:
        """The rows of each rollout of a group, in a thread beside the event loop."""
        info, step = row["extra_info"], row["global_steps"]
        seed, training = int(info["seed"]), info["split"] == "train"
        tokens = self._tokens
        policy: Any = ChatPolicy(tokens)
        makers = [lambda: RaiseFailures(open_env(self._env, self._settings))] * size
        venv: Any = TextVectorEnv(makers, autoreset_mode="Disabled", errors="truncate")
        scorer, template = self._scorer, None
        if scorer == "policy":
            pairs = pair_scorer(self.tokenizer, self.rollout_config.get("max_model_len"))
            scorer, template = PolicyScorer(self.server_manager, loop, pairs), tokens.template
        if training and self._methods:
            venv = VectorRewardWrapper(venv, self._methods, scorer, size, template)
        sampler = ServerSampler(self.server_manager, loop, tokens, self.rollout_config, sampling_params, size)
        shared = {"group": seed, "seed": seed, "step": step, "phase": "train" if training else "eval"}
        members = [Session(policy, Episode(**shared, member=i)) for i in range(size)]
        (_,) = Engine(venv, sampler, group_size=size).play([members])
        episodes = [session.episode for session in members]
        usable = valid(episodes)
        if training and self._credit is not None and usable:
            credit = read_credit(self._credit, getattr(venv, "methods", ()))
            for episode, values in zip(usable, group_advantages(usable, policy, *credit), strict=True):
                episode.advantages = values
        found = []
        for episode, outputs in zip(episodes, sampler.outputs, strict=True):
            if episode.error:
                warnings.warn(f"a rollout of seed {seed} failed: {episode.error}", stacklevel=1)
            rows = rows_of(episode, min(tokens.ends))
            weights = weights_of(outputs, step)
            if isinstance(scorer, PolicyScorer):
                weights["score_global_steps"] = sorted(scorer.versions)
            for one in rows:
                one.extra_fields |= weights
                if not sampling_params.get("logprobs"):
                    one.response_logprobs = None
            found.append(rows)
        if self._episodes is not None:
            with EpisodeWriter(self._episodes) as writer:
                for episode in episodes:
                    writer.write(episode, policy)
        return found


@core_algos.register_adv_est(AS_PAID)
def as_paid(token_level_rewards: Any, response_mask: Any, **rest: Any) -> tuple[Any, Any]:
    """Advantages (B, T) and, the same, returns: what `EpisodeLoop` wrote with `credit`."""
    advantages = token_level_rewards * response_mask
    return advantages, advantages.clone()


@cache
def chat_tokens(tokenizer: Any, chat_args: str) -> ChatTokens:
    """Made once a process, although verl makes a loop for each rollout; `chat_args` as JSON."""
    return ChatTokens(tokenizer, chat_args=json.loads(chat_args))


@cache
def pair_scorer(tokenizer: Any, window: int | None) -> PairScorer:
    """Made once a process, like `chat_tokens`; a server makes one token more than it is asked to score."""
    return PairScorer(tokenizer, None if window is None else window - 1, None)


class FailedReply(str):
    """Why there is no reply to a turn."""


class RaiseFailures(gym.Wrapper[str, str, str, str]):
    """Raises where it should play a `FailedReply`, so that the vector environment ends that episode alone."""

    def step(self, action: str) -> Any:
        """See `gymnasium.Env.step`."""
        if isinstance(action, FailedReply):
            raise ConnectionError(action)
        return self.env.step(action)


class ServerSampler:
    """A `TurnSampler` over verl's client of its inference servers, for a thread beside the event loop.

    Args:
        client: verl's.
        loop: where the client runs.
        tokens: decode the replies.
        limits: verl's configuration of rollouts, for `prompt_length` and `response_length`.
        params: verl's sampling parameters.
        size: number of environments.

    Attributes:
        outputs: for each environment, the servers' answers.
    """

    def __init__(
        self, client: Any, loop: Any, tokens: ChatTokens, limits: Any, params: Mapping[str, Any], size: int
    ) -> None:
        self._client, self._loop, self._tokens = client, loop, tokens
        self._limits, self._params = limits, params
        self._names = [uuid4().hex for _ in range(size)]  # the turns of an episode go to one server
        self._starts = [0] * size
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self.outputs: list[list[Any]] = [[] for _ in range(size)]

    def ask(self, request: Request) -> None:
        """See `TurnSampler`."""
        index, session = request.env_index, request.session
        if session.fresh:
            self._starts[index] = len(session.prompt)
        start = self._starts[index]
        room = self._limits.response_length - (len(session.prompt) - start)
        if room > 0 and start <= self._limits.prompt_length:
            asyncio.run_coroutine_threadsafe(self._sample(request, room), self._loop)
        else:
            self._answers.put(request.answer(NO_REPLY))

    def answered(self) -> list[Answer]:
        """See `TurnSampler`."""
        answers = [self._answers.get()]
        while not self._answers.empty():
            answers.append(self._answers.get())
        return answers

    async def _sample(self, request: Request, room: int) -> None:
        index = request.env_index
        try:
            output = await self._client.generate(
                request_id=self._names[index],
                prompt_ids=request.session.prompt.tolist(),
                sampling_params={**self._params, "max_tokens": room},
            )
            self.outputs[index].append(output)
            self._answers.put(request.answer(self._reply(output, room)))
        except BaseException as error:  # also where verl cancels it, or the thread would wait for ever
            self._answers.put(Answer(index, text_reply(FailedReply(error_line(error)))))
            if not isinstance(error, Exception):
                raise

    def _reply(self, output: Any, room: int) -> Reply:
        ids = np.array(output.token_ids[:room], dtype=np.int64)
        if not len(ids):
            return NO_REPLY
        logprobs = np.array((output.log_probs or [0.0] * room)[: len(ids)], dtype=np.float64)
        return Reply(self._tokens.reply_text(ids), ids, logprobs, int(ids[-1]) in self._tokens.ends)


class PolicyScorer:
    """Scores text under the current policy, by the `prompt_logprobs` of verl's inference servers; a `Scorer`.

    Args:
        client: verl's.
        loop: where the client runs, beside the thread that asks for scores.
        pairs: makes token ids of requests, and refuses those that do not fit a server's window.

    Attributes:
        versions: of the weights that gave the scores, verl's `global_steps`.
    """

    def __init__(self, client: Any, loop: Any, pairs: PairScorer) -> None:
        self._client, self._loop, self._pairs = client, loop, pairs
        self.versions: set[int] = set()

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,) of the tokens of each continuation; see `Scorer.logprobs`."""
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
        given = output.extra_fields["prompt_logprobs"]  # entry i is of token i + 1
        return np.array([entry[0] for entry in given[len(pair.prompt) - 1 : -1]])


class TurnOutput(agent_loop.AgentLoopOutput):
    """A row of verl's with a number for each response token, (T,)."""

    token_scores: list[float]

    def as_dict(self) -> dict[str, Any]:
        """As verl's, with the numbers as `rm_scores` (T,), where verl has one score at the last token."""
        fields: dict[str, Any] = super().as_dict()
        fields["rm_scores"] = torch.tensor(fields.pop("token_scores"), dtype=torch.float32)
        return fields


def rows_of(episode: Episode, end: int) -> list[TurnOutput]:
    """The rows of an episode: with its advantages if it has them, otherwise what its turns earned.

    verl needs a row of every episode. That of one which failed, or sampled nothing, trains nothing.

    Args:
        episode: has ended.
        end: a token to fill such a row with.
    """
    if valid([episode]):
        samples, values = episode.samples, episode.advantages
        if values is None:
            values = place_rewards(episode.turn_rewards, episode.turn_ends, episode.tokens)
        parts = episode.split(values)
    else:
        samples, parts = [Sample.prompt(np.array([end])).then(np.array([end]))], [np.zeros(0)]
    total = float(sum(episode.turn_rewards))
    metrics = {**episode.metrics, "return": total}
    metrics |= {"success": float(episode.success), "failed": float(bool(episode.error))}
    rows = []
    for sample, own in zip(samples, parts, strict=True):
        mask = sample.response_mask
        start = int(mask.argmax()) if mask.any() else 1
        scores = np.zeros(len(sample.ids))
        scores[mask] = own
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
    found: dict[str, Any] = {}
    for name, choose in (("min_global_steps", min), ("max_global_steps", max)):
        versions = [output.extra_fields.get(name) for output in outputs]
        found[name] = choose((one for one in versions if one is not None), default=step)
    return found
