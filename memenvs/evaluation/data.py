"""SHA-256 of the data that an environment plays, whatever their name is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

import numpy as np

from memenvs.retrieval.cache import CachedRetriever
from memenvs.retrieval.client import HTTPRetriever
from memenvs.retrieval.load import fingerprint
from memenvs.sokoban import LevelSet
from memenvs.tasks import Task, TaskSet


def data_hashes(env: Any) -> dict[str, str]:
    """What the public attributes of an environment hold of data, each with its hash.

    - A task set: of its card, which has the hashes of its files.
    - Questions of a JSON Lines file: of their ids, texts and answers.
    - A level set: of its boards and the lengths of its solutions.
    - A retriever: of its corpus and index; nothing for a server that does not tell.

    Args:
        env: without its wrappers.

    Raises:
        ConnectionError: a retrieval server is unreachable.
    """
    found = {name: _hash(value) for name, value in vars(env).items() if not name.startswith("_")}
    return {name: digest for name, digest in found.items() if digest}


def _hash(value: Any) -> str:
    if isinstance(value, TaskSet):
        return _sha256(value.card.to_json())
    if isinstance(value, LevelSet):
        lengths = np.ascontiguousarray(value.lengths).tobytes()
        return _sha256(str(value.boards.shape), np.ascontiguousarray(value.boards).tobytes(), lengths)
    if isinstance(value, list) and value and isinstance(value[0], Task):
        return _sha256(json.dumps([asdict(task) for task in value], sort_keys=True))
    if isinstance(value, CachedRetriever | HTTPRetriever) or hasattr(value, "corpus"):
        return fingerprint(value)
    return ""


def _sha256(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()
