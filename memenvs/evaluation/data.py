"""SHA-256 of the data that an environment plays, whatever their name is."""

from __future__ import annotations

from typing import Any

from memenvs.retrieval.load import fingerprint


def data_hashes(env: Any) -> dict[str, str]:
    """Hashes of what an environment's episodes are made of.

    Args:
        env: a `TextEnv` without its wrappers.

    Returns:
        `tasks`: of `TextEnv.task_set`; and, where the environment has a `retriever`, `retriever`: of its
        corpus and index. What nobody tells, such as a foreign retrieval server, is left out.

    Raises:
        ConnectionError: a retrieval server is unreachable.
    """
    found = {"tasks": env.task_set()[1]}
    if (retriever := getattr(env, "retriever", None)) is not None:
        found["retriever"] = fingerprint(retriever)
    return {name: digest for name, digest in found.items() if digest}
