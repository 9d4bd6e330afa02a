"""Episodes of our own (`episodes.jsonl`), read as conversations, so that other methods can give credit."""

from __future__ import annotations

import json
from collections.abc import Iterator

from memenvs.core.episode import observation_text
from memenvs.core.episode_file import decode
from memenvs.logs.conversation import LogConversation, Message
from memenvs.logs.forms.form import LogForm, Record


def _read(record: Record) -> Iterator[LogConversation]:
    episode = decode(json.dumps(record))
    messages: list[Message] = []
    for number, turn in enumerate(episode.turns):
        text = observation_text(turn.observation) if turn.fresh else str(turn.before["feedback"])
        messages += [
            Message("user" if number == 0 or turn.fresh else "tool", text, fresh=number > 0 and turn.fresh),
            Message("assistant", turn.action, key=number),
        ]
    privileged = episode.turns[0].before["privileged"] if episode.turns else {}
    accepted = privileged.get("answers") or [[]]
    if feedback := episode.turns[-1].info["feedback"] if episode.turns else "":
        messages.append(Message("tool", feedback))
    yield LogConversation(
        messages,
        group=episode.task,
        question=privileged.get("question", ""),
        answers=tuple(accepted[0]),
        reward=episode.outcome,
        evidence=tuple(privileged.get("evidence", ())),
        truncated=episode.end == "truncated",
    )


EPISODES = LogForm("episodes of memenvs", lambda record: "version" in record and "turns" in record, _read)
