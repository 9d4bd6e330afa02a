"""What verl's agent loops play: the rows of tasks, the loops, and the episodes that are played as a check."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from memenvs.baselines.advantages import read_comparison, record_advantages
from memenvs.baselines.costs import MEMORY, RunWork, StepWork
from memenvs.baselines.rollout import evaluation_args
from memenvs.baselines.verl.plan import SERVER, BatchPlan, Spread, Training
from memenvs.baselines.verl.settings import absolute, absolute_path, settings_of, unresolved
from memenvs.build.export import task_row
from memenvs.core.address import without_secrets
from memenvs.core.arguments import REQUIRED, env_parameters, parameters_of
from memenvs.core.env import text_env_of
from memenvs.core.episode import Episode, Reply
from memenvs.core.episode_file import EPISODES
from memenvs.core.files import write_text
from memenvs.core.optional import require
from memenvs.envs.search_qa import SearchQAEnv
from memenvs.models.chat import ChatPolicy
from memenvs.models.hf import chat_tokens, named_ends
from memenvs.rollout.collect import Loop, count_tasks, maker
from memenvs.rollout.order import draw_tasks
from memenvs.rollout.policy import Request, TurnPolicy, prompt_of
from memenvs.wrappers import RewardMethod
from memenvs.wrappers.judge import judge_tokens
from memenvs.wrappers.registry import make_methods, make_scorer, plain_method, read_methods

ADAPTER = "memenvs.adapters.verl"
"""The module that verl loads in every process: the agent loop, and the estimator of its advantages."""
PLAYED = 64
"""Tasks whose episodes say how many rows and tokens those of a run have."""
PAID = {"turn": "the reward of each turn", "merged": "the sum of all rewards", "outcome": "the outcome"}
"""The rewards that mt_ppo places, by `--reward`."""


class PlayTraining(Training):
    """A run of a learner that plays in verl's agent loops.

    Raises:
        ValueError: the arguments do not fit each other, or verl's estimator.
    """

    configuration, script = "ppo_trainer", "play.sh"

    def __init__(self, args: Any, learner: str) -> None:
        gpus, engine = args.gpus * args.nodes, args.vllm or {}
        size = engine.get("tensor_parallel_size", 1)
        if not isinstance(size, int) or size < 1 or gpus % size:
            raise ValueError(
                f"--vllm tensor_parallel_size must divide the number of GPUs, {gpus}, got {size!r}"
            )
        super().__init__(args)
        self.loops = loops_of(args, learner)
        self.loop, tested = self.loops
        self.tasks, self.others = choose_tasks(args, self.loop["settings"], tested["settings"])
        self.group, played = play_check(args, self.loop, self.window)
        self.plan, self.steps = BatchPlan.of(args, played, self.window), args.steps
        if args.minibatches > 1:
            self.loop["rows"] = self.plan.episode_rows
        self.passes = args.steps / (len(self.tasks) // args.groups)
        self.models = ["actor_rollout_ref.model"]
        if self.loop["comparison"] is None:
            check_fits_gae(self.plan, self.group)
            self.models = [*self.models, "critic.model"]
        row = sum(spread.mean for spread in self.plan.seen)
        step = StepWork(args.groups * args.group_size, self.plan.read, self.plan.written, row)
        tokens, specs = chat_tokens(args.model, args.chat_settings), self.loop["methods"]
        methods = make_methods(specs) if specs else []
        asked = judge_tokens(methods, self.group, lambda text: len(tokens.encode(text)))
        self.work = RunWork.of(args, step, self.steps, len(self.others), asked, trained=len(self.models))
        self.reference = bool(args.kl_coef and not args.lora_rank)  # an adapter's base model is the reference
        self.sampler = float(engine.get("gpu_memory_utilization", 0.5))
        # What the policy scores may be longer than any row, such as the whole history in MemPO.
        self.server_window = self.window if self.loop["scorer"] == "policy" else self.plan.row
        self.methods = [name for name, _ in self.loop["methods"]]
        searches = str(self.loop["settings"].get("retriever")).startswith("dense:")
        extras = {"endpoint": "Judge" in self.methods, "search": searches}
        self.extras = [extra for extra, needed in extras.items() if needed]
        gpus_a_server = 1  # so that its weights in bfloat16 are at most a fifth of a card
        while 2 * self.parameters / gpus_a_server > MEMORY / 5 and args.gpus % (2 * gpus_a_server) == 0:
            gpus_a_server *= 2
        self.total_epochs = math.ceil(self.passes) + 1  # the steps end the run
        self.loops_file = self.folder / "loops.yaml"
        self.settings = {SERVER: gpus_a_server, **settings_of(learner, self)}

    def check(self, config: Any) -> object:
        """Check the workers that the configuration needs, too."""
        needs: Any = require("verl.trainer.ppo.utils", "verl")
        if find_spec("vllm") is None:  # verl imports it for the rank of an adapter, and needs it for no more
            config.actor_rollout_ref.rollout.name = "sglang"
        trains = needs.need_reference_policy(config), needs.need_critic(config)
        return require("verl.utils.config", "verl").validate_config(config, *trains)

    def write(self) -> None:
        """Write the rows of both sets of tasks, and the loops."""
        train = [task_row(index, task, "train") for index, task in enumerate(self.tasks)]
        test = [task_row(index, task, "test") for index, task in enumerate(self.others)]
        pq.write_table(pa.Table.from_pylist(train), self.train_file)
        pq.write_table(pa.Table.from_pylist(test), self.val_file)
        text = require("yaml", "verl").safe_dump(unresolved(self.loops), sort_keys=False)
        write_text(self.loops_file, text)

    def findings(self) -> list[str]:
        """The tasks, the group that was played, its rows, and what is learned from it."""
        args, group, plan = self.args, self.group, self.plan
        turns = np.mean([len(episode.turns) for episode in group])
        taught = sum(bool(np.any(episode.advantages)) for episode in group)
        credit = f"{args.reward}, not 0 in {taught} of {len(group)} rollouts"
        if self.loop["comparison"] is None:
            credit = f"verl's GAE over {PAID[args.reward]}"
        lexical = " (lexical in this check)" if self.loop["scorer"] == "policy" else ""
        return [
            f"tasks: {len(self.tasks):,} to train on ({args.steps:,} steps of {args.groups} are "
            f"{self.passes:.1f} passes), {len(self.others):,} others for validation",
            f"environment: {args.env}, {turns:.1f} turns in a scripted group of {len(group)}, "
            f"successes {sum(bool(episode.success) for episode in group)}",
            f"rows: {Spread.of(plan.rows)} an episode; optimizer steps of a step: {plan.optimizer_steps}",
            f"tokens of a row: prompt {plan.seen[0]}, limit {plan.prompt:,}; then {plan.seen[1]}, limit "
            f"{plan.response:,}; of a pass: {plan.micro_batch:,}",
            f"methods: {', '.join(self.methods) or 'none'}; scorer: {self.loop['scorer'] or 'none'}{lexical}",
            f"credit: {credit}",
        ]


def loops_of(args: Any, learner: str) -> list[dict[str, Any]]:
    """The agent loops: one to train, and one for validation in the environment of evaluations.

    Their `comparison` is None where verl's own estimator reads the rewards.
    """
    parameters = env_parameters(args.env)
    env_args = absolute(args.env_args, parameters)
    eval_args = evaluation_args(args.env, args.env_args, args.eval_env_args)
    specs = read_methods(args.methods)  # none where `[]` takes a recipe's methods away
    methods: list[RewardMethod] = [*make_methods(specs)] if specs else []
    comparison = None
    if learner == "grpo":
        compared, how = read_comparison(args.reward, **args.reward_args)
        if isinstance(compared, RewardMethod):
            methods.append(compared)
        defaults = asdict(type(how)())
        changes = {name: value for name, value in asdict(how).items() if value != defaults[name]}
        comparison = {"reward": args.reward.lower(), **changes}
    plain = [(*plain_method(method), parameters_of(type(method))) for method in methods]
    scorer: str = args.scorer
    if scorer.lstrip().startswith("["):
        name, values = json.loads(scorer)
        scorer = json.dumps([name, absolute(values)])
    loop: dict[str, Any] = {
        "name": "memenvs",
        "_target_": f"{ADAPTER}.EpisodeLoop",
        "env": args.env,
        "settings": env_args,
        "methods": [[name, absolute(values, takes)] for name, values, takes in plain],
        "scorer": absolute_path(scorer) if methods else None,
        "comparison": comparison,
        "max_new_tokens": args.max_new_tokens,
        "ends": named_ends(args.model),
    }
    if comparison is None:
        loop["placement"] = args.reward
    chat = asdict(args.chat_settings)
    del chat["chat_args"]  # which are data.apply_chat_template_kwargs
    others = {flag: getattr(args, flag, None) for flag in ("mask_truncated", "overlong", "drop_flat_groups")}
    others["chat"] = {name: value for name, value in chat.items() if value}
    loop |= {flag: value for flag, value in others.items() if value}
    if args.save_episodes:
        loop["episodes"] = str(args.out.resolve() / EPISODES)
    test_args = env_args if REQUIRED in eval_args.values() else absolute(eval_args, parameters)
    both = [loop, {**loop, "name": "memenvs_test", "settings": test_args}]
    loops: list[dict[str, Any]] = json.loads(json.dumps(both))  # plain data, nothing of it shared
    if without_secrets(loops) != loops:
        raise ValueError("loops.yaml must not hold the secrets of an address; leave out --engine verl")
    return loops


def choose_tasks(
    args: Any, trained: Mapping[str, Any], tested: Mapping[str, Any]
) -> tuple[list[int], list[int]]:
    """The numbers of the tasks to train on and of others for validation, by both environments' arguments."""
    size, seed = count_tasks(args.env, trained), args.seed
    wanted = args.steps * args.groups
    defaults = {parameter.name: parameter.default for parameter in env_parameters(args.env) or ()}
    train, test = {**defaults, **trained}, {**defaults, **tested}
    if all(train.get(name) == test.get(name) for name in ("tasks", "levels", "level_split")):
        held = max(1, min(args.eval_episodes, size // 10))
        order = draw_tasks(size, [seed, 0], 0, min(size, wanted + held))
        tasks, others = order[:-held], order[-held:]
    else:
        tasks = draw_tasks(size, [seed, 0], 0, min(size, wanted))
        n_others = count_tasks(args.env, tested)
        others = draw_tasks(n_others, [seed, 1], 0, min(n_others, args.eval_episodes))
    if len(tasks) < args.groups:
        raise ValueError(
            f"a step plays {args.groups} tasks, and there are {len(tasks)}; lower --groups or give more tasks"
        )
    return tasks, others


def play_check(args: Any, loop: Mapping[str, Any], window: int | None) -> tuple[list[Episode], list[Episode]]:
    """A group with its credit, and two episodes of each of `PLAYED` tasks, by a scripted sampler.

    The tasks are spread over all of the set, whatever the seed. Every second episode of a task knows the
    answer; the others write at the limit of their replies.
    """
    tokens = chat_tokens(args.model, args.chat_settings)
    reader, limit = ChatPolicy(tokens, window=window), args.max_new_tokens
    filler = tokens.encode(" word" * limit)

    def reply(request: Request) -> Reply:
        prompt, env = prompt_of(reader, request, limit), text_env_of(request.env)
        if request.episode.member % 2 == 0:
            ids = tokens.reply(env.gold_reply())
        elif isinstance(env, SearchQAEnv):
            search = env.choices(())[0]  # for the question, since other words may find nothing
            memory = tokens.reply_text(filler[: max(limit - len(tokens.reply(search)), 0)])
            ids = tokens.reply(search.replace("</mem>", f"{memory}</mem>", 1))
        else:
            ids = filler
        ids = ids[: max(prompt.room, 0)]
        return prompt.reply(Reply(tokens.reply_text(ids), ids, np.zeros(len(ids))))

    def group(task: int, size: int) -> list[Episode]:
        return [Episode(seed=task, group=task, number=task, member=member) for member in range(size)]

    make_env, policy = maker(args.env, loop["settings"]), TurnPolicy(reply)
    paid = group(0, max(2, args.group_size))
    scorer = make_scorer("lexical" if args.scorer == "policy" else args.scorer)
    with_credit = Loop(make_env, policy, loop["methods"], scorer, errors="raise")
    with_credit.play_all([paid])
    record_advantages(paid, reader, loop["comparison"], with_credit.methods)
    size = count_tasks(args.env, loop["settings"])
    n_played = min(size, PLAYED)
    # without the methods, some of which ask a server
    pairs = [group(size * place // n_played, 2) for place in range(n_played)]
    Loop(make_env, policy, errors="raise").play_all(pairs)
    return paid, [*itertools.chain(*pairs)]


def check_fits_gae(plan: BatchPlan, group: list[Episode]) -> None:
    """Refuse what verl's GAE cannot read: rows of one episode, and rewards that are advantages already."""
    if max(plan.rows) > 1:
        raise ValueError(
            "verl's GAE runs within a row, and an episode whose prompts are rewritten has a row for each "
            "turn; use an environment whose prompts grow (memory_mode=react), or leave --engine verl out"
        )
    for episode in group:
        for name, credits in episode.credits.items():
            if any(credit.advantage and credit.known for credit in credits):
                raise ValueError(f"verl's GAE cannot add the advantages of {name}; leave that method out")
