"""A policy that samples from a transformers model, and gives log-probabilities with gradients.

`replies = HFPolicy("MODEL", max_new_tokens=256)(requests)`.
"""

from __future__ import annotations

import copy
import functools
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from memenvs.core.data import Count, checked
from memenvs.core.episode import Ids, Reply
from memenvs.core.files import damage_in_one_line, read_json, whole_folder, write_json, write_text
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.models.loading import (
    CausalLM,
    Tokenizer,
    can_reuse_cache,
    evaluating,
    load_hf_tokenizer,
    load_model,
)
from memenvs.models.lora import (
    MergedModel,
    add_adapter,
    base_name,
    belongs_to,
    has_adapter,
    load_adapter,
    model_reference,
    read_adapter,
    save_adapter,
    twin,
    without_adapter,
)
from memenvs.models.packaged import MODELS, base_of, is_adapter, resolve, split_revision
from memenvs.models.policy import Limit, LoRA, PolicyOutput, reply_limits
from memenvs.models.reader import Masks, SequenceReader, by_slices
from memenvs.models.sampling import StoppingCriteria, TokenSampler, scale_logits
from memenvs.models.settings import ChatSettings, Dtype, SamplingParams

T = TypeVar("T")

BATCH = 262_144  # tokens of prompts and replies whose keys and values are kept at once
SETTINGS, VALUE_HEAD = "policy.json", "value_head.safetensors"
CARD = Path(__file__).with_name("model_card.md")


