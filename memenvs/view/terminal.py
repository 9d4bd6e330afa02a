"""Episodes on a terminal: a list, and one episode turn by turn with its rewards."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from memenvs.core.env import privileged_of
from memenvs.core.episode import OUTCOME, Episode, Turn, observation_text
from memenvs.core.errors import printable
from memenvs.core.terminal import BOLD, DIM, GREEN, RED, RESET, terminal_width
from memenvs.envs.render import block, credits_of, earned_lines
from memenvs.evaluation.turns import fates

_ENTRY = re.compile(r"\[\d+\] ")


def listing(episodes: Sequence[tuple[int, Episode]]) -> str:
    """A line for each episode, with its number."""
    lines = [f"{BOLD}{'#':>5}  {'step':>6}  {'return':>8}  {'success':>7}  {'turns':>5}  task{RESET}"]
    for number, episode in episodes:
        step = "" if episode.step is None else str(episode.step)
        total, success = sum(episode.turn_rewards), episode.metrics.get("success")
        solved = (
            f"{RED} failed{RESET}" if episode.end == "failed" else "" if success is None else f"{success:g}"
        )
        name = printable(episode.task).replace("\n", " ")[: terminal_width() - 41]
        lines.append(f"{number:5}  {step:>6}  {total:8.3f}  {solved:>7}  {len(episode.turns):5}  {name}")
    return "\n".join(lines) + "\n"


def transcript(episode: Episode, limit: int = 800) -> str:
    """An episode turn by turn, as text with colours.

    Args:
        episode: as it was read from a file.
        limit: characters of a text that are shown.
    """
    return "\n".join(_lines(episode, limit)) + "\n"


def _lines(episode: Episode, limit: int) -> Iterator[str]:
    title = [episode.env, episode.task, "" if episode.step is None else f"step {episode.step}"]
    yield f"{BOLD}{printable(', '.join(filter(None, title)))}{RESET}"
    if episode.turns and (question := privileged_of(episode.turns[0].before).get("question")):
        yield from block("question", question, limit=limit)
    memory, total, turns = "", 0.0, episode.turns
    # Chunks that come as feedback are shown where they are read.
    reads_feedback = any(not turn.fresh and privileged_of(turn.before).get("chunk_span") for turn in turns)
    labels = fates(episode) or [None] * len(turns)
    for number, (turn, reward, fate) in enumerate(zip(turns, episode.turn_rewards, labels, strict=True), 1):
        tag = f" {RED if fate == 'lost' else DIM}{fate}{RESET}" if fate else ""
        yield f"\n{BOLD}turn {number} of {len(turns)}{RESET}{tag}"
        before, after = privileged_of(turn.before), privileged_of(turn.info)
        if turn.observation and (turn.fresh or reads_feedback):
            label = "read"
            text = turn.text
            if span := before.get("chunk_span"):
                text = observation_text(turn.observation)[slice(*span)]
                label = f"chunk ({len(text):,} characters)"
            yield from block(label, text, limit=limit)
            for part in before.get("evidence_in_chunk", ()):
                yield from block("evidence inside it", part, limit=limit, colour=GREEN)
        yield from block("replied", turn.action, limit=limit)
        left = after.get("memory")
        if isinstance(left, str) and left != memory:
            yield from _memory(memory, left, limit)
            memory = left
        if turn.info["feedback"].strip() and not reads_feedback:
            yield from block("came back", turn.info["feedback"], limit=limit)
        total += reward
        yield from _earned(turn, number - 1, episode.replaces_outcome)
        yield f"  {reward:+.3f} in all, return so far {total:+.3f}"
    colour = RED if episode.error else ""
    metrics = ", ".join(f"{name} {value:g}" for name, value in episode.metrics.items() if name != "return")
    end = f"{episode.error or episode.end or 'not ended'}; return {total:g}"
    yield f"\n{colour}{BOLD}{printable(end + (f'; {metrics}' if metrics else ''))}{RESET}"


def _earned(turn: Turn, number: int, replaces_outcome: bool) -> Iterator[str]:
    """The reward components of a turn, with the credits of methods among them, and the signals."""
    rewards = turn.components | ({OUTCOME: 0.0} if replaces_outcome else {})
    for name, credits in turn.credits.items():
        rewards[name] = sum(credit.value for credit in credits if credit.known)
    yield from earned_lines(rewards, {name: [value] for name, value in turn.signals.items()}, {}, [])
    if credits_text := credits_of(turn.credits, number):
        yield f"  credits{credits_text.replace(',', ':', 1)}"


def _memory(before: str, after: str, limit: int) -> Iterator[str]:
    """The lines removed from a memory and those added."""
    yield from block("memory", "", limit=limit)[:1]
    length = 0
    for line in line_diff(before, after):
        if length > limit:
            break
        length += len(line)
        colour = {"+": GREEN, "-": RED}.get(line[0], DIM)
        text, width = printable(line)[: limit + 2], terminal_width() - 2
        for part in textwrap.wrap(text, width, subsequent_indent="  ") or [""]:
            yield f"  {colour}{part}{RESET}"
    if length > limit:
        yield f"  {DIM}[…]{RESET}"


def line_diff(before: str, after: str) -> Iterator[str]:
    """The lines of both texts in order, each after `- ` (removed), `+ ` (added) or two spaces (kept).

    An entry `[3] …` is compared with the entry of the same number.
    """
    old, new = before.splitlines(), after.splitlines()
    a, b = ([entry[0] if (entry := _ENTRY.match(line)) else line for line in lines] for lines in (old, new))
    for kind, i, i_end, j, j_end in SequenceMatcher(None, a, b).get_opcodes():
        if kind == "equal":
            for was, line in zip(old[i:i_end], new[j:j_end], strict=True):
                yield from [f"  {was}"] if was == line else [f"- {was}", f"+ {line}"]
        else:
            yield from [f"- {line}" for line in old[i:i_end]] + [f"+ {line}" for line in new[j:j_end]]
