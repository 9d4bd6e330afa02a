"""vLLM in this process: its engine, and a policy that samples with it."""

from __future__ import annotations

import atexit
import copy
import tempfile
import threading
import weakref
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memenvs.core.episode import Ids, Reply
from memenvs.core.optional import Lazy
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.models.loading import Tokenizer, load_hf_tokenizer
from memenvs.models.lora import expert_weights, has_adapter
from memenvs.models.packaged import is_adapter, resolve
from memenvs.models.policy import Limit, reply_limits
from memenvs.models.settings import ChatSettings, SamplingParams

if TYPE_CHECKING:
    import vllm

    from memenvs.models.hf import HFPolicy
else:  # the reference shows the policy without vLLM
    vllm = Lazy("vllm", "vllm")

PATIENCE = 5.0  # seconds that a thread of an engine has to end

_ended: MutableMapping[Any, dict[str, Any]] = weakref.WeakKeyDictionary()  # outputs to be fetched, by engine


class VLLMPolicy(ChatPolicy):
    """A vLLM engine as a policy that samples; learners evaluate with `HFPolicy`.

    Each request has its own seed, the first number of its generator, so that a reply depends on the rest of
    its batch only through the last bits of floats. Ids that no token has are never sampled. Log-probabilities
    are the engine's: they differ from those of transformers by the precision of both, and at temperature 1 by
    the little probability that those ids have.

    Args:
        model: a folder, a name on the hub or of a packaged model, loaded here; or a `vllm.LLM`.
        tokenizer: a name, a folder or a fast tokenizer; None: the engine's own.
        sampling_params: as in `HFPolicy`. At a temperature other than 0 and 1 it must not truncate: the
            engine would give log-probabilities of the rest.
        chat: None: where the tokenizer has a template.
        chat_settings: as in `HFPolicy`.
        engine: arguments of `vllm.LLM` for a model by name, such as `{"dtype": "bfloat16"}`.

    Raises:
        ValueError: the engine cannot give log-probabilities of the whole distribution.
    """

    def __init__(
        self,
        model: str | Path | vllm.LLM,
        tokenizer: Tokenizer = None,
        *,
        sampling_params: SamplingParams | None = None,
        chat: bool | None = None,
        chat_settings: ChatSettings | None = None,
        engine: Mapping[str, Any] | None = None,
    ):
        self.sampling_params = sampling_params or SamplingParams()
        mode = _logprobs_mode(self.sampling_params)
        self._keys: dict[str, int] = {}  # of the requests that are under way
        self.llm = load_engine(model, engine, logprobs_mode=mode)
        config = self.llm.llm_engine.model_config
        if config.logprobs_mode != mode:
            temperature = self.sampling_params.temperature
            raise ValueError(
                f"at temperature {temperature!r} the engine must give {mode}, and it gives "
                f"{config.logprobs_mode}; make it with logprobs_mode={mode!r}"
            )
        ends = config.try_get_generation_config().get("eos_token_id")
        reader = self.llm.get_tokenizer() if tokenizer is None else load_hf_tokenizer(tokenizer, None)
        tokens = ChatTokens(reader, chat, ends, chat_settings)
        super().__init__(tokens, self.sampling_params.stop, config.max_model_len)
        absent = np.flatnonzero(tokens.absent(config.get_vocab_size()))
        self._bias = dict.fromkeys(absent.tolist(), float("-inf"))

    def sample(
        self, prompts: Sequence[Ids], rngs: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """A reply to each prompt; a prompt that fills the window gets an empty reply, not finished.

        Raises:
            ValueError: a prompt is empty.
        """
        limits = reply_limits([len(prompt) for prompt in prompts], max_new_tokens, self.window)
        seeds = [int(rng.integers(2**31)) for rng in rngs]
        rows = [i for i, limit in enumerate(limits) if limit]
        settings = [self._settings(seeds[i], limits[i]) for i in rows]
        outputs = generate(self.llm, [prompts[i].tolist() for i in rows], settings)
        replies = [Reply("", np.zeros(0, dtype=np.int64), np.zeros(0), False)] * len(prompts)
        for i, output in zip(rows, outputs, strict=True):
            replies[i] = self._reply(output.outputs[0])
        return replies

    def submit(self, key: int, prompt: Ids, rng: np.random.Generator, max_new_tokens: int) -> None:
        """Begin a reply while others are under way."""
        settings = self._settings(int(rng.integers(2**31)), max_new_tokens)
        self._keys[add_request(self.llm, prompt.tolist(), settings)] = key

    def completed(self) -> list[tuple[int, Reply]]:
        """Replies that have ended, by their keys; waits for one if any is under way."""
        outputs = wait(self.llm, self._keys)
        return [
            (self._keys.pop(number), self._reply(output.outputs[0])) for number, output in outputs.items()
        ]

    def cancel(self) -> None:
        """Drop the replies that are under way."""
        drop(self.llm, self._keys)
        self._keys.clear()

    def at_temperature(self, temperature: float) -> VLLMPolicy:
        """The same engine as a policy that samples at another temperature, to play and not to learn from.

        Its log-probabilities are those that the engine gives, which may be of another distribution.
        """
        other = copy.copy(self)
        other.sampling_params = replace(self.sampling_params, temperature=temperature)
        other._keys = {}
        return other

    def check_weights(self, policy: HFPolicy) -> None:
        """Nothing where the engine can take a policy's weights.

        Raises:
            ValueError: the engine runs on a CPU and does not pack new weights: those of a mixture's experts,
                and those of an lm_head that is tied to the embeddings, which an adapter leaves as they are.
        """
        if not vllm.platforms.current_platform.is_cpu():
            return
        # vLLM 0.32 packs the lm_head and the experts on a CPU when it loads a model. It never packs the
        # lm_head again if it is the embeddings, and copies new experts over the packed ones as they are.
        if not has_adapter(policy.model) and policy.model.config.tie_word_embeddings:
            raise ValueError(
                "vLLM on a CPU keeps the old lm_head when a model with tied embeddings gets new weights; "
                "sample with HFPolicy, on a GPU, or with a model whose tie_word_embeddings is false"
            )
        if expert_weights(policy.model):
            raise ValueError(
                "vLLM on a CPU does not pack the experts of a mixture again when they get new weights; "
                "sample with HFPolicy or on a GPU"
            )

    def load_weights(self, policy: HFPolicy) -> None:
        """Sample with a policy's present weights from now on; its adapter, if it has one, is added to them.

        They go through files, because the engine may run in other processes; what it remembers of prompts
        that it has read is dropped. Raises as `check_weights` does.
        """
        self.check_weights(policy)
        with tempfile.TemporaryDirectory(prefix="memenvs-weights-") as fresh:
            policy.merged().model.save_pretrained(fresh)
            self.llm.collective_rpc("reload_weights", kwargs={"weights_path": fresh})
        self.llm.reset_prefix_cache()

    def _settings(self, seed: int, limit: int) -> vllm.SamplingParams:
        params = self.sampling_params
        return vllm.SamplingParams(
            temperature=params.temperature,
            top_p=1.0 if params.top_p is None else params.top_p,
            top_k=params.top_k or 0,
            min_p=params.min_p or 0.0,
            seed=seed,
            max_tokens=limit,
            logprobs=0,
            stop=list(params.stop),
            stop_token_ids=sorted(self._tokens.ends),
            logit_bias=self._bias or None,
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            detokenize=bool(params.stop),
            output_kind=vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )

    def _reply(self, completion: vllm.CompletionOutput) -> Reply:
        ids = np.array(completion.token_ids, dtype=np.int64)
        logprobs = [at[token].logprob for at, token in zip(completion.logprobs, ids.tolist(), strict=True)]
        finished = completion.finish_reason == "stop"
        return Reply(self._tokens.reply_text(ids), ids, np.array(logprobs, dtype=np.float64), finished)


def load_engine(
    model: str | Path | vllm.LLM, arguments: Mapping[str, Any] | None, **defaults: Any
) -> vllm.LLM:
    """A `vllm.LLM` that is shut down before the interpreter ends, which its threads could otherwise abort.

    `model` is that of `VLLMPolicy`; an engine is returned as it is. `arguments` of `vllm.LLM` replace the
    defaults.

    Raises:
        ValueError: the folder holds an adapter.
    """
    if not isinstance(model, str | Path):
        return model
    name = str(resolve(model))
    if is_adapter(name):
        raise ValueError(
            f"vLLM needs a whole model, and {name} holds an adapter; give the folder that "
            f"HFPolicy({name!r}).merged().save(FOLDER) writes"
        )
    before = set(threading.enumerate())
    engine = vllm.LLM(name, **{**defaults, **(arguments or {})})
    started = [thread for thread in threading.enumerate() if thread not in before]
    threads = [thread for thread in started if thread.name != "tqdm_monitor"]
    atexit.register(stop_engine, weakref.ref(engine), threads)
    return engine


def add_request(llm: vllm.LLM, prompt: list[int], params: Any) -> str:
    """Begin to sample after a prompt of token ids; returns the number of the request."""
    number = str(next(llm.request_counter))
    llm.llm_engine.add_request(number, {"prompt_token_ids": prompt}, params)
    return number


def wait(llm: vllm.LLM, numbers: Collection[str]) -> dict[str, Any]:
    """Outputs by number of the requests that have ended; waits for at least one if there are any.

    `LLM.generate` returns the outputs of all requests. Here those of other callers are kept for them: a
    scorer may use the engine of a policy whose replies are still being sampled.
    """
    ended = _ended.setdefault(llm, {})
    while numbers and not any(number in ended for number in numbers):
        ended |= {output.request_id: output for output in llm.llm_engine.step() if output.finished}
    return {number: ended.pop(number) for number in numbers if number in ended}


def drop(llm: vllm.LLM, numbers: Collection[str]) -> None:
    """End requests without their outputs."""
    if numbers:
        llm.llm_engine.abort_request(list(numbers))
    for number in numbers:
        _ended.get(llm, {}).pop(number, None)


def generate(llm: vllm.LLM, prompts: Sequence[list[int]], params: Sequence[Any]) -> list[Any]:
    """The output of each prompt of token ids; requests of other callers continue meanwhile."""
    numbers: list[str] = []
    outputs: dict[str, Any] = {}
    left: set[str] = set()
    try:
        for prompt, settings in zip(prompts, params, strict=True):
            numbers.append(add_request(llm, prompt, settings))
            left.add(numbers[-1])
        while left:
            outputs |= wait(llm, left)
            left -= outputs.keys()
    finally:
        drop(llm, left)
    return [outputs[number] for number in numbers]


def stop_engine(engine: weakref.ref[Any], threads: Sequence[threading.Thread]) -> None:
    """Shut an engine down, if it still exists, and wait for its threads."""
    core = getattr(getattr(engine(), "llm_engine", None), "engine_core", None)
    if core is not None:
        core.shutdown()
    for thread in threads:
        thread.join(PATIENCE)


def _logprobs_mode(params: SamplingParams) -> str:
    """The `logprobs_mode` of a vLLM engine whose log-probabilities are those of the whole distribution."""
    if params.temperature in (0, 1):
        return "raw_logprobs"
    if params.truncates:
        raise ValueError(
            f"with temperature {params.temperature!r}, top_p {params.top_p!r}, top_k {params.top_k!r} and "
            f"min_p {params.min_p!r} vLLM gives no log-probabilities of the whole distribution; use "
            "temperature 1, or none of the three"
        )
    return "processed_logprobs"
