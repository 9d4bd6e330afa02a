"""The folder of an index: its card, its corpus and the check that they belong together."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from memenvs.core.data import convert
from memenvs.core.files import check_file, describe, read_sealed, write_sealed
from memenvs.retrieval.corpus import Corpus

FORMAT = 1
CARD = "index.json"


@dataclass(frozen=True)
class IndexCard:
    """What `index.json` says; it is written last, so a folder without one is not an index yet.

    Attributes:
        kind: `"lexical"` or `"dense"`.
        index: `"bm25"`, `"flat"`, `"hnsw"` or `"ivfpq"`.
        count: passages in the corpus.
        corpus_sha256: of their ids and contents.
        encoder: the arguments and the fingerprint of the encoder, and the name of the file that vectors were
            imported from, if any; empty for a lexical index.
        dimension: of the vectors; 0 for a lexical index.
        settings: of the index, as it was built and as it is searched.
        recall: `{"k", "queries", "recall"}` against flat; empty where the index is exact.
        files: bytes and SHA-256 of the index's own files, by their place in the folder. The corpus has a card
            of its own.
        format: version of the folder's layout.
    """

    kind: str
    index: str
    count: int
    corpus_sha256: str
    encoder: dict[str, Any] = field(default_factory=dict)
    dimension: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    recall: dict[str, float] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    format: int = FORMAT

    def write(self, folder: Path, *parts: Path) -> IndexCard:
        """Describe the files of the index, write the card into its folder, and return it."""
        files = [file for part in parts for file in (sorted(part.iterdir()) if part.is_dir() else [part])]
        card = replace(self, files={file.relative_to(folder).as_posix(): describe(file) for file in files})
        write_sealed(folder / CARD, asdict(card))
        return card

    @classmethod
    def read(cls, folder: Path, kind: str | None = None) -> IndexCard:
        """The card of a folder, which must be of the requested kind.

        Raises:
            FileNotFoundError: the folder is not an index, or its build has not ended.
            ValueError: another kind or format.
        """
        path = folder / CARD
        if not path.exists():
            raise FileNotFoundError(
                f"no index in {folder}: it has no {CARD}; build one, or finish its build, with "
                f"`memenvs build index --corpus FILE --index flat --out {folder}`"
            )
        card = convert(read_sealed(path, FORMAT), cls, f"{path}: card", "build it again")
        if kind not in (None, card.kind):
            raise ValueError(
                f"{folder} holds a {card.kind} index, not a {kind} one; open it as `{card.kind}:{folder}`"
            )
        return card


def open_index_folder(folder: Path, kind: str) -> tuple[IndexCard, Corpus]:
    """The card and the corpus of an index folder, both and the index's files checked.

    Raises:
        FileNotFoundError: the folder is not an index, or a part of it is missing.
        ValueError: another kind or format, files that are not those that were built, or a corpus that is not
            the one that was indexed.
    """
    card, corpus = IndexCard.read(folder, kind), Corpus.open(folder / "corpus")
    if card.corpus_sha256 != corpus.sha256:
        raise ValueError(
            f"the index in {folder} was built over a corpus with SHA-256 {card.corpus_sha256}, "
            f"this corpus has {corpus.sha256}; build the index again"
        )
    for name, promised in card.files.items():
        check_file(folder / name, promised)
    return card, corpus
