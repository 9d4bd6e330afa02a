"""What a task set is and where it comes from: `card.json`, read and written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
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
        format: version of the folder's layout.
    """

    source: str
    inputs: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    tokenizer: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> str:
        """The card as indented JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> Card:
        """The card of a folder, its version checked."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields["format"] == FORMAT:
                return cls(**{**fields, "layout": Layout(**fields["layout"])})
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} is not the card of a task set: {error!r}; build it again") from error
        raise ValueError(
            f"{path.parent} has task-set format {fields['format']!r}, this memenvs reads {FORMAT}; "
            "build it again, or install the memenvs that made it"
        )
