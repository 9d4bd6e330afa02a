"""The forms of recorded conversations, told apart by their content."""

from __future__ import annotations

import contextlib
from typing import Any

from memenvs.logs.forms import atif, chat, episodes, inspect_log, responses, swe_agent, verifiers
from memenvs.logs.forms.form import LogForm, Record

FORMS: tuple[LogForm, ...] = (
    episodes.EPISODES,
    verifiers.TRACES,
    atif.ATIF,
    inspect_log.LOG,
    chat.MINI,
    swe_agent.SWE_AGENT,
    chat.CLAUDE_CODE,
    responses.CODEX,
    chat.SESSION,
    responses.NEMO_GYM,
    responses.RESPONSES,
    chat.CHAT,
)
"""The first that fits a record is its form."""


def form_of(record: Any) -> LogForm | None:
    """The form of a record; None where it is none of a conversation."""
    for form in FORMS if isinstance(record, dict) else ():
        with contextlib.suppress(TypeError, AttributeError, KeyError, IndexError):  # of values of other types
            if form.fits(record):
                return form
    return None


__all__ = ["FORMS", "LogForm", "Record", "form_of"]
