"""TRL's GRPOTrainer: rollouts of any environment, advantages by turn, environments as tools.

`EpisodeRollout("MemChunkQA-v0")` as `rollout_func` of `TurnAdvantages`, which is a GRPOTrainer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from memenvs.adapters.common import open_env, read_draw
from memenvs.baselines.advantages import group_advantages, read_comparison
from memenvs.core.env import check_text_observations, text_env_of
from memenvs.core.episode import OUTCOME, Episode, Floats, Ids, Reply, Sample, Turn, valid
from memenvs.core.optional import check_hooks, check_version, require
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.models.policy import Limit, reply_limits
from memenvs.models.settings import ChatSettings
from memenvs.rollout.collect import Loop, MakeEnv, begin, maker, step
from memenvs.rollout.order import group_seeds
from memenvs.rollout.policy import Request, as_policy
from memenvs.wrappers.credit import check_methods
from memenvs.wrappers.registry import MethodSpec, ScorerSpec, make_methods, make_scorer

check_version("trl", "1.16", "1.17", "trl")
torch: Any = require("torch", "trl")
gather_object: Any = require("accelerate.utils", "trl").gather_object

__all__ = [
    "EpisodeRollout",
    "SearchTools",
    "SokobanTools",
    "TurnAdvantages",
    "episode_return",
    "seed_rows",
    "task_rows",
]

Row = dict[str, list[Any]]
NAMED = re.compile(r"(task|seed) (\d+)")  # the prompts of `task_rows` and `seed_rows`
TURN: Mapping[str, Any] = {"reward": "turn"}
REPLACED = {
    "scale_rewards": "`scale`",
    "reward_weights": "`component_weights`",
    "multi_objective_aggregation": "`normalize` and `component_weights`",
}
"""Settings of GRPOConfig that `TurnAdvantages` replaces, and those of `comparison` for the same."""
OVER = "The episode is over. Reply without calling a tool."


def task_rows(tasks: Iterable[int]) -> list[dict[str, str]]:
    """The dataset of an `EpisodeRollout`: a row for each task, whose prompt has the task's number.

    TRL hands a `rollout_func` the prompts and no other column, so the prompt must say which task is meant.
    What the model reads comes from the environment. An epoch plays each task once; `range(env.n_tasks)` are
    all of them.

    >>> task_rows([7])
    [{'prompt': 'task 7'}]
    """
    return [{"prompt": f"task {int(task)}"} for task in tasks]


def seed_rows(seeds: Iterable[int]) -> list[dict[str, str]]:
    """As `task_rows`, with seeds that draw the tasks, where an environment has no list of them.

    >>> seed_rows([7])
    [{'prompt': 'seed 7'}]
    """
    return [{"prompt": f"seed {int(seed)}"} for seed in seeds]


class EpisodeRollout:
    """`rollout_func` of a GRPOTrainer that plays episodes of any text environment.

    An environment whose prompts grow gives one row per episode. An environment that rewrites its prompts
    gives one row per turn, more than TRL asked for, which needs a trainer with `TurnAdvantages`. Reward
    functions get `returns`, `turn_rewards` and `metrics`, one for each prompt; where prompts are rewritten,
    `completions` has the last reply of each episode.

    Args:
        env: a text environment's id, or a function that makes one.
        methods: reward methods, as `memenvs.wrappers.registry.make_methods` takes them.
        scorer: gives them log-probabilities, as `memenvs.wrappers.registry.make_scorer` takes it.
        concurrency: episodes that are played at once.
        eval_env_args: arguments that differ in the trainer's evaluations, such as another task set.
        **env_args: arguments of an environment given by its id.

    Raises:
        ValueError: the observations are not texts, or a method or an argument does not fit.

    Attributes:
        n_tasks: tasks of the environment.
        n_eval_tasks: tasks of the environment of evaluations.
        policy: that played them.
        episodes: the latest batch, in the order of the prompts.
    """

    def __init__(
        self,
        env: str | MakeEnv,
        methods: Sequence[MethodSpec] = (),
        scorer: ScorerSpec = None,
        concurrency: int = 64,
        eval_env_args: Mapping[str, Any] | None = None,
        **env_args: Any,
    ) -> None:
        self._make_env = self._make_eval_env = maker(env, env_args)
        first = self._make_env()
        check_text_observations(first)
        self.rewrites = first.get_wrapper_attr("context") == "rewrite"
        self.n_tasks = self.n_eval_tasks = text_env_of(first).n_tasks
        if eval_env_args:
            self._make_eval_env = maker(env, {**env_args, **eval_env_args})
            evaluated = self._make_eval_env()
            self.n_eval_tasks = text_env_of(evaluated).n_tasks
            evaluated.close()
        self.methods = make_methods(methods) if methods else []
        self._scorer, self._concurrency = make_scorer(scorer), concurrency
        check_methods(self.methods, self._scorer, first.reset(seed=0)[1], plays_on=True)
        first.close()
        self.policy: TRLPolicy | None = None
        self.episodes: list[Episode] = []
        self._batches = 0  # played in training

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Play an episode for each prompt.

        Args:
            prompts: of `task_rows` or `seed_rows`, each repeated for every member of its group.
            trainer: samples.

        Raises:
            ValueError: the prompts are of another kind or cut a group, the trainer has tools, or it takes one
                row an episode and the environment rewrites its prompts.
        """
        if trainer.tools or trainer.args.max_tool_calling_iterations is not None:
            raise ValueError(
                "an EpisodeRollout plays its own environment, so tools, environment_factory and "
                "max_tool_calling_iterations would have no effect; leave them out, and limit the turns by "
                "the environment's max_turns"
            )
        expand = getattr(trainer, "pad_rows", None)
        if self.rewrites and expand is None:
            raise ValueError(
                "this environment rewrites its prompts, so an episode is many rows, and "
                f"{type(trainer).__name__} takes one; put TurnAdvantages before it: "
                "class Trainer(TurnAdvantages, GRPOTrainer)"
            )
        self.policy = TRLPolicy(trainer)
        policy = as_policy(self.policy, trainer.max_completion_length)
        make_env = self._make_env if trainer.model.training else self._make_eval_env
        loop = Loop(make_env, policy, self.methods, self._scorer, concurrency=self._concurrency)
        self.episodes = loop.play_all(self._plan(prompts, trainer))
        rows = []
        for episode in self.episodes:
            of_episode = [trl_row(sample, episode.end != "failed") for sample in episode.samples]
            rows += of_episode or [empty_row(trainer)]
        if expand:
            rows = expand(rows)
        output: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        if not self.policy.has_logprobs:
            output["logprobs"] = None
        return {
            **output,
            "returns": [None if e.end == "failed" else float(sum(e.turn_rewards)) for e in self.episodes],
            "turn_rewards": [list(episode.turn_rewards) for episode in self.episodes],
            "metrics": [episode.metrics for episode in self.episodes],
        }

    def _plan(self, prompts: Sequence[Any], trainer: Any) -> list[list[Episode]]:
        """The episodes to play, a group for each run of equal prompts."""
        training = trainer.model.training
        size = trainer.num_generations if training else trainer.num_generations_eval
        here, processes = trainer.accelerator.process_index, trainer.accelerator.num_processes
        draws, part = read_groups(prompts, size), self._batches * processes + here
        fresh = group_seeds(trainer.args.seed, trainer.state.global_step, part, len(draws))
        if training:
            self._batches += 1
        plan = []
        for i, (seed, task) in enumerate(draws):
            if training and task is not None:  # each time with other chances
                seed = fresh[i]
            # Numbered over all processes: two rows may name one task, and TRL compares the rollouts of a row.
            shared: Any = {"seed": seed, "number": task, "group": i * processes + here}
            plan.append([Episode(**shared, member=member) for member in range(size)])
        return plan


