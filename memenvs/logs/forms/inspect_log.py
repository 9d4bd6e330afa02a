"""Logs of Inspect, `.json` or `.eval` (which is read as the same log)."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa

from memenvs.logs.conversation import LogConversation, Message
from memenvs.logs.forms.form import LogForm, Record, messages_of, text_of

_ZSTANDARD = 93  # method of compression
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def read_archive(file: IO[bytes]) -> Record:
    """The log that an `.eval` archive holds, as its `.json` has it.

    Raises:
        ValueError: it is not such an archive.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            header = _member(file, archive.getinfo("header.json"))
            names = [info for info in archive.infolist() if info.filename.startswith("samples/")]
            samples = [_member(file, info) for info in names]
    except (KeyError, zipfile.BadZipFile, pa.ArrowException, OSError, struct.error) as error:
        raise ValueError(
            f"is not a finished .eval log ({error}); make one that is by `inspect log convert --to json`"
        ) from error
    return {**header, "samples": samples}


def _member(file: IO[bytes], info: zipfile.ZipInfo) -> Any:
    """The JSON of a member. Inspect compresses with Zstandard, which Python's zipfile knows from 3.14 on."""
    file.seek(info.header_offset + 26)  # of the local header, where the lengths of its name and its extra are
    name, extra = struct.unpack("<HH", file.read(4))
    file.seek(info.header_offset + 30 + name + extra)
    data = file.read(info.compress_size)
    if info.compress_type == _ZSTANDARD:
        data = pa.input_stream(pa.BufferReader(data), compression="zstd").read()
    elif info.compress_type == zipfile.ZIP_DEFLATED:
        data = zlib.decompress(data, -zlib.MAX_WBITS)
    return json.loads(data)


def _score(sample: Record) -> float | None:
    for name, score in (sample.get("scores") or {}).items():
        value = score.get("value")
        value = _GRADES.get(value) if isinstance(value, str) else value
        if name != "memenvs" and isinstance(value, (bool, int, float)):
            return float(value)
    return None


def _attached(value: Any, attachments: Record) -> Any:
    """A value with the texts that a sample keeps elsewhere in their places."""
    if isinstance(value, dict):
        return {name: _attached(part, attachments) for name, part in value.items()}
    if isinstance(value, list):
        return [_attached(part, attachments) for part in value]
    if isinstance(value, str) and value.startswith("attachment://"):
        return attachments.get(value.removeprefix("attachment://"), value)
    return value


def _messages(sample: Record) -> Iterator[Message]:
    """A sample's messages; where they were compacted, those that its model read and wrote, call by call.

    The sample may keep only the last of these. A call reads a fresh prompt where that does not begin with all
    that the call before read and wrote.
    """
    calls = [event for event in sample.get("events") or () if event["event"] == "model" and _reply(event)]
    span = calls[0].get("span_id") if calls else None  # the agent's, without its sub-agents and scorers
    compacted = [event for event in sample.get("events") or () if event["event"] == "compaction"]
    if all(event.get("span_id") != span for event in compacted):
        for number, message in enumerate(sample["messages"]):
            yield from messages_of(message, str(message.get("id") or number))
        return
    pool = (sample.get("events_data") or {}).get("messages") or []
    read_before: list[Any] = []
    for number, event in enumerate(calls):
        if event.get("span_id") != span:
            continue
        ranges = event.get("input_refs") or ()
        read = [*event["input"], *(message for start, end in ranges for message in pool[start:end])]
        ids = [message.get("id") for message in read]
        fresh = ids[: len(read_before)] != read_before
        for message in read if fresh else read[len(read_before) :]:
            yield from messages_of(message, fresh=fresh)
            fresh = False
        reply = _reply(event)
        yield from messages_of(reply, str(reply.get("id") or number))
        read_before = [*ids, reply.get("id")]


def _reply(event: Record) -> Any:
    choices = (event.get("output") or {}).get("choices") or [{}]
    return choices[0].get("message")


def _read(record: Record) -> Iterator[LogConversation]:
    for sample in record["samples"]:
        asked, target = sample.get("input"), sample.get("target")
        targets = target if isinstance(target, list) else [target]
        yield LogConversation(
            list(_messages(_attached(sample, sample.get("attachments") or {}))),
            group=f"{record['eval'].get('task', '')}/{sample['id']}",
            question=asked if isinstance(asked, str) else text_of((asked or [{}])[-1].get("content")),
            answers=tuple(str(text) for text in targets if text not in (None, "")),
            reward=_score(sample),
            model=str(record["eval"].get("model") or ""),
            truncated=bool(sample.get("limit")),
        )


def _credited(record: Record, turns: Sequence[list[dict[str, Any]]]) -> Record:
    """A score beside the others: the mean of the turns' rewards, and the turns in its metadata."""
    samples = []
    for sample, of_turns in zip(record["samples"], turns, strict=True):
        mean = sum(turn["reward"] for turn in of_turns) / len(of_turns)
        score = {"value": mean, "metadata": {"turns": of_turns}, "history": []}
        samples.append({**sample, "scores": {**(sample.get("scores") or {}), "memenvs": score}})
    return {**record, "samples": samples}


LOG = LogForm(
    "Inspect",
    lambda record: isinstance(record.get("samples"), list) and isinstance(record.get("eval"), dict),
    _read,
    _credited,
    document=True,
)
