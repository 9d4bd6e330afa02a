"""A policy by vLLM in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memenvs.core.optional import require
from memenvs.models.chat import ChatPolicy, ChatTokens, Ids
from memenvs.models.loading import load_tokenizer, start_engine
from memenvs.models.policy import Limit, Reply, reply_limits
from memenvs.models.sampling import Choice, checked_stops

if TYPE_CHECKING:
    from memenvs.models.hf import HFPolicy


class VLLMPolicy(ChatPolicy):
    """A vLLM engine as a policy that samples; learners evaluate with `HFPolicy`.

    Each request has a seed of its own, the first number of its generator, so that a reply depends on what is
    beside it only through the last bits of floats. Log-probabilities are the engine's, which differ from
    those of transformers by the precision of both.

    Args:
        model: a folder or a name on the hub, loaded here; or a `vllm.LLM`.
        tokenizer: a name, a folder or a fast tokenizer; None: the engine's own.
        temperature: as in `HFPolicy`, as are `top_p`, `top_k`, `min_p`, `stop`, `chat` and `chat_args`.
        top_p: at a temperature other than 0 and 1 it must be 1, and `top_k` and `min_p` 0: the engine would
            give log-probabilities of what is left.
        top_k: see `top_p`.
        min_p: see `top_p`.
        stop: strings that end a reply.
        chat: None: where the tokenizer has a template.
        chat_args: of the template.
        engine: arguments of `vllm.LLM` for a model by name, such as `{"dtype": "bfloat16"}`.

    Raises:
        ValueError: a number is out of range, or an engine that is made already cannot do what is asked.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        stop: Sequence[str] = (),
        chat: bool | None = None,
        chat_args: Mapping[str, Any] | None = None,
        engine: Mapping[str, Any] | None = None,
    ):
        self.choice = Choice(temperature, top_p, top_k, min_p).check()
        self.stop = checked_stops(stop)
        mode = _logprobs_mode(self.choice)
        self._vllm = require("vllm", "vllm")
        made = hasattr(model, "generate")
        if made and engine is not None:
            raise ValueError("engine holds arguments for a model by name; this one is made already")
        self.llm = model if made else start_engine(str(model), {"logprobs_mode": mode, **(engine or {})})
        config = self.llm.llm_engine.model_config
        if config.logprobs_mode != mode:
            raise ValueError(
                f"at temperature {temperature!r} the engine must give {mode}, and it gives "
                f"{config.logprobs_mode}; make it with logprobs_mode={mode!r}"
            )
        self.window: int | None = config.max_model_len
        ends = config.try_get_generation_config().get("eos_token_id") or ()
        own = self.llm.get_tokenizer() if tokenizer is None else load_tokenizer(tokenizer, None)
        super().__init__(ChatTokens(own, chat, [ends] if isinstance(ends, int) else ends, chat_args))

    def sample(
        self, prompts: Sequence[Ids], draws: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """A reply to each prompt; one that leaves the window no room gets an empty reply, not finished.

        Raises:
            ValueError: a prompt is empty, or the arguments are not of one length.
        """
        limits = reply_limits([len(prompt) for prompt in prompts], len(draws), max_new_tokens, self.window)
        seeds = [int(draw.integers(2**31)) for draw in draws]
        asked = [i for i, limit in enumerate(limits) if limit]
        outputs = self.llm.generate(
            [self._vllm.TokensPrompt(prompt_token_ids=[int(t) for t in prompts[i]]) for i in asked],
            [self._settings(seeds[i], limits[i]) for i in asked],
            use_tqdm=False,
        )
        replies = [Reply("", np.zeros(0, dtype=np.int64), np.zeros(0), False)] * len(prompts)
        for i, output in zip(asked, outputs, strict=True):
            replies[i] = self._reply(output.outputs[0])
        return replies

    def load_weights(self, weights: HFPolicy | str | Path) -> None:
        """Sample with these weights from now on: a policy's present ones, or those saved in a folder.

        They go through files, because the engine may run in other processes; what it remembers of prompts
        that it has read is thrown away.

        Raises:
            FileNotFoundError: there is no such folder.
            ValueError: the engine runs on a CPU and ties the head to the embeddings.
        """
        config = self.llm.llm_engine.model_config.hf_config
        check_head(self._vllm.platforms.current_platform.is_cpu(), bool(config.tie_word_embeddings))
        if isinstance(weights, str | Path):
            if not Path(weights).is_dir():
                raise FileNotFoundError(f"no folder of weights at {weights}; HFPolicy.save writes one")
            self.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(weights)})
            self.llm.reset_prefix_cache()
            return
        with tempfile.TemporaryDirectory(prefix="memenvs-weights-") as folder:
            weights.model.save_pretrained(folder)
            self.load_weights(folder)

    def _settings(self, seed: int, limit: int) -> Any:
        return self._vllm.SamplingParams(
            temperature=self.choice.temperature,
            top_p=self.choice.top_p,
            top_k=self.choice.top_k,
            min_p=self.choice.min_p,
            seed=seed,
            max_tokens=limit,
            logprobs=0,
            stop=list(self.stop),
            stop_token_ids=sorted(self._tokens.ends),
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            detokenize=bool(self.stop),
        )

    def _reply(self, written: Any) -> Reply:
        ids = np.array(written.token_ids, dtype=np.int64)
        chosen = [said[token].logprob for said, token in zip(written.logprobs, ids.tolist(), strict=True)]
        finished = written.finish_reason == "stop"
        return Reply(self._tokens.reply_text(ids), ids, np.array(chosen, dtype=np.float64), finished)


def _logprobs_mode(choice: Choice) -> str:
    """What a vLLM engine must be told so that its log-probabilities are those of the whole distribution.

    Raises:
        ValueError: it can be told nothing that gives them.
    """
    if choice.temperature in (0, 1):
        return "raw_logprobs"
    if choice.cuts:
        raise ValueError(
            f"with temperature {choice.temperature!r}, top_p {choice.top_p!r}, top_k {choice.top_k!r} and "
            f"min_p {choice.min_p!r} vLLM gives no log-probabilities of the whole distribution; use "
            "temperature 1, or none of the three"
        )
    return "processed_logprobs"


def check_head(on_cpu: bool, tied: bool) -> None:
    """Refuse new weights where vLLM would keep the old head.

    On a CPU it packs the head's weights when it loads a model, and never again where they are the embeddings'
    (0.32). On a GPU nothing is packed.

    Raises:
        ValueError: it would.
    """
    if on_cpu and tied:
        raise ValueError(
            "vLLM on a CPU keeps the old head when a model with tied embeddings gets new weights; "
            "sample with HFPolicy, on a GPU, or with a model whose tie_word_embeddings is false"
        )
