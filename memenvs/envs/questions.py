"""What a searching agent searches, and the sizes of its questions."""

from __future__ import annotations

from collections.abc import Sequence

from memenvs.retrieval import Retriever, load_retriever
from memenvs.tasks import Task, TaskSet
from memenvs.text_env import Episode


def open_retriever(retriever: str | None, questions: Sequence[Task], source: str) -> Retriever:
    """The retriever of a spec; None searches the task set's own documents by BM25.

    Raises:
        ValueError: None with questions that come without documents.
    """
    if retriever is not None:
        return load_retriever(retriever)
    if not isinstance(questions, TaskSet) or not questions.n_documents:
        raise ValueError(
            f"{source} has questions but no documents: pass retriever='lexical:CORPUS.jsonl.gz', "
            "'dense:INDEX_DIR' or 'http://host:port'"
        )
    return load_retriever(f"lexical:{questions.path}")


def check_turns(episode: Episode, history: Sequence[object], limit: int) -> None:
    """Raise a one-line `ValueError` where turns, their record and their limit do not fit together."""
    if episode.turn != len(history) or episode.turn > limit:
        raise ValueError(
            f"the state's episode cannot be: turn={episode.turn} of {limit} with {len(history)} on record"
        )


def extents(questions: Sequence[Task]) -> tuple[int, int]:
    """The most characters of a question, and the most objectives of a task."""
    sizes = [(len(task.question), len(task.answers)) for task in questions]
    return max(chars for chars, _ in sizes), max(objectives for _, objectives in sizes)
