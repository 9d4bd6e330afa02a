"""Selectable records for any text environment whose prompt grows: the agent chooses which turns to keep."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from memenvs.core.data import Count, Whole, checked
from memenvs.core.text import Tagged, Template, first_pair, thought_end
from memenvs.envs.memory import Memory, MemoryEntry, MemoryMode, Written
from memenvs.envs.search_qa import without
from memenvs.wrappers.compact import CompactContext

RULE = Template(
    "\n\nIn every reply after the first, also write <record>…</record>: what the turn before found, in up to "
    "{limit} tokens, unless that turn has its record already. Each record has the number of its turn. At "
    "{at} tokens you will be asked which records you need.\n",
    required=["limit", "at"],
)
"""What follows the first prompt."""
SELECT = Template(
    "\n\nThis conversation is too long to continue. These are the records of your turns:\n\n{records}\n\n"
    "Reply with <record>…</record> for the last turn, then with the numbers of the records that you need, "
    "such as <select>1, 3</select>. You will continue from the task, these records and those of the latest "
    "{recent} turns, up to {limit} tokens. You can select the others another time.\n",
    required=["records", "recent", "limit"],
)
"""What asks for a selection."""
RECORDS = Template(
    "\n\nRecords of your earlier turns:\n\n<records>\n{memory}\n</records>\n", required=["memory"]
)
"""What follows the first prompt in one that continues from a selection."""
UNWRITTEN = "(no record)"
NO_RECORD = "Your reply had no <record>…</record>, so the record of turn {turn} says only what you did."
NO_SELECT = "Your reply had no <select>…</select> with numbers, so it selected no records."
NOT_USED = "Of the {count} numbers that you selected, some were not used: {wrong}."


class SelectRecords(CompactContext):
    """Give a text environment whose prompt grows a memory: records of the turns, which the agent selects.

        env = RewardWrapper(SelectRecords(gym.make("MemSearchQA-v0"), at=2048), ["MemPO"], scorer="lexical")

    Every turn has a record, in a line: what the agent wrote about it, and what it did. No record is lost:
    each request offers all of them.

    Action:
        As the environment's, with a `<record>…</record>` about the turn before anywhere behind the thought
        that leads the reply; the environment does not see it. The reply to a request for a selection is such
        a record and `<select>1, 3</select>`. The environment does not see this turn, which earns 0. A turn of
        the environment follows each selection. Its reply needs a record only if the selection had none; a
        second record of a turn changes nothing.

    Observation:
        As the environment's; the first prompt also explains records. Once it has `at` tokens after a turn, it
        ends with all records and a request for a selection. After the selection comes a fresh prompt
        (`info["context"]` is `"rewrite"`): the first one, then in the order of the turns the latest `recent`
        records and those selected. If these have more than `max_memory` tokens, the earliest of the recent
        ones or else the last ones named are left out. A line says what was wrong: a record or a selection
        that is missing, numbers that are unknown, repeated, or of records that were left out.

    Info:
        As with `CompactContext`; the metric `selections` counts selections.

    Privileged:
        As with `CompactContext`, except that the memory is the records of the fresh prompt and those written
        since, the latest that fit in `max_memory` tokens. `memory_span` and `written` are what the last reply
        wrote: a record, numbers, or from the one to the other.

    Source: ECHO (arXiv 2606.31650), whose rules we know from the authors' README and code.

    Args:
        env: a text environment whose context is `"append"`. A `RewardWrapper` goes around this wrapper.
        at: tokens of an observation at which a selection is requested.
        max_memory: most tokens of the records in a fresh prompt.
        max_record: most tokens in a record of what the agent wrote, and of what it did; more are truncated.
        recent: latest turns whose records are kept unasked.
        tokenizer: name of the tokenizer that counts; None: the environment's, or else the general one.

    Raises:
        ValueError: the environment is of another kind.
    """

    count_name = "selections"
    block = RECORDS

    @checked
    def __init__(
        self,
        env: gym.Env[Any, Any],
        at: Count,
        max_memory: Count = 1024,
        max_record: Count = 64,
        recent: Whole = 3,
        tokenizer: str | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(
            self, at=at, max_memory=max_memory, max_record=max_record, recent=recent, tokenizer=tokenizer
        )
        super().__init__(env, at, max_summary=max_memory, tokenizer=tokenizer)
        self.recent = recent
        self._record = MemoryMode(self._mode.tokenizer, max_record)

    def _rule(self) -> str:
        return RULE.fill(limit=self._record.limit, at=self.at)

    def _for_env(self, reply: str) -> str:
        return without(reply, _record_in(reply))

    def _end_turn(self, reply: str, played: str) -> None:
        memory, number = self._now.memory, len(self._now.actions)
        memory.wrote(reply, self._write_record(reply))
        action = played[thought_end(reply) :]
        action = " ".join(without(action, first_pair(action, "reasoning")).split())
        action, _ = self._mode.tokenizer.truncate(action, self._record.limit)
        memory.entries.append(MemoryEntry(number, UNWRITTEN, action))

    def _notice(self) -> str:
        notice = self._now.memory.notice
        return f"\n{notice}\n" if notice else ""

    def _request(self) -> str:
        numbers = [entry.number for entry in self._now.memory.entries]
        return SELECT.fill(records=self._lines(numbers), recent=self.recent, limit=self._mode.limit)

    def _replace_turns(self, reply: str, start: int, end: int) -> None:
        memory = self._now.memory
        record = self._write_record(reply)
        pair = first_pair(reply, "select", start)
        selection = pair.text if pair else ""
        text, cut = self._mode.tokenizer.truncate(selection, self._mode.limit)
        # The first digits of a number that was cut are another number.
        matches = re.finditer(r"\d+", selection[: len(text) + 1])
        # Python refuses to read thousands of digits, and nine are more than any number has.
        numbers = [int(match[0][:9]) for match in matches if match.end() <= len(text)]
        recorded = {entry.number for entry in memory.entries}
        selected = [number for number in dict.fromkeys(numbers) if number in recorded]
        self._keep([*sorted(recorded, reverse=True)[: self.recent], *selected])
        unknown = sum(number not in recorded for number in numbers)
        faults = [
            (unknown, "unknown"),
            (len(numbers) - unknown - len(selected), "repeated"),
            (len({*selected} - {*memory.kept}), f"beyond {self._mode.limit} tokens"),
        ]
        wrong = ", ".join(f"{count} {fault}" for count, fault in faults if count)
        if pair is None or (text.strip() and not numbers):
            wrong = NO_SELECT
        elif wrong:
            wrong = NOT_USED.format(count=len(numbers), wrong=wrong)
        memory.notice = f"{memory.notice} {wrong}".strip()
        places = [*(record.span or ())]
        if pair and text:
            inside = pair.start + len("<select>")
            places += [inside, inside + len(text)]
        span = (min(places), max(places)) if places else None
        memory.wrote(reply, Written(span, cut or record.cut))

    def _write_record(self, reply: str) -> Written:
        """Write the record of the last turn by a reply, and put it in the memory."""
        memory, pair = self._now.memory, _record_in(reply)
        memory.notice = ""
        # The reply that selected has written it already, when the result was still in the prompt.
        if not memory.entries or memory.entries[-1].text != UNWRITTEN:
            return Written(None)
        entry = memory.entries[-1]
        if pair is None:
            memory.notice = NO_RECORD.format(turn=entry.number)
            return Written(None)
        record = Memory()
        written = self._record.write_block(record, pair.text).shift(pair.start + len("<record>"))
        entry.text = " ".join(record.text.split()) or UNWRITTEN
        self._keep([entry.number, *reversed(memory.kept)])
        return written

    def _keep(self, numbers: Iterable[int]) -> None:
        """Make records the memory, the first ones that fit."""
        memory, numbers = self._now.memory, list(dict.fromkeys(numbers))

        def too_long(count: int) -> bool:
            return self._mode.tokenizer.truncate(self._lines(numbers[:count]), self._mode.limit)[1]

        fitting = numbers[: bisect.bisect_left(range(1, len(numbers) + 1), True, key=too_long)]
        memory.kept, memory.text = sorted(fitting), self._lines(fitting)

    def _lines(self, numbers: Iterable[int]) -> str:
        """Records by their numbers, a line each, in the order of the turns."""
        chosen = {*numbers}
        entries = [entry for entry in self._now.memory.entries if entry.number in chosen]
        return "\n".join(f"[{entry.number}] {entry.line}" for entry in entries)


def _record_in(reply: str) -> Tagged | None:
    return first_pair(reply, "record", thought_end(reply))
