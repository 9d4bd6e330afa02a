"""Arguments of the learners, a class each: the flags of `memenvs train`, with their help.

Reading them needs no torch, so that help and wrong flags are shown at once; what checks their values is
imported when they are checked.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from memenvs.core import data
from memenvs.core.address import without_secrets
from memenvs.core.arguments import check_env_arguments
from memenvs.core.data import Count, NonNegative, Positive, Share, Whole
from memenvs.core.processes import Workers
from memenvs.core.text import prompts_hash, read_system_prompt
from memenvs.core.trackers import TrackerName
from memenvs.credit.tokens import Placement
from memenvs.models.settings import ChatSettings, Generation, Loading, SamplingParams

LossAggMode = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
Divergence = Literal["forward", "reverse", "jsd"]
KLEstimator = Literal["k3", "k2"]
LossMode = Literal["ppo", "gspo", "cispo"]
Clip = Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=2)]
Level = Literal["token", "turn", "both"]

RESUMABLE = frozenset(
    "recipe out resume save_every keep dtype gradient_checkpointing micro_batch_tokens num_envs "
    "save_episodes track vllm eval_every workers dry_run merge".split()
)
"""Flags that may differ when a run is resumed, besides its length: they change how it computes or logs.

A checkpoint refuses a `dtype` of another precision than its own, which "auto" can be on another machine."""


@dataclass(frozen=True)
class TrainArgs(Loading, ChatSettings):
    """Arguments of every training: what a run writes, its model, and how the model is optimized (AdamW)."""

    LENGTH: ClassVar[str]
    """The flag that says how long a run is."""
    FIRST: ClassVar[tuple[str, ...]] = ("model", "env", "env_args", "out")
    """The flags that help shows first, those that a learner has."""

    recipe: str = ""
    """File of flags, args.json of a run, or name of a bundled recipe (docs/papers.md); the command line
    overrides it."""
    out: Path = Path("runs/last")
    """Folder for checkpoints and logs."""
    resume: bool = False
    """Resume from the newest checkpoint in the folder, with the run's own flags (OUT/args.json); `memenvs
    train --resume --out OUT` finds the learner there too."""
    save_every: Count = 50
    """Steps between checkpoints (OUT/checkpoints/step-N); OUT/last links to the newest."""
    keep: Count = 3
    """Number of recent checkpoints to keep, besides the best."""
    seed: Whole = 0
    """Seed of all random numbers."""
    track: tuple[TrackerName, ...] = ("tensorboard",)
    """Trackers that also get the numbers of log.jsonl (docs/learners.md); a bare `--track` uses none."""

    model: str = ""
    """Folder of a causal model, its name on the hub, or a name of `memenvs list`: smollm2, smollm2-reader."""
    revision: str = ""
    """Commit, tag or branch of a model on the hub. Runs, model cards and adapters record the commit, as
    NAME@COMMIT, which is also a name for --model, hf: and scorers."""
    lora_rank: Whole = 0
    """Train a new LoRA adapter of this rank instead of the weights; 0 adds none."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them."""
    micro_batch_tokens: Count = 8192
    """Maximum number of tokens in a forward pass, with padding; limits memory."""
    lr: NonNegative = 1e-6
    """Learning rate."""
    lr_warmup: NonNegative = 0.0
    """Steps over which the learning rate rises; if below 1, a share of all steps."""
    lr_end: Share = 1.0
    """Final learning rate as a fraction of the peak, reached linearly after the warm-up."""
    adamw: dict[str, Any] = field(default_factory=dict)
    """Other settings of torch.optim.AdamW, such as betas=[0.9,0.95] weight_decay=0.01 (by default 0)."""
    max_grad_norm: Positive = 1.0
    """A gradient of a larger norm is scaled down to this norm."""

    def check(self) -> None:
        """Check every flag against its annotation; learners add what an annotation cannot say.

        Raises:
            ValueError: a flag is out of range, or contradicts another, or no model is given.
        """
        if not self.model:
            raise ValueError("no model is given; add --model with a folder or a name on the hub")
        if self.revision:  # which the command line makes a part of the model's name
            raise ValueError(f"revision is a flag of the command line; give model NAME@{self.revision}")
        data.check_fields(self)

    @property
    def chat_settings(self) -> ChatSettings:
        """How prompts are encoded, with the text of the system prompt."""
        prompt = read_system_prompt(self.system_prompt)
        return ChatSettings(self.chat_args, self.split_special_tokens, prompt, self.drop_thoughts)

    @functools.cached_property
    def prompts(self) -> dict[str, str]:
        """Hashes of the prompts that arguments give, by what takes them."""
        from memenvs.wrappers.registry import read_methods

        takers = {name: getattr(self, name, {}) for name in ("env_args", "eval_env_args")}
        for method in read_methods(getattr(self, "methods", ())):
            if isinstance(method, list):
                takers[f"methods.{method[0]}"] = method[1]
        templates = {taker: arguments.get("template") for taker, arguments in takers.items()}
        hashes = {
            name: prompts_hash(prompt, f"{name} template") for name, prompt in templates.items() if prompt
        }
        if self.system_prompt:
            hashes["system_prompt"] = prompts_hash(self.system_prompt, "system_prompt")
        return hashes

    def plain(self) -> dict[str, Any]:
        """Every flag by name, and `prompts` where there are any, as a JSON file holds them."""
        values: dict[str, Any] = json.loads(json.dumps(without_secrets(asdict(self)), default=str))
        return {**values, **({"prompts": self.prompts} if self.prompts else {})}

    def check_begun(self, begun: Mapping[str, Any]) -> None:
        """Refuse to continue a run that was begun with other flags, apart from `resumable`.

        Args:
            begun: the flags that it was begun with, as `plain` gives them. A flag that is newer than the run
                had its default.

        Raises:
            ValueError: a flag differs.
        """
        before = {**type(self)().plain(), **begun}
        for name, value in self.plain().items():
            if name not in self.resumable and before.get(name) != value:
                raise ValueError(
                    f"{self.out} was begun with {name} {before.get(name)!r}, now {value!r}; give the same "
                    "value, or another --out"
                )

    @property
    def resumable(self) -> frozenset[str]:
        """The flags that may differ when a run is resumed.

        The length of the run may differ too, unless the learning rate depends on it.
        """
        shares = [getattr(self, name, 0.0) for name in ("lr_warmup", "critic_lr_warmup")]
        depends = self.lr_end < 1 or any(0 < share < 1 for share in shares)
        return RESUMABLE if depends else RESUMABLE | {self.LENGTH}


@dataclass(frozen=True)
class EngineArgs(TrainArgs):
    """Arguments of a learner that another engine can run."""

    engine: Literal["memenvs", "verl"] = "memenvs"
    """What trains: the readable loop of this package, which holds a whole model on each GPU, or verl, which
    shards it (docs/scale.md)."""
    gpus: Count = 8
    """With verl, GPUs per node."""
    nodes: Count = 1
    """With verl, number of nodes."""
    dry_run: bool = False
    """With verl, check the run and write its folder without starting it."""
    merge: Count | None = None
    """With verl, make the checkpoint of this step a model that transformers and vLLM load
    (OUT/models/step-N), with the run's own flags (OUT/args.json)."""

    def check(self) -> None:
        """Check the engine's flags too."""
        super().check()
        for flag in ("gpus", "nodes", "dry_run", "merge"):
            if self.engine == "memenvs" and getattr(self, flag) != getattr(EngineArgs, flag):
                name = f"--{flag}".replace("_", "-")
                raise ValueError(f"{name} is for --engine verl; add --engine verl, or leave {name} out")


@dataclass(frozen=True)
class PlayArgs(Generation, TrainArgs):
    """Arguments of a learner that plays: the environment, how replies are sampled, and evaluations."""

    env: str = "MemSokoban-v0"
    """Id of the environment, such as MemChunkQA-v0 (`memenvs list environments`); a command line names it, or
    its recipe does."""
    env_args: dict[str, Any] = field(default_factory=dict)
    """Its arguments, as max_turns=2 level_split=test or one JSON object (`memenvs list ID` shows them)."""
    num_envs: Count = 128
    """Environments played at once, rounded down to whole groups."""
    max_model_len: Count | None = None
    """Maximum number of tokens in a prompt and its replies together; by default the model's window, which it
    cannot exceed."""
    vllm: dict[str, Any] | None = None
    """Sample with vLLM, which gets a copy of the weights, and these arguments of vllm.LLM, such as
    gpu_memory_utilization=0.4. Without this flag the model in training samples."""
    eval_every: Whole = 0
    """Steps between evaluations; 0 turns them off. OUT/best links to the step with the highest success."""
    eval_episodes: Count = 128
    """Episodes in an evaluation, each of a different task, the same tasks every time; fewer if the set is
    smaller."""
    eval_env_args: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment that differ in evaluations, such as level_split=test."""
    eval_temperature: NonNegative | None = None
    """Temperature of evaluations; 0 takes the likeliest tokens. By default it is that of training."""
    save_episodes: Whole = 0
    """Write this many episodes of every step and of every evaluation to OUT/episodes.jsonl
    (`memenvs view OUT`)."""

    @property
    def model_plays(self) -> bool:
        """Whether the model samples replies."""
        return True

    @property
    def sampling_params(self) -> SamplingParams:
        """How replies are sampled in training."""
        return SamplingParams(self.temperature, self.stop)

    def check(self) -> None:
        """Check the environments of training and of evaluation too."""
        super().check()
        data.check("temperature", self.temperature, Positive)
        for different in ({}, self.eval_env_args):
            check_env_arguments(self.env, {**self.env_args, **different})


@dataclass(frozen=True)
class StepArgs(PlayArgs):
    """Arguments of a learner that plays new tasks at every step: the tasks of a step, and its loss."""

    LENGTH = "steps"

    steps: Count = 100
    """Training steps."""
    groups: Count = 16
    """Tasks per step."""
    group_size: Count = 8
    """G, episodes per task."""
    epochs: Count = 1
    """Passes over the episodes of a step."""
    minibatches: Count = 1
    """Optimizer steps per pass; groups stay together."""
    loss_agg_mode: LossAggMode = "token-mean"
    """How the losses of tokens are averaged: each token weighs the same ("token-mean", DAPO) or each sequence
    does ("seq-mean-token-mean", GRPO). "seq-mean-token-sum" adds a sequence's tokens;
    "seq-mean-token-sum-norm" divides this sum by max_new_tokens (Dr. GRPO). If prompts are rewritten, and on
    trees, a sequence is a turn."""
    mask_truncated: bool = False
    """Leave replies that reached their limit of tokens out of the loss (DAPO's overlong filtering). Their
    episodes are compared as before."""


@dataclass(frozen=True)
class RewardArgs(StepArgs):
    """Arguments of a learner that learns from rewards: reward methods, and the loss by advantages."""

    methods: Sequence[str] = ()
    """Reward methods: TAMTRL, InfoMem beta=0.1, package.module:Class for your own, or JSON such as
    '["Judge", {"url": …}]'. (`memenvs list` shows all.)"""
    scorer: str = "policy"
    """Model that scores for the reward methods: the policy in training, or a fixed one ("hf:MODEL",
    "lexical")."""
    loss_mode: LossMode = "ppo"
    """The policy's loss: the clipped ratio of each token ("ppo"); of each sequence, as loss_agg_mode counts
    them (GSPO, arXiv 2507.18071 eq. 7; its paper has clip 3e-4 4e-4 and "seq-mean-token-mean"); or -log p
    weighted by the advantage and the clipped ratio, so that every token keeps a gradient (CISPO, arXiv
    2506.13585 eq. 4; clip 1 4 has no lower bound)."""
    clip: Clip = (0.2,)
    """How far the ratio of probabilities may go below and above 1: one number for both, or two, such as
    0.2 0.28 (DAPO's clip-higher)."""
    dual_clip: Annotated[float, Meta(gt=1)] | None = None
    """Bound c > 1 on the loss of negative advantages; off by default."""
    kl_coef: NonNegative = 0.0
    """Weight of the divergence from the initial model; 0 does not load that model."""
    kl_estimator: KLEstimator = "k3"
    """How the loss measures the divergence: "k3" is never negative and unbiased, and its gradient is that of
    KL(initial || policy); "k2" has the gradient of KL(policy || initial), however far apart the two are."""
    ref_sync_steps: Whole = 0
    """Steps between updates of the model that kl_coef measures the divergence from, by the policy (TR-DPO,
    arXiv 2404.09656); 0 keeps the initial model."""
    ref_mixup: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """alpha of an update, reference = alpha policy + (1 - alpha) reference: 1 copies the policy (TR-DPO's
    hard update); less, after every step, is a moving average (its soft update, 0.5 to 0.6 there)."""
    importance_cap: Positive | None = None
    """Weight the loss of a token by its probability under the policy in training divided by that under the
    sampler, at most by this much, such as 2. This corrects for vLLM and bfloat16; off by default."""
    importance_floor: Positive | None = None
    """With importance_cap, leave what has a weight below this or above the cap out of the loss instead of
    capping it, such as 0.5 with a cap of 5 (IcePop, arXiv 2510.18855)."""
    importance_level: Literal["token", "sequence"] = "token"
    """What the weight is of: each token, or a sequence as a whole, the product over its tokens (unbiased, but
    far from 1 if sequences are long)."""
    entropy_coef: NonNegative = 0.0
    """Weight of the entropy bonus."""

    @property
    def kl_in_loss(self) -> bool:
        """Whether the divergence is a part of the loss, not of the rewards."""
        return True

    def check(self) -> None:
        """Check the methods too, and that the estimator has something to measure."""
        from memenvs.wrappers.registry import make_methods, read_methods

        super().check()
        methods = make_methods(named) if (named := read_methods(self.methods)) else ()
        if getattr(self, "reward", "") == "outcome" and any(method.continuations for method in methods):
            raise ValueError("--reward outcome learns nothing from Continuations; give --reward turn")
        if self.kl_estimator != "k3" and not (self.kl_coef and self.kl_in_loss):
            raise ValueError(
                f"kl_estimator {self.kl_estimator} is for a divergence in the loss; give --kl-coef, and "
                "leave --kl-in reward out"
            )
        if (self.ref_sync_steps and not self.kl_coef) or (self.ref_mixup != 1 and not self.ref_sync_steps):
            raise ValueError(
                "ref_mixup is for ref_sync_steps, which is for kl_coef; give all that are needed"
            )
        if self.ref_sync_steps > self.steps:
            raise ValueError(
                f"ref_sync_steps must be at most steps {self.steps}, or the reference stays the initial "
                f"model, got {self.ref_sync_steps}"
            )
        if self.dual_clip and self.loss_mode != "ppo":
            raise ValueError(f"dual_clip is for loss_mode ppo, got {self.loss_mode}; give --dual-clip None")
        floor, cap = self.importance_floor, self.importance_cap
        if cap is None and (floor or self.importance_level != "token"):
            raise ValueError("importance_floor and importance_level are for importance_cap; give it too")
        if floor and cap and not floor <= 1 <= cap:
            raise ValueError(f"1 must lie between importance_floor and importance_cap, got {floor} and {cap}")


@dataclass(frozen=True)
class SFTArgs(EngineArgs, PlayArgs):
    """Behaviour cloning; with the model as its own teacher and the filter, STaR.

    Examples:
        memenvs train sft --model FOLDER --env MemSokoban-v0 --teacher gold --out runs/sft
        memenvs train sft --model FOLDER --env MemChunkQA-v0 --teacher careful
        memenvs train sft --model FOLDER --env MemChunkQA-v0 --teacher episodes.jsonl
        memenvs train sft --model smollm2 --env MemToolQA-v0 --lora-rank 8 --lr 2e-4 --teacher self
    """

    LENGTH = "epochs"
    FIRST = ("model", "env", "env_args", "teacher", "out")

    lr: NonNegative = 1e-4
    teacher: str = "gold"
    """Who plays: "self" (the model), "careful" (reading, tool calls: it notes and answers what it has read),
    "gold" (other environments; in reading it teaches to invent, as no chunk says what it notes), another
    scripted policy, module:function (sees info["privileged"], too), hf:MODEL, openai:MODEL@URL, or a .jsonl
    file."""
    episodes: Count | None = None
    """Number of episodes to play, 1000 by default, or maximum number to learn from a file, by default all."""
    workers: Workers = 1
    """Processes that play a teacher's episodes, or "ray" for those of a Ray cluster."""
    learn_from: Literal["success", "all"] = "success"
    """Learn from episodes that solved their task (STaR's filter), or from all."""
    batch_size: Count = 32
    """Training sequences per optimizer step."""
    epochs: Count = 1
    """Passes over the sequences."""
    shuffle: bool = True
    """Learn from the sequences in random order, or in the order of the teacher's episodes, so that prefixes
    shared by neighbours are computed once per batch."""

    @property
    def model_plays(self) -> bool:
        """Whether the model is its own teacher or is evaluated."""
        return self.teacher == "self" or self.eval_every > 0


@dataclass(frozen=True)
class DistillArgs(StepArgs):
    """Distillation, on-policy from a teacher that reads the evidence, or on the teacher's own rollouts.

    Examples:
        memenvs train distill --model FOLDER --env MemChunkQA-v0 --out runs/distilled
        memenvs train distill --model FOLDER --env MemChunkQA-v0 --view global --divergence jsd
        memenvs train distill --model FOLDER --recipe tamtrl_kd --teacher-model OTHER
    """

    FIRST = ("model", "env", "env_args", "teacher_model", "out")

    group_size: Count = 1
    """G, episodes per task; distillation needs no groups."""
    teacher_model: str = ""
    """Folder or hub name of the teacher, with the same vocabulary; by default the initial model."""
    view: Literal["local", "global", "student"] = "local"
    """What the teacher reads: the prompt with only the evidence of the chunk in its place ("local"), with all
    evidence ("global"), or the same tokens as the student ("student")."""
    rollouts: Literal["student", "teacher"] = "student"
    """Who writes the replies to learn from; the teacher's follow the student's prompt."""
    divergence: Divergence = "forward"
    """KL(teacher || student), KL(student || teacher) ("reverse"), or the Jensen-Shannon divergence."""

    @property
    def model_plays(self) -> bool:
        """Whether the student writes the replies, or is evaluated."""
        return self.rollouts == "student" or self.eval_every > 0

    def check(self) -> None:
        """Check the teacher's flags too."""
        super().check()
        if self.view == "student" and not self.teacher_model:
            raise ValueError(
                "with view student the model would only teach itself what it knows; give --teacher-model, or "
                "view local or global"
            )
        if self.rollouts == "teacher" and self.vllm is not None:
            raise ValueError("vllm samples with the student's weights; leave it out for --rollouts teacher")


@dataclass(frozen=True)
class PRMArgs(TrainArgs):
    """A process reward model: a causal model with a linear layer, by binary cross-entropy (TAMTRL B.2).

    Examples:
        memenvs train prm --model FOLDER --episodes runs/play/episodes.jsonl --out runs/prm
        memenvs train prm --model FOLDER --episodes a.jsonl b.jsonl --held-out 0.2 --epochs 2
        memenvs train prm --model FOLDER --episodes runs/play/episodes.jsonl --labels tamtrl
    """

    LENGTH = "epochs"
    FIRST = ("model", "episodes", "out")

    lr: NonNegative = 2e-5
    episodes: tuple[Path, ...] = ()
    """Files of episodes: `episodes.jsonl` of `evaluate run --out` or of learners with --save-episodes."""
    labels: str = "outcome"
    """Label of a turn: whether its episode solved the task, or the number from 0 to 1 that a reward method
    measured (tamtrl: p_t of the memory that it wrote). The last turn always has the first label."""
    held_out: Annotated[float, Meta(gt=0, lt=1)] = 0.1
    """Share of the tasks that are held out for measurement."""
    batch_size: Count = 32
    """Training sequences per optimizer step: whole episodes if the context is appended, otherwise turns."""
    epochs: Count = 1
    """Passes over the sequences; each ends with a measurement."""


@dataclass(frozen=True)
class MTPPOArgs(EngineArgs, RewardArgs):
    """MT-PPO, PPO-MR and PPO-OR, which differ in where rewards are placed.

    Examples:
        memenvs train mt_ppo --model FOLDER --env MemSokoban-v0 --reward turn
        memenvs train mt_ppo --model FOLDER --recipe mt_ppo_search --env-args tasks=FOLDER k=5
        memenvs train mt_ppo --model FOLDER --env MemSokoban-v0 --reward merged --critic shared
    """

    FIRST = ("model", "env", "env_args", "reward", "out")

    group_size: Count = 1
    """G, episodes per task; PPO needs no groups."""
    reward: Placement = "turn"
    """Each turn's reward at its own last token (MT-PPO eq. 9), or all at the episode's last: their sum
    ("merged", PPO-MR) or the outcome alone ("outcome", PPO-OR)."""
    gae: Level = "token"
    """The time step of generalised advantage estimation: a token, a turn (Turn-PPO), or both, first over the
    turns and then inside each (VAGEN)."""
    gamma: Share = 1.0
    """Discount per time step; with gae both, per token."""
    turn_gamma: Share = 1.0
    """Discount per turn; only with gae both."""
    lam: Share = 1.0
    """Lambda of generalised advantage estimation."""
    bootstrap_truncated: bool = False
    """Where a limit truncated an episode, go on with the critic's value of what would have been read next
    instead of 0 (partial-episode bootstrapping, arXiv 1712.00378): for a limit that is not part of the task,
    and that the prompts do not show."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where the divergence goes: into the loss, by kl_estimator, or subtracted from each token's reward (the
    estimator k1)."""

    critic: Literal["separate", "shared"] = "separate"
    """A second model initialised from the policy, which doubles the memory of training ("separate"), or a
    linear layer on the policy's hidden states ("shared"; keep value_coef small if rewards are large)."""
    critic_lr: NonNegative | None = None
    """Learning rate of the critic, or of the linear layer alone if it is shared; by default ten times lr, as
    in MT-PPO (1e-5 and 1e-6)."""
    critic_lr_warmup: NonNegative = 0.0
    """The same as lr_warmup, for the critic."""
    critic_warmup: Whole = 0
    """Number of first steps in which only the critic learns."""
    value_clip: Positive | None = 0.2
    """How far a value may move from what it was when the tokens were sampled, in units of the reward; None
    sets no limit, for large rewards (Sokoban's +10)."""
    value_coef: Positive = 1.0
    """Weight of the critic's loss, 1/2 (V - R)^2: relative to the policy's if shared, before clipping if
    separate."""

    @property
    def kl_in_loss(self) -> bool:
        """Whether the divergence is a part of the loss, not of the rewards."""
        return self.kl_in == "loss"

    @property
    def critic_rate(self) -> float:
        """The critic's learning rate."""
        return 10 * self.lr if self.critic_lr is None else self.critic_lr

    def check(self) -> None:
        """Check the critic's flags too."""
        super().check()
        if self.critic_warmup >= self.steps:
            raise ValueError(
                f"critic_warmup must be below steps {self.steps}, or the policy never learns, "
                f"got {self.critic_warmup}"
            )
        if self.kl_in == "reward" and not self.kl_coef:
            raise ValueError("kl_in reward has no effect without kl_coef; give --kl-coef too")
        if self.turn_gamma < 1 and self.gae != "both":
            raise ValueError(f"turn_gamma is for gae both, got gae {self.gae}; give --gamma")


@dataclass(frozen=True)
class GRPOArgs(EngineArgs, RewardArgs):
    """GRPO, RLOO and REINFORCE by outcome, return or turn; DAPO's parts; reward methods with their credit.

    Examples:
        memenvs train grpo --model FOLDER --env MemChunkQA-v0 --reward tamtrl
        memenvs train grpo --model FOLDER --recipe infomem_reading --env-args tasks=FOLDER
        memenvs train grpo --model FOLDER --env MemToolQA-v0 --reward turn --reward-args estimator=rloo
    """

    FIRST = ("model", "env", "env_args", "reward", "out")

    reward: str = "outcome"
    """What a group compares: the outcome (GRPO-OR), the sum of all turns ("merged", GRPO-MR), each turn with
    the turns of the same number ("turn", MT-GRPO) or with all turns ("turn-pool", TAMTRL eq. 7 for any
    rewards). Or a reward method, such as tamtrl, which compares as its paper does."""
    reward_args: dict[str, Any] = field(default_factory=dict)
    """Settings of the reward method, such as minmax=false, and of the comparison. estimator=rloo compares
    with the mean of the others, reinforce with nothing, so that a group can be one episode. scale=none does
    not divide by the group's standard deviation. For turns: alpha=0.9 discounts later turns and the outcome,
    and ended=skip does not count an ended episode as 0 at the turns that others still play. For sums:
    normalize=components and component_weights={"format":0.5} (GDPO)."""
    tree_turns: Whole = 0
    """Branch every reply of this many first turns (MT-GRPO on a tree): G + G^2 + … replies per task; 0 plays
    G episodes per task."""
    dynamic_sampling: Whole = 0
    """DAPO: keep only groups with right and wrong answers (eq. 11), by the environment's outcome alone, and
    sample up to this many more batches of tasks until there are enough."""
    drop_flat_groups: bool = False
    """Leave groups without any advantage out of the loss, and out of the number of tokens or sequences that
    it is a mean over, as DAPO's eq. 11 does with those that it filters; otherwise they count as zeros."""
    overlong: tuple[Count, Count] | None = None
    """DAPO's penalty on long episodes, such as 4096 512: it is 1 at this many tokens of replies, and rises
    from 0 over this many tokens before. By default there is none."""

    def check(self) -> None:
        """Check what a group compares too."""
        from memenvs.baselines.advantages import read_comparison
        from memenvs.rollout.tree import check_cost, check_immediate
        from memenvs.wrappers import RewardMethod
        from memenvs.wrappers.registry import make_methods, read_methods

        super().check()
        comparison, how = read_comparison(self.reward, **self.reward_args)
        if isinstance(comparison, RewardMethod):
            alone = comparison.continuations > 0
        else:
            alone = how.estimator == "reinforce"
        if self.group_size < 2 and not alone:
            raise ValueError(
                f"group_size must be at least 2, since the episodes of a group are compared, got "
                f"{self.group_size}; only continuations, and estimator=reinforce without a method, take 1"
            )
        if self.dynamic_sampling and self.group_size < 2:
            raise ValueError("dynamic_sampling needs a group_size of at least 2, got 1; leave it out")
        if self.overlong and self.overlong[1] > self.overlong[0]:
            raise ValueError(
                f"the second number of overlong must be at most the first, got {self.overlong[0]} and "
                f"{self.overlong[1]}"
            )
        if self.tree_turns:
            if (self.reward, how.estimator) != ("turn", "grpo"):
                raise ValueError(
                    f"trees are for --reward turn and estimator grpo, got {self.reward} and "
                    f"{how.estimator}; leave tree_turns out"
                )
            for flag in ("dynamic_sampling", "overlong"):
                if getattr(self, flag):
                    raise ValueError(
                        f"{flag} is for groups, not for trees, got {getattr(self, flag)!r}; leave it out, or "
                        "leave tree_turns out"
                    )
            check_cost(self.groups, self.group_size, self.tree_turns)
            if self.methods:
                check_immediate(make_methods(read_methods(self.methods)))


LEARNERS: Mapping[str, type[TrainArgs]] = {
    "sft": SFTArgs,
    "distill": DistillArgs,
    "prm": PRMArgs,
    "mt_ppo": MTPPOArgs,
    "grpo": GRPOArgs,
}
"""The arguments of each learner, by the name of its module."""