def episode_return(
    prompts: Sequence[str],
    returns: Sequence[float | None],
    metrics: Sequence[dict[str, float]],
    log_metric: Callable[[str, float], None],
    **row: Any,
) -> list[float | None]:
    """The reward function of an `EpisodeRollout`: the return of each episode, None for one that broke.

    The environment's metrics are logged under `env/`. TRL passes its other columns, too.
    """
    played = [metric for metric, value in zip(metrics, returns, strict=True) if value is not None]
    for name in played[0] if played else ():
        log_metric(f"env/{name}", float(np.mean([metric[name] for metric in played])))
    return list(returns)


Trainer: Any = object  # what `TurnAdvantages` is mixed into


class TurnAdvantages(Trainer):
    """Mixin that gives every token the advantage of its turn: `class Trainer(TurnAdvantages, GRPOTrainer)`.

    It replaces TRL's advantages with `memenvs.baselines.advantages.group_advantages`, also in evaluation; TRL
    still logs its own, one per row. With an `EpisodeRollout` turns and tokens are those of the rollout.
    With tools turn k is the k-th run of ones in TRL's mask: parallel calls of one reply add up, and a closing
    reply without a call earns nothing of its own.

    A rewrite environment gives more rows than prompts. They are padded with rows of mask 0, to one number in
    every process that `steps_per_generation` divides. Where the loss is divided by tokens (`"dapo"`, TRL's
    default) such rows change nothing; `"grpo"` takes a mean over rows, which they make smaller.

    Args:
        *args: the trainer's arguments.
        comparison: the `reward` of `group_advantages`, by the name of a reward method where it is one, and
            `memenvs.wrappers.comparison.ComparisonSettings`; `{"reward": "turn"}` by default (MT-GRPO).
        **kwargs: the trainer's arguments, with `rollout_func=EpisodeRollout(…)` or an `environment_factory`
            of `memenvs.adapters.trl` tools.

    Raises:
        ValueError: the trainer has neither, `comparison` names what is not there, or a setting of the trainer
            would have no effect.
    """

    def __init__(self, *args: Any, comparison: Mapping[str, Any] = TURN, **kwargs: Any) -> None:
        hooks = ("_generate_single_turn", "_calculate_rewards", "_generate_and_score_completions")
        check_hooks(super(), hooks, "trl")
        super().__init__(*args, **kwargs)
        self._steps: list[list[int]] = []  # environment steps of each rollout, after each generation
        if not isinstance(self.rollout_func, EpisodeRollout) and not hasattr(self, "_environment_pool"):
            raise ValueError(
                "TurnAdvantages needs rollout_func=EpisodeRollout(…), or an environment_factory of "
                "SearchTools, SokobanTools or another ToolEnv"
            )
        defaults = {field.name: field.default for field in fields(self.args)}
        for name, instead in REPLACED.items():
            if getattr(self.args, name) != defaults[name]:
                raise ValueError(
                    f"TurnAdvantages replaces TRL's advantages, so {name}={getattr(self.args, name)!r} would "
                    f"have no effect; leave it out, and set {instead} in comparison"
                )
        self._comparison = read_comparison(methods=getattr(self.rollout_func, "methods", ()), **comparison)

    def pad_rows(self, rows: Sequence[Row]) -> list[Row]:
        """The rows, padded with empty ones to a number that is divisible and equal in all processes."""
        count = torch.tensor([len(rows)], device=self.accelerator.device)
        most = int(self.accelerator.gather(count).max())
        parts = self.args.steps_per_generation if self.model.training else 1
        return [*rows, *[empty_row(self)] * (-(-most // parts) * parts - len(rows))]

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        """As the trainer does; then notes how many steps each tool environment has made."""
        sampled = super()._generate_single_turn(*args, **kwargs)
        environments = getattr(self, "environments", None) or []
        self._steps.append([len(env._episode.turns) for env in environments])
        return sampled

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids: Any) -> Any:
        """As the trainer does; where an episode is several rows its completion is its last reply."""
        if len(completions) != len(prompts):
            last = list(map(last_reply, self.rollout_func.episodes))
            completions, completion_ids = (
                [reply.text for reply in last],
                [reply.ids.tolist() for reply in last],
            )
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """The trainer's batch, with advantages (B, T) instead of (B,)."""
        self._steps = []
        output = super()._generate_and_score_completions(inputs)
        mask = output["completion_mask"] * output.get("tool_mask", 1)
        response_mask = mask.cpu().numpy().astype(bool)
        if isinstance(self.rollout_func, EpisodeRollout):
            values = self._of_rollout(self.rollout_func)
            if len(response_mask) != len(inputs):  # TRL's table has a line per prompt, and got one per row
                last = [last_reply(episode).text for episode in self.rollout_func.episodes]
                self._logs["completion"].extend(gather_object(last))
        else:
            values = self._of_tools(response_mask)
        output["advantages"] = torch.from_numpy(place(values, response_mask)).to(mask.device)
        return output

    def _of_rollout(self, rollout: EpisodeRollout) -> list[Floats]:
        """Advantages of the sampled tokens of each row, from the episodes of all processes.

        Some credit compares the whole batch: TAMTRL's min-max (eq. 5), GDPO's last normalisation.
        """
        here, usable = self.accelerator.process_index, valid(rollout.episodes)
        gathered = gather_object([(here, episode) for episode in usable])
        policy: Any = rollout.policy
        whole = group_advantages([episode for _, episode in gathered], policy, *self._comparison)
        of_process = iter(values for (rank, _), values in zip(gathered, whole, strict=True) if rank == here)
        rows: list[Floats] = []
        for episode in rollout.episodes:
            empty = [np.zeros(0)] * max(len(episode.samples), 1)
            rows += episode.split(next(of_process)) if valid([episode]) else empty
        return rows

    def _of_tools(self, response_mask: NDArray[np.bool_]) -> list[Floats]:
        """Advantages of the sampled tokens of each row, a turn being a run of them."""
        size = self.num_generations if self.model.training else self.num_generations_eval
        check_groups(response_mask, size)
        steps = np.array(self._steps).T  # (B, generations)
        episodes = [
            tool_episode(i // size, env._episode, steps[i], row)
            for i, (env, row) in enumerate(zip(self.environments, response_mask, strict=True))
        ]
        return group_advantages(episodes, None, *self._comparison)  # type: ignore[arg-type]


class ToolEnv:
    """A text environment for `environment_factory`: TRL makes a tool of every public method.

    A call of a tool is a turn. TRL has no signal that an episode is over: later calls return that it is, and
    change nothing. Where a rollout stops before the episode's end, empty replies are played when the reward
    is asked for. Everything else is private, or it would become a tool.

    Args:
        methods: reward methods around the environment, as `RewardWrapper` takes them. Those that
            compare the rollouts of a task fall back to statistics of the episodes this object has played.
        scorer: gives the methods log-probabilities.
        **settings: the environment's arguments.

    Raises:
        ValueError: the environment rewrites its prompts.
    """

    _id: ClassVar[str]

    def __init__(
        self, methods: Sequence[MethodSpec] = (), scorer: ScorerSpec = None, **settings: Any
    ) -> None:
        self._env: Any = open_env(self._id, settings, methods, scorer)
        if self._env.get_wrapper_attr("context") == "rewrite":
            raise ValueError(
                f"{self._id} rewrites its prompts, and a chat with tools only grows; use EpisodeRollout with "
                "TurnAdvantages"
            )
        self._episode = Episode()
        self._request: Request | None = None  # the next turn, if there is one

    def reset(self, seed: int | None = None, task: int | None = None, **row: Any) -> str:
        """Start an episode; the text is added to the last message of the prompt.

        Args:
            seed: picks the task and every random choice.
            task: the task by number.
            **row: the dataset's other columns, the prompt among them: TRL passes them all.

        Raises:
            ValueError: neither is given, so that the members of a group would play different tasks.
        """
        seed, task = read_draw({"task": task, "seed": seed})
        replaces = getattr(self._env, "replaces_outcome", False)
        self._episode = Episode(seed=seed, number=task, replaces_outcome=replaces)
        self._request = begin(self._env, self._episode)
        prompt: str = self._env.unwrapped.tool_use().prompt()
        return prompt

    def get_reward(self) -> float:
        """The return of the episode; empty replies end one that has not ended."""
        while self._request:
            self._play_reply("")
        return float(sum(self._episode.turn_rewards))

    def _play_reply(self, reply: str) -> str:
        """Play a reply; return the environment's feedback."""
        if not self._request:
            return OVER
        self._request = step(self._request, Reply(reply))
        feedback: str = self._episode.turns[-1].info["feedback"].strip()
        return feedback if self._request else f"{feedback}\n{OVER}".strip()

    def _call(self, name: str, **arguments: str) -> str:
        reply, _ = self._env.unwrapped.tool_use().call(name, arguments)
        return self._play_reply(reply)


class SearchTools(ToolEnv):
    """`MemSearchQA-v0` with two tools. Every call counts as well formed."""

    _id = "MemSearchQA-v0"

    def search(self, query: str) -> str:
        """Look something up.

        Args:
            query: What to look up.

        Returns:
            The passages that were found.
        """
        return self._call("search", query=str(query))

    def answer(self, answer: str) -> str:
        """Give the final answer, which ends the episode.

        Args:
            answer: The answer, as short as possible.

        Returns:
            That the episode is over.
        """
        return self._call("answer", answer=str(answer))


class SokobanTools(ToolEnv):
    """`MemSokoban-v0` with one tool."""

    _id = "MemSokoban-v0"

    def move(self, moves: str) -> str:
        """Make moves on the board.

        Args:
            moves: Up, Down, Left and Right in the order they are made, with || between them.

        Returns:
            The board after the moves.
        """
        return self._call("move", moves=str(moves))


class TRLPolicy(ChatPolicy):
    """The trainer's model as a `memenvs.models.TokenPolicy`.

    It samples by the trainer's own method: transformers or vLLM, with the trainer's temperature, but never an
    id that no token has. Tokens are sampled with torch's global generator, as everything in TRL is, or with
    vLLM's, and not with the generators that `sample` is given. `max_completion_length` of the trainer is the
    limit of one reply.

    Attributes:
        window: tokens of prompt and reply together: the model's positions, or vLLM's limit.
        has_logprobs: whether the last replies came with log-probabilities (vLLM's do), not zeros.

    Args:
        trainer: its tokenizer's chat template, where there is one, is put around observations, with the
            arguments `chat_template_kwargs` of its configuration.

    Raises:
        ValueError: those arguments without a template, or one that the template does not read.
    """

    def __init__(self, trainer: Any) -> None:
        settings = ChatSettings(trainer.chat_template_kwargs or {})
        tokens = ChatTokens(trainer._tokenizer, ends=trainer.eos_token_ids, settings=settings)
        super().__init__(tokens)
        self._trainer = trainer
        absent = np.flatnonzero(tokens.absent(trainer.model.config.get_text_config().vocab_size)).tolist()
        if absent and trainer.use_vllm:
            trainer.vllm_generation.generation_kwargs.setdefault("logit_bias", dict.fromkeys(absent, -100.0))
        elif absent:
            others = trainer.generation_config.suppress_tokens or []
            trainer.generation_config.suppress_tokens = sorted({*others, *absent})
        limits = [trainer.args.vllm_max_model_length if trainer.use_vllm else None]
        limits.append(getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None))
        self.window: int | None = min((limit for limit in limits if limit is not None), default=None)
        self.has_logprobs = False

    def sample(
        self, prompts: Sequence[Ids], rngs: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """A reply to each prompt, cut at its limit."""
        limits = reply_limits([len(prompt) for prompt in prompts], max_new_tokens, self.window)
        if not prompts:
            return []
        ids = [prompt.tolist() for prompt in prompts]
        completions, logprobs = self._trainer._generate_single_turn(ids, None, {}, 1)
        self.has_logprobs = logprobs is not None
        sampled = logprobs or [[0.0] * len(completion) for completion in completions]
        return [self._reply(*reply) for reply in zip(completions, sampled, limits, strict=True)]

    def _reply(self, completion: Sequence[int], logprobs: Sequence[float | None], limit: int) -> Reply:
        ids = np.array(completion[:limit], dtype=np.int64)
        finished = len(ids) > 0 and int(ids[-1]) in self._tokens.ends
        # None, of a token that vLLM could not score, becomes NaN.
        nats = np.array(logprobs[:limit], dtype=np.float64)
        return Reply(self._tokens.reply_text(ids), ids, nats, finished)


def read_groups(prompts: Sequence[Any], size: int) -> list[tuple[int, int | None]]:
    """The seed and the number of the task of each group, from prompts that each come `size` times.

    A prompt may be a chat of one message, as `memenvs build --export rows` writes it.

    Raises:
        ValueError: they are from elsewhere, or not whole groups.
    """
    draws = []
    for prompt in prompts:
        text = prompt[0].get("content") if isinstance(prompt, list) and len(prompt) == 1 else prompt
        if not (isinstance(text, str) and (named := NAMED.fullmatch(text))):
            raise ValueError(f"a prompt must come from memenvs.adapters.trl.task_rows, got {prompt!r:.80}")
        draws.append(read_draw({named[1]: named[2]}))
    blocks = [set(draws[first : first + size]) for first in range(0, len(draws), size)]
    check_groups(prompts, size, whole=all(len(block) == 1 for block in blocks))
    return [block.pop() for block in blocks]


def check_groups(rollouts: Sized, size: int, whole: bool = True) -> None:
    """Raise a `ValueError` unless the rollouts of a process are whole groups."""
    if len(rollouts) % size or not whole:
        raise ValueError(
            f"a process got {len(rollouts)} rollouts that are not whole groups of {size}; make "
            "per_device_train_batch_size * steps_per_generation a multiple of num_generations"
        )


def trl_row(sample: Sample, usable: bool) -> Row:
    """A training sequence in TRL's fields, one list each.

    The prompt ends before the first token that the policy sampled. `env_mask` is 0 where the environment
    wrote, and everywhere if the sequence is not `usable`.
    """
    start = int(sample.response_mask.argmax()) or 1
    return {
        "prompt_ids": sample.ids[:start].tolist(),
        "completion_ids": sample.ids[start:].tolist(),
        "env_mask": (sample.response_mask[start:] & usable).astype(int).tolist(),
        "logprobs": sample.logprobs[start:].tolist(),
    }


def empty_row(trainer: Any) -> Row:
    """A row that trains nothing: two tokens, mask 0."""
    end = int(trainer.eos_token_ids[0])
    return trl_row(Sample.of((np.array([end, end]), None, -1)), usable=False)


def tool_episode(
    group: int, played: Episode, steps: NDArray[np.int64], response_mask: NDArray[np.bool_]
) -> Episode:
    """An episode of a tool environment whose turns are the runs of sampled tokens.

    Args:
        group: number of its group.
        played: by the environment, a turn a call.
        steps: number of calls after each generation; rises. A call belongs to the run before it, and empty
            replies that end an episode to the last.
        response_mask: (T,) the tokens that the policy sampled.
    """
    edges = np.flatnonzero(np.diff(response_mask.astype(np.int64), prepend=0, append=0))
    lengths = (edges[1::2] - edges[::2]).tolist() or [0]
    run = np.searchsorted(steps, np.arange(len(played.turn_rewards)), side="right") - 1
    run = np.clip(run, 0, len(lengths) - 1)
    outcomes = np.bincount(run, played.outcome_rewards, len(lengths))
    earned = np.bincount(run, played.turn_rewards, len(lengths)) - outcomes
    turns = [
        Turn(
            "",
            {"turn": number, "context": "append", "feedback": ""},
            Reply("", np.zeros(length, np.int64), np.zeros(length), True),  # TRL keeps the ids
            {"rewards": {OUTCOME: float(outcome), "turn": float(beside)}},
        )
        for number, (length, outcome, beside) in enumerate(zip(lengths, outcomes, earned, strict=True))
    ]
    return Episode(group=group, task=played.task, turns=turns, metrics=played.metrics, end="terminated")


def place(values: Sequence[Floats], response_mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Numbers (N_i,) of the first rows' sampled tokens, at their places in (B, T); 0 elsewhere.

    A row that TRL has masked as a whole, as it can do with truncated ones, stays 0.

    >>> place([np.array([1.0, 2.0])], np.array([[True, False, True], [False, False, False]])).tolist()
    [[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
    """
    placed = np.zeros(response_mask.shape, np.float32)
    for row, (numbers, mask) in enumerate(zip(values, response_mask[: len(values)], strict=True)):
        if mask.any():
            placed[row, mask] = numbers
    return placed


def last_reply(episode: Episode) -> Reply:
    """Its last reply; an empty one if it failed before the first."""
    return episode.turns[-1].reply if episode.turns else Reply("")