class HFPolicy(SequenceReader, ChatPolicy):
    """A causal language model of Hugging Face transformers as a policy; `add_value_head` gives it values.

    It samples with its present weights, so nothing has to be copied after an update. It samples in evaluation
    mode; `forward` leaves the mode to the learner (dropout makes its log-probabilities differ from those
    of sampling; gradient checkpointing needs training mode).

    Args:
        model: a folder, a name on the hub (safetensors only, no code of the model is run) or of a packaged
            model (`smollm2`, see `memenvs.models.packaged`); or a causal model in memory.
        tokenizer: a name, a folder or a fast tokenizer; None: the one beside the model.
        sampling_params: how it samples; None: from the whole distribution at temperature 1. The temperature
            is also that of all log-probabilities (1 where it is 0), which are of the whole distribution
            even where sampling is truncated. Ids that no token of the tokenizer has are not in it.
        chat: an observation is a user's message in the tokenizer's chat template; None: if it has one.
        chat_settings: the template's arguments, control tokens and the system message; None: the defaults.
        lora: an adapter to train instead of the model, whose weights are shared and frozen; None: that of the
            model's folder, if it is an adapter's. On a CPU its sum with the weights samples, which computes
            faster and rounds differently.
        device: torch device for a model given by name; None: a GPU if there is one.
        dtype: precision of a model given by name; `"auto"` is the checkpoint's if the device computes fast in
            it, otherwise float32 (see `memenvs.models.loading.load_model`).
        max_batch_tokens: tokens of prompts and replies that are sampled together; bounds the memory of
            their keys and values.

    Raises:
        FileNotFoundError: there is no such model or tokenizer.
        ValueError: the model, its tokenizer or a number cannot be used; the message says why.
    """

    @checked
    def __init__(
        self,
        model: str | Path | PreTrainedModel,
        tokenizer: Tokenizer = None,
        *,
        sampling_params: SamplingParams | None = None,
        chat: bool | None = None,
        chat_settings: ChatSettings | None = None,
        lora: LoRA | None = None,
        device: str | None = None,
        dtype: Dtype = "auto",
        max_batch_tokens: Count = BATCH,
    ):
        self.sampling_params = sampling_params or SamplingParams()
        self.model = load_model(model, device, dtype, merge_adapter=False)
        if lora is not None:
            if has_adapter(self.model):
                raise ValueError(
                    "lora adds an adapter, and this model has one, which continues to learn; leave lora out, "
                    "or give what HFPolicy.load(FOLDER).merged().save(OTHER) writes"
                )
            base = "" if isinstance(model, PreTrainedModel) else model_reference(model)
            self.model = add_adapter(self.model, lora, base)
        self.tokenizer = load_hf_tokenizer(tokenizer, self.model)
        SequenceReader.__init__(self, self.model)
        ends = getattr(self.model.generation_config, "eos_token_id", None)
        tokens = ChatTokens(self.tokenizer, chat, ends, chat_settings)
        window = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        ChatPolicy.__init__(self, tokens, self.sampling_params.stop, window)
        self._max_batch_tokens = max_batch_tokens
        self.value_head: nn.Linear | None = None

    def add_value_head(self, seed: int = 0) -> HFPolicy:
        """Add a linear layer from hidden states to values, in float32, and return the policy itself.

        Its first values are near 0. Its weights depend on `seed` alone, not on torch's global generator.
        """
        width = self.model.config.get_text_config().hidden_size
        weights = np.random.default_rng(seed).normal(0, 1 / (width + 1), (1, width))
        head: nn.Linear = nn.utils.skip_init(nn.Linear, width, 1)
        with torch.no_grad():
            head.weight.copy_(torch.from_numpy(weights))
            head.bias.zero_()
        self.value_head = head.to(self.device)
        return self

    @functools.cached_property
    def _merged(self) -> MergedModel | None:
        """The model that samples instead of an adapted one; None on a GPU, where it would take memory."""
        return MergedModel(self.model) if has_adapter(self.model) and self.device.type == "cpu" else None

    @functools.cached_property
    def _sampler(self) -> TokenSampler:
        parts = self._parts if self._merged is None else CausalLM(self._merged.model)
        params = self.sampling_params
        stopping = StoppingCriteria(self._tokens, params.stop, self._vocabulary)
        limits = self.window, self._max_batch_tokens
        return TokenSampler(parts, self.device, params, stopping, *limits, self._absent)

    @functools.cached_property
    def _absent(self) -> Tensor:
        """(V,) bool, the ids that no token has, on the model's device."""
        return torch.from_numpy(self._tokens.absent(self._vocabulary)).to(self.device)

    def parameters(self) -> list[nn.Parameter]:
        """All parameters that can be trained: the model's, then the value head's."""
        return [*self.model_parameters(), *self.critic_parameters(shared=True)]

    def model_parameters(self) -> list[nn.Parameter]:
        """The parameters that can be trained, without the value head's."""
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    def critic_parameters(self, *, shared: bool) -> list[nn.Parameter]:
        """The parameters of the value function that can be trained: those of the value head.

        Args:
            shared: the actor trains the backbone; False: the critic does, so its parameters are included.
        """
        heads = [] if self.value_head is None else list(self.value_head.parameters())
        backbone = [] if shared else list(self._parts.backbone.parameters())
        return [weight for weight in [*backbone, *heads] if weight.requires_grad]

    @property
    def template(self) -> str | None:
        """The chat around a scorer's `{prompt}`, after which an answer follows; None without chat."""
        return self._tokens.template

    @property
    def can_sample(self) -> bool:
        """Whether the model can sample here, not only be trained and give log-probabilities."""
        return can_reuse_cache(self._parts.backbone)

    def check_can_sample(self) -> None:
        """Nothing where the model can sample here.

        Raises:
            ValueError: its layers keep another state than keys and values.
        """
        if not self.can_sample:
            raise ValueError(
                f"{type(self.model).__name__} has layers that keep another state than keys and values (such "
                "as linear attention), so HFPolicy cannot sample; add --vllm to a learner, and play it with "
                "VLLMPolicy or an endpoint (openai:URL)"
            )

    def sample(
        self, prompts: Sequence[Ids], rngs: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """A reply to each prompt; a prompt that fills the window gets an empty reply, not finished.

        Each generator draws as many numbers as its reply may have tokens, so that a reply depends on no other
        and starts the same under a longer limit.

        Raises:
            FloatingPointError: the model's logits are NaN or infinite.
            ValueError: a prompt is empty, or the model cannot sample here.
        """
        self.check_can_sample()
        limits = reply_limits([len(prompt) for prompt in prompts], max_new_tokens, self.window)
        uniforms = [rng.random(limit) for rng, limit in zip(rngs, limits, strict=True)]
        rows = [np.ascontiguousarray(prompt, dtype=np.int64) for prompt in prompts]
        if self._merged is not None:
            self._merged.refresh()
        with evaluating(self.model):
            return self._sampler(rows, uniforms)

    def at_temperature(self, temperature: float) -> HFPolicy:
        """This policy at another temperature; it shares the weights, and so follows the training."""
        _ = self._merged  # which both share
        other = copy.copy(self)
        other.sampling_params = replace(self.sampling_params, temperature=temperature)
        other.__dict__.pop("_sampler", None)
        return other

    def forward(
        self, sequences: Sequence[Ids], response_masks: Masks, *, entropy: bool = False
    ) -> PolicyOutput:
        """Log-probabilities, entropies and values at response tokens, with gradients where torch keeps them.

        One forward pass reads all sequences. Logits are made at response tokens alone.
        The N response tokens are those of the first sequence in order, then those of the next.

        Args:
            sequences: (T,) ids each, prompts and replies, within the window.
            response_masks: (T,) each, True at tokens that the policy sampled; never at the first.
            entropy: whether to compute the entropies too.
        """
        if not any(map(len, sequences)):
            return PolicyOutput(*[torch.zeros(0, device=self.device)] * 3)
        hidden, tokens = self._states_before(sequences, response_masks)

        def compute(hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
            logprobs = self._distributions(hidden, self._vocabulary)
            chosen = logprobs.gather(1, tokens[:, None].to(logprobs.device))[:, 0]
            return chosen, entropy_of(logprobs) if entropy else None

        logprobs, entropies = zip(*by_slices(compute, (hidden, tokens), self._vocabulary), strict=True)
        values = None if self.value_head is None else self._values(hidden)
        return PolicyOutput(torch.cat(logprobs), torch.cat(entropies) if entropy else None, values)

    def _distributions(self, hidden: Tensor, tokens: int) -> Tensor:
        """Log-probabilities (N, tokens), nats, of the first `tokens` ids; -inf of those that no token has."""
        logits = self._parts.logits(hidden)[:, :tokens]
        logits = logits.masked_fill(self._absent[:tokens].to(logits.device), -torch.inf)
        return scale_logits(logits, self.sampling_params.temperature).log_softmax(-1)

    def compare(
        self,
        sequences: Sequence[Ids],
        response_masks: Masks,
        other: HFPolicy,
        states: Tensor,
        measure: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """A measure (N,) of the distributions of this policy and another at N response tokens.

        The distributions are over the whole vocabulary, each at its policy's temperature, and differentiable
        in this policy alone. They are made for some of the tokens at a time, and again in the backward pass.
        Sequences and masks are those of `forward`. The other policy has the same vocabulary (logits beyond it
        are left out), and `states` (N, H) are its own for the same tokens. `measure` takes log-probabilities
        (n, V) of this policy and of the other, in nats, and returns (n,).
        """
        size = min(self._vocabulary, other._vocabulary)

        def compute(ours: Tensor, theirs: Tensor) -> Tensor:
            with torch.no_grad():
                target = other._distributions(theirs, size)
            return measure(self._distributions(ours, size), target)

        hidden = self.states(sequences, response_masks)
        return torch.cat(by_slices(compute, (hidden, states), self._vocabulary + other._vocabulary))

    def values(self, sequences: Sequence[Ids], response_masks: Masks) -> Tensor:
        """The value head's values (N,) alone, as `forward` gives them; no logits are made."""
        return self._values(self.states(sequences, response_masks))

    def _values(self, hidden: Tensor) -> Tensor:
        values: Tensor = cast(nn.Linear, self.value_head)(hidden.float())[:, 0]
        return values

    def save(self, folder: str | Path, run: Mapping[str, Any] | None = None) -> None:
        """Write weights, tokenizer, settings and value head; a policy in the folder is replaced as a whole.

        If the model has an adapter, only the adapter is written, which names the model; the tokenizer only if
        it is not the model's own. Of `run`, the arguments of the training, the model card tells the model,
        the environment, its arguments and the reward methods.

        Raises:
            ValueError: the folder holds something other than a policy.
        """
        path = Path(folder)
        if path.exists() and not (path / SETTINGS).is_file() and any(path.iterdir()):
            raise ValueError(f"{folder} holds files but no policy; choose another folder or remove it")
        with whole_folder(path) as fresh:
            if has_adapter(self.model):
                save_adapter(self.model, fresh)
            else:
                self.model.save_pretrained(fresh)
            if not (has_adapter(self.model) and belongs_to(self.model, self.tokenizer.name_or_path)):
                self.tokenizer.save_pretrained(fresh)
            settings = {"chat": self.chat, **asdict(self._tokens.settings)}
            value_head = {"value_head": self.value_head is not None}
            write_json(fresh / SETTINGS, {**asdict(self.sampling_params), **settings, **value_head})
            card = model_card(run or {}, self.sampling_params, chat=self.chat, adapter_of=self.adapter_of)
            write_text(fresh / "README.md", card)
            if self.value_head is not None:
                weights = self.value_head.state_dict()
                save_file(weights, fresh / VALUE_HEAD)

    def merged(self) -> HFPolicy:
        """A policy whose model has the adapter added to its weights, or the same model; no value head."""
        return self._with(MergedModel(self.model).model if has_adapter(self.model) else self.model)

    @property
    def adapter_of(self) -> str | None:
        """The name of the model that the adapter belongs to; None without an adapter."""
        return base_name(self.model) if has_adapter(self.model) else None

    def twin(self) -> HFPolicy:
        """A policy on the same frozen weights with a copy of the adapter, which learns by itself."""
        return self._with(twin(self.model))

    def frozen(self, adapter: str | Path | None = None) -> HFPolicy:
        """A policy on the same frozen weights without the adapter, or with one in a folder, frozen too.

        Raises:
            ValueError: the folder's adapter is of another model.
        """
        model = without_adapter(self.model)
        if adapter is not None:
            model = load_adapter(model, adapter, trainable=False)
        return self._with(model)

    def _with(self, model: PreTrainedModel) -> HFPolicy:
        """A policy with another model and the same settings; it has no value head."""
        return HFPolicy(
            model,
            self.tokenizer,
            sampling_params=self.sampling_params,
            chat=self.chat,
            chat_settings=self._tokens.settings,
            max_batch_tokens=self._max_batch_tokens,
        )

    def load_weights(self, folder: str | Path) -> None:
        """Load the weights that `save` wrote for a model of this form, in place, where optimizers see them.

        Raises:
            FileNotFoundError: there is no policy in the folder.
        """
        if has_adapter(self.model) and is_adapter(folder):
            read_adapter(self.model, folder)
        else:
            saved = load_model(folder, str(self.device), merge_adapter=False)
            self.model.load_state_dict(saved.state_dict())
        self._read_value_head(folder)

    def _read_value_head(self, folder: str | Path) -> None:
        if self.value_head is not None:
            path = Path(folder) / VALUE_HEAD
            with damage_in_one_line(path):
                self.value_head.load_state_dict(load_file(path))

    @classmethod
    def load(cls, model: str | Path, **changes: Any) -> HFPolicy:
        """A policy with the settings that `save` wrote, or any other model with the constructor's defaults.

        Args:
            model: a folder or a name, as in the constructor.
            **changes: fields of `SamplingParams` and `ChatSettings`, or other arguments of the constructor,
                that replace saved ones.

        Raises:
            FileNotFoundError: there is no such model.
        """
        settings = saved_settings(model) | changes
        value_head = settings.pop("value_head", False)
        params, settings = _taken(SamplingParams, settings)
        chat_settings, settings = _taken(ChatSettings, settings)
        policy = cls(model, sampling_params=params, chat_settings=chat_settings, **settings)
        if value_head:
            policy.add_value_head()._read_value_head(resolve(model))
        return policy


def _taken(kind: type[T], settings: Mapping[str, Any]) -> tuple[T, dict[str, Any]]:
    """A dataclass of those settings that are its fields, and the other settings."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    instance = kind(**{name: value for name, value in settings.items() if name in names})
    return instance, {name: value for name, value in settings.items() if name not in names}


def saved_settings(model: str | Path) -> dict[str, Any]:
    """The settings that `HFPolicy.save` wrote beside a model; none for another one."""
    path = Path(resolve(model)) / SETTINGS
    return dict(read_json(path)) if path.is_file() else {}


def load_chat_tokens(model: str | Path, chosen: ChatSettings | None = None) -> ChatTokens:
    """What encodes the prompts of a model, as `HFPolicy` would, without its weights.

    `chosen` replace the settings saved beside the model; one that is empty or False is the saved one.

    Raises:
        FileNotFoundError: there is no tokenizer.
    """
    saved = saved_settings(model)
    overrides = {name: value for name, value in vars(chosen or ChatSettings()).items() if value}
    settings, _ = _taken(ChatSettings, saved | overrides)
    return chat_tokens(model, settings, saved.get("chat"))


def chat_tokens(
    model: str | Path, settings: ChatSettings | None = None, chat: bool | None = None
) -> ChatTokens:
    """What encodes the prompts of a model, by the tokenizer and the ends in its folder.

    `model` is that of `HFPolicy`, `settings` and `chat` those of `ChatTokens`.
    """
    return ChatTokens(load_hf_tokenizer(model, None), chat, named_ends(model), settings)


def named_ends(model: str | Path) -> list[int]:
    """The end tokens that a model names, without its weights; for an adapter those of its base."""
    name = str(resolve(model))
    base = str(resolve(base_of(name))) if is_adapter(name) else name
    try:
        ends = transformers.GenerationConfig.from_pretrained(base).eos_token_id
    except OSError:
        ends = transformers.AutoConfig.from_pretrained(base).eos_token_id
    return [] if ends is None else ends if isinstance(ends, list) else [ends]


def model_card(
    run: Mapping[str, Any],
    sampling: SamplingParams,
    *,
    chat: bool = True,
    adapter_of: str | None = None,
    licence: str = "",
) -> str:
    """A model card, what hubs show of a model's folder; it names no folder of this machine.

    `run` are the arguments of the training, `adapter_of` is the model that an adapter belongs to (None: a
    whole model), and `licence` that of a base model whose folder names none.
    """
    name, revision = split_revision(str(run.get("model") or adapter_of or ""))
    origin, known = _origin(name)
    fields = {"base_model": origin if "/" in origin else "", "license": known or licence}
    trained, env = "", "--env MemChunkQA-v0"
    if "env" in run:
        settings = {name: _elsewhere(value) for name, value in run.get("env_args", {}).items()}
        env = f"--env {run['env']}"
        env += f" --env-args {shlex.quote(json.dumps(settings))}" if settings else ""
        methods = " ".join(map(str, map(_elsewhere, run.get("methods", ()))))
        by = f" with the reward methods {methods}" if methods else ""
        engine = f", for {run['merge']} steps in verl" if run.get("merge") else ""
        trained = f"`memenvs train` trained it on {run['env']}{by}{engine}. "
    return CARD.read_text(encoding="utf-8").format(
        front="".join(f"{name}: {value}\n" for name, value in fields.items() if value),
        library="peft" if adapter_of else "transformers",
        what="An adapter for" if adapter_of else "A language model that began as",
        origin=f"{origin} at revision {revision}" if revision else origin or "another model",
        trained=trained,
        env=env,
        temperature=sampling.temperature,
        form="in its chat template" if chat else "without a chat template",
    )


def _origin(model: str) -> tuple[str, str]:
    """A model's name outside this machine and its licence, each empty where it is not known."""
    if model in MODELS:
        return MODELS[model].title, MODELS[model].licence.lower()
    card = Path(model) / "README.md"  # of a policy that was trained further, or of a copy from a hub
    if not Path(model).exists():
        return model, ""
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    matches = (re.search(rf"^{name}: *(\S+)$", text, re.MULTILINE) for name in ("base_model", "license"))
    origin, licence = (match[1] if match else "" for match in matches)
    return origin, licence


def _elsewhere(value: Any) -> Any:
    """A value without the folders of this machine: of an absolute path its last part."""
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def entropy_of(logprobs: Tensor) -> Tensor:
    """Entropies (...), nats, of distributions by their log-probabilities (..., V).

    A token of log-probability -inf adds nothing.
    """
    # 0 * -inf would be NaN, in the value and in the gradient
    finite = logprobs.clamp(min=torch.finfo(logprobs.dtype).min)
    return -(logprobs.exp() * finite).sum(dim=-1)
