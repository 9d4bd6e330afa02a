"""What a task set is and where it comes from: `card.json`, read and written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from memenvs.integrity import seal, unseal

FORMAT = 2
CARD, DOCUMENTS, TASKS = "card.json", "documents.arrow", "tasks.arrow"


@dataclass(frozen=True)
class Layout:
    """How the documents of a task become one text: before each a header, between two a separator.

    `{i}` in the header is the document's number in the task, from 1.
    """

    header: str = "Document {i}:\n"
    separator: str = "\n\n"


@dataclass(frozen=True)
class Card:
    """What a task set is and where it comes from (`card.json`).

    Attributes:
        source: the name of the builder.
        inputs: SHA-256 of every file that was read, by its name.
        arguments: of the builder, seed and split included.
        layout: how documents are shown.
        tokenizer: name and fingerprint of the tokenizer whose `gaps` are stored; empty if none are.
        counts: tasks, documents, and the largest sizes of a task: documents, characters, tokens.
        files: bytes and SHA-256 of the data files.
        environment: the id of the environment that the tasks are made for.
        metric: a name of `memenvs.metrics.METRICS`; environments score by it unless told otherwise.
        format: version of the folder's layout.
    """

    source: str
    inputs: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    tokenizer: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    environment: str = "MemChunkQA-v0"
    metric: str = "em"
    format: int = FORMAT

    def to_json(self) -> str:
        """The card as indented JSON, sealed by the SHA-256 of its fields."""
        return json.dumps(seal(asdict(self)), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> Card:
        """The card of a folder, its version, its seal and the types of its fields checked."""
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
            written = given["format"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} is not the card of a task set: {error!r}; build it again") from error
        if written != FORMAT:
            raise ValueError(
                f"{path.parent} has task-set format {written!r}, this memenvs reads {FORMAT}; "
                "build it again, or install the memenvs that made it"
            )
        given = unseal(given, path)
        try:
            card = cls(**{**given, "layout": Layout(**given["layout"])})
            card._check_types()
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not the card of a task set: {error!r}; build it again") from error
        return card

    def _check_types(self) -> None:
        blank = Card("")
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        wanted: dict[str, Any] = {name: getattr(blank, name) for name in found}
        found |= {f"layout.{name}": value for name, value in asdict(self.layout).items()}
        wanted |= {f"layout.{name}": value for name, value in asdict(blank.layout).items()}
        if isinstance(self.files, dict):
            found |= {f"files.{name}": facts for name, facts in self.files.items()}
            wanted |= {f"files.{name}": {} for name in self.files}
        for name, value in found.items():
            if type(value) is not type(wanted[name]):
                raise ValueError(f"its {name!r} is {value!r:.80}")
