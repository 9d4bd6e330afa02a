"""Draw docs/images/*.svg: an episode of each environment as a moving picture.

`python docs/pictures.py` writes the same files every time. The episodes are real; scripted policies play.
"""

from __future__ import annotations

import base64
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import gymnasium as gym
import numpy as np
import numpy.typing as npt

import memenvs  # noqa: F401  # registers the environments
from memenvs.rollout.scripted import make_policy
from memenvs.sokoban.render import png, rgb
from memenvs.wrappers import RewardWrapper

IMAGES = Path(__file__).parent / "images"
INK, DIM, PAPER, PANEL = "#e6e9ef", "#9aa5b8", "#1d2330", "#262d3d"
GOOD, MARK, LOST = "#8ccf7e", "#e5c76b", "#e8836b"
SHADE = {MARK: "#4d4522", GOOD: "#243d2b"}
COLUMN, ROW, MARGIN = 7.8, 18, 20  # pixels
WIDTH, LEFT, RIGHT = 966, 58, 54  # pixels, and columns of the two panels
TILE = 40
MOVES = ("up", "down", "left", "right")
PLANES = ("wall", "floor", "target", "box on target", "box", "player", "player on target")

Line = Sequence[tuple[str, str]]
"""Pieces of a line of text, each with its colour; SHADE has the colours that are also a background."""


class Frame(NamedTuple):
    """What is seen for some seconds."""

    seconds: float
    parts: list[str]


def write_line(x: float, y: float, line: Line, weight: str = "normal") -> Iterator[str]:
    """The elements of a line whose first character is at x and whose baseline is at y."""
    for text, colour in line:
        width = len(text) * COLUMN
        if text.strip():
            if colour in SHADE:
                yield f'<rect x="{x:g}" y="{y - 13:g}" width="{width:g}" height="17" fill="{SHADE[colour]}"/>'
            place = f'x="{x:g}" y="{y:g}" textLength="{width:g}" fill="{colour}" font-weight="{weight}"'
            yield f'<text {place} xml:space="preserve">{escape(text)}</text>'
        x += width


def panel(x: float, y: float, columns: int, title: str, lines: Sequence[Line], rows: int) -> Iterator[str]:
    """A box with a title and at most `rows` lines."""
    box = f'x="{x:g}" y="{y:g}" width="{columns * COLUMN + 20:g}" height="{rows * ROW + 36}"'
    yield f'<rect {box} rx="6" fill="{PANEL}"/>'
    yield from write_line(x + 10, y + 19, [(title, DIM)])
    for number, line in enumerate(lines[:rows]):
        yield from write_line(x + 10, y + 22 + (number + 1) * ROW, line)


def wrapped(text: str, columns: int, colour: str = INK) -> list[Line]:
    """A text as lines of one colour."""
    lines = [
        piece
        for line in text.splitlines()
        for piece in textwrap.wrap(line, columns, drop_whitespace=True) or [""]
    ]
    return [[(line, colour)] for line in lines]


def marked(text: str, wanted: Sequence[str], columns: int) -> list[Line]:
    """A text as lines, with the wanted sentences in the colour of evidence."""
    text = re.sub(r"[ \t]*\n[ \t]*", "\n", text)
    is_wanted = np.zeros(len(text), np.bool_)
    for sentence in wanted:
        for match in re.finditer(r"\s+".join(map(re.escape, sentence.split())), text):
            is_wanted[match.start() : match.end()] = True
    lines: list[Line] = []
    at = 0
    for (line, _), *_ in wrapped(text, columns):
        at = text.index(line, at)
        pieces = itertools.groupby(range(at, at + len(line)), key=lambda place: bool(is_wanted[place]))
        lines.append(
            [(text[(some := list(places))[0] : some[-1] + 1], MARK if key else INK) for key, places in pieces]
        )
        at += len(line)
    return lines


def around_evidence(lines: list[Line], rows: int) -> list[Line]:
    """The rows of a text in which its first evidence is seen."""
    first = next((n for n, line in enumerate(lines) if any(colour == MARK for _, colour in line)), 0)
    start = max(0, min(first - 3, len(lines) - rows))
    shown = lines[start : start + rows]
    if start:
        shown[0] = [("…", DIM)]
    if start + rows < len(lines):
        shown[-1] = [("…", DIM)]
    return shown


def steps(
    turns: int, now: int, y: float, seen: Sequence[bool], rewards: Sequence[float] = ()
) -> Iterator[str]:
    """A box a turn: which is played, which read evidence, and in the end what each earned."""
    width = min(120, (WIDTH - 2 * MARGIN) / turns - 6)
    for turn in range(turns):
        x = MARGIN + turn * (width + 6)
        edge = INK if turn == now else PANEL
        box = f'x="{x:g}" y="{y:g}" width="{width:g}" height="50" rx="6"'
        yield f'<rect {box} fill="{PANEL}" stroke="{edge}"/>'
        yield from write_line(x + 10, y + 20, [(f"turn {turn + 1} ", DIM)])
        if turn <= now and seen[turn]:
            yield f'<circle cx="{x + 78:g}" cy="{y + 16:g}" r="4" fill="{MARK}"/>'
        if len(rewards):
            value = rewards[turn]
            colour = GOOD if value > 0 else LOST if value < 0 else DIM
            yield from write_line(x + 10, y + 40, [(f"{value:+.2f}", colour)], "bold")


def film(frames: Sequence[Frame], height: float) -> str:
    """The frames as one SVG that plays without end; where motion is not wanted, the last frame."""
    total = sum(frame.seconds for frame in frames)
    rules, groups, start = [], [], 0.0
    for number, frame in enumerate(frames):
        begin, end = 100 * start / total, 100 * (start + frame.seconds) / total
        before = f"0%{{visibility:hidden}}{begin:.3f}%" if number else "0%"
        after = (
            f"{end:.3f}%,100%{{visibility:hidden}}"
            if number < len(frames) - 1
            else "100%{visibility:visible}"
        )
        rules.append(f"@keyframes k{number}{{{before}{{visibility:visible}}{after}}}")
        rules.append(f".f{number}{{animation:k{number} {total:g}s step-end infinite}}")
        last = " last" if number == len(frames) - 1 else ""
        groups.append(f'<g class="f f{number}{last}">' + "\n".join(frame.parts) + "</g>")
        start += frame.seconds
    still = "@media (prefers-reduced-motion:reduce){.f{animation:none}.f:not(.last){visibility:hidden}}"
    font = 'font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" font-size="13"'
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
            f"<style>{''.join(rules)}{still}</style>",
            f'<rect width="100%" height="100%" rx="10" fill="{PAPER}"/>',
            *groups,
            "</svg>\n",
        ]
    )


def question(text: str) -> tuple[list[str], float]:
    """The elements of a question, and the y below it."""
    lines = wrapped(text, 112)
    parts = [*write_line(MARGIN, 30, [("question", DIM)])]
    for number, line in enumerate(lines):
        parts += write_line(MARGIN, 50 + number * ROW, line, "bold")
    return parts, 50 + len(lines) * ROW


def reading(env_id: str, task: int, method: str | None, why: str, **arguments: Any) -> str:
    """An episode of reading chunk by chunk, and what a method pays each turn, with why."""
    env: Any = gym.make(env_id, **arguments)
    if method:
        env = RewardWrapper(env, [method], scorer="lexical")
    inner: Any = env.unwrapped
    policy = make_policy("careful" if env_id == "MemChunkQA-v0" else "gold", env)
    observation, info = env.reset(seed=5, options={"task": task})
    turns = 0
    told = info["privileged"]
    asked, y = question(told["question"])
    rows, wanted = 12, [text for _, text in inner.tasks.needed_sentences(inner.tasks[task])]
    seen: list[bool] = []
    pages: list[tuple[str, list[Line], list[Line], list[Line]]] = []
    memory: list[str] = []
    over = False
    while not over:
        chunk = "" if inner.answering else observation[slice(*told["chunk_span"])]
        if chunk and env_id == "MemNIAH-v0":
            kept = [s for s in re.split(r"(?<=\.)\s+", chunk) if any(w in s or s in w for w in wanted)]
            reply = "\n".join([*memory, *[" ".join(one.split()) for one in kept]])
        else:
            reply = policy(observation, info)
        lines = around_evidence(marked(chunk, wanted, LEFT), rows)
        seen.append(any(colour == MARK for line in lines for _, colour in line))
        observation, _, terminated, truncated, info = env.step(reply)
        told, over, turns = info["privileged"], terminated or truncated, turns + 1
        before = [one for line in memory for one in wrapped("· " + line, RIGHT)]
        now = [line for line in reply.splitlines() if line.strip()] if chunk else memory
        after = [one for line in now for one in wrapped("· " + line, RIGHT, INK if line in memory else GOOD)]
        pages.append(
            (
                f"section {turns}" if chunk else "answer from memory",
                lines if chunk else wrapped(reply, LEFT),
                before,
                after,
            )
        )
        memory = now
    bottom = y + 8 + rows * ROW + 36 + 12
    frames = []
    right = MARGIN + LEFT * COLUMN + 32
    for turn, (title, lines, before, after) in enumerate(pages):
        answers = turn == len(pages) - 1
        left = list(panel(MARGIN, y, LEFT, title, lines, rows))
        for seconds, notes in ((2.4, before), (2.0, after)):
            if answers and notes is after:
                continue
            parts = [*asked, *left, *panel(right, y, RIGHT, "memory", notes or [[("(empty)", DIM)]], rows)]
            frames.append(Frame(seconds, [*parts, *steps(turns, turn, bottom, seen)]))
    correct = info["metrics"]["success"] == 1
    end = [
        [("target  ", DIM), (told["target"], INK)],
        [("correct" if correct else "wrong", GOOD if correct else LOST)],
    ]
    lines = [*pages[-1][1], [("", INK)], *end, [("", INK)], *wrapped(why, LEFT, DIM)]
    parts = [
        *asked,
        *panel(MARGIN, y, LEFT, pages[-1][0], lines, rows),
        *panel(right, y, RIGHT, "memory", pages[-1][3], rows),
    ]
    frames.append(Frame(5, [*parts, *steps(turns, turns - 1, bottom, seen, info["turn_rewards"])]))
    return film(frames, bottom + 50 + MARGIN)


def calling(env_id: str, task: int, replies: Sequence[str], method: str, why: str, **arguments: Any) -> str:
    """An episode of searches or tool calls, and what a method pays each turn; GOLD is the gold answer."""
    env = RewardWrapper(gym.make(env_id, **arguments), [method])
    _, info = env.reset(seed=0, options={"task": task})
    asked, y = question(info["privileged"]["question"])
    rows, target, evidence = 13, info["privileged"]["target"], info["privileged"]["evidence"]
    shots, seen = [], []
    for reply in replies:
        reply = reply.replace("GOLD", target)
        _, _, _, _, info = env.step(reply)
        found = re.sub(r"</?(information|result)>", "\n", info["feedback"])
        passages = re.findall(r"^Doc \d+\(Title: \"?(.*?)\"?\) (.*?)(?=^Doc |\Z)", found, re.M | re.S)
        lines: list[Line] = []
        hits = 0
        for title, text in passages:
            is_hit = any(text.strip()[:40] in " ".join(one.split()) for one in evidence)
            hits += is_hit
            lines += [
                [("▸ " + title, MARK if is_hit else INK)],
                *wrapped(textwrap.shorten(text, 150, placeholder=" …"), RIGHT, DIM),
                [("", INK)],
            ]
        shots.append((wrapped(reply, LEFT), lines or wrapped(info["feedback"].strip(), RIGHT)))
        seen.append(hits > 0)
    bottom = y + 8 + rows * ROW + 36 + 12
    right = MARGIN + LEFT * COLUMN + 32
    frames = []
    for turn, (reply_lines, found) in enumerate(shots):
        for seconds, lines in ((1.5, []), (2.4, found)):
            if turn == len(shots) - 1 and lines is found:
                continue
            parts = [
                *asked,
                *panel(MARGIN, y, LEFT, "reply", reply_lines, rows),
                *panel(right, y, RIGHT, "what comes back", lines, rows),
            ]
            frames.append(
                Frame(
                    seconds,
                    [*parts, *steps(len(shots), turn, bottom, [*seen[:turn], seen[turn] and lines is found])],
                )
            )
    end = [
        [("target  ", DIM), (target, INK)],
        [("correct", GOOD) if info["metrics"]["success"] == 1 else ("wrong", LOST)],
    ]
    parts = [
        *asked,
        *panel(MARGIN, y, LEFT, "reply", [*shots[-1][0], [("", INK)], *end], rows),
        *panel(right, y, RIGHT, method, wrapped(why, RIGHT, DIM), rows),
    ]
    frames.append(Frame(5, [*parts, *steps(len(shots), len(shots) - 1, bottom, seen, info["turn_rewards"])]))
    return film(frames, bottom + 50 + MARGIN)


def sokoban(
    env_id: str, seed: int, draws: Callable[[Any, Any], list[str]], height: float, **arguments: Any
) -> str:
    """A level solved by `gold`; `draws` gives the elements of an environment and its observation."""
    env = gym.make(env_id, **arguments)
    policy = make_policy("gold", env)
    observation, info = env.reset(seed=seed)
    frames, total, over, move = [], 0.0, False, 0
    said: list[Line] = []
    while True:
        line: Line = [("return ", DIM), (f"{total:+.2f}", GOOD if total > 0 else INK)]
        parts = [*draws(env, observation)]
        for number, one in enumerate([*said, [("", INK)], line]):
            parts += write_line(460, 60 + number * ROW, one)
        frames.append(Frame(4 if over else 2.2 if isinstance(observation, (str, dict)) else 0.7, parts))
        if over:
            return film(frames, height)
        action = policy(observation, info)
        observation, reward, terminated, truncated, info = env.step(action)
        total, over, move = total + float(reward), terminated or truncated, move + 1
        answer = (
            re.sub(r"<think></think>|</?answer>", "", action) if isinstance(action, str) else MOVES[action]
        )
        said = [
            *said,
            [(f"turn {move}  " if isinstance(action, str) else f"move {move}  ", DIM), (answer, INK)],
        ]


def board_text(env: Any, observation: Any) -> list[str]:
    """The board in symbols."""
    lines = str(
        env.unwrapped.render_board() if hasattr(env.unwrapped, "render_board") else observation
    ).splitlines()
    boards = [
        list(some)
        for key, some in itertools.groupby(lines, lambda line: bool(re.fullmatch(r"[#_O√XPS]{3,}", line)))
        if key
    ]
    board, parts = boards[-1], []
    for number, line in enumerate(board):
        place = f'x="{MARGIN + 20}" y="{60 + number * 34}" font-size="28" letter-spacing="10" fill="{INK}"'
        parts.append(f'<text {place} xml:space="preserve">{escape(line)}</text>')
    return parts


def board_picture(env: Any, observation: Any) -> list[str]:
    """The picture that is part of the observation."""
    return [picture(observation["image"], MARGIN, MARGIN)]


def board_planes(env: Any, observation: Any) -> list[str]:
    """The board as it is rendered, and the seven planes of its observation."""
    parts = [picture(rgb(env.unwrapped._playing.grid, TILE), MARGIN, MARGIN)]
    for number, name in enumerate(PLANES):
        x, y = 640 + (number % 2) * 150, 20 + (number // 2) * 78
        pixels = np.where(observation[:, :, number, None].astype(bool), [229, 199, 107], [51, 60, 79])
        parts.append(picture(np.kron(pixels, np.ones((9, 9, 1))).astype(np.uint8), x, y))
        parts += write_line(x, y + 68, [(name, DIM)])
    return parts


def picture(pixels: npt.NDArray[np.uint8], x: float, y: float) -> str:
    """An image (H, W, 3) with its corner at x, y."""
    height, width, _ = pixels.shape
    place = f'x="{x:g}" y="{y:g}" width="{width}" height="{height}"'
    return f'<image {place} href="data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"/>'


def _search(thought: str, query: str) -> str:
    return f"<think>{thought}</think>\n<search>{query}</search>"


SEARCHES = (
    _search("First the landmark: who paid for it?", "landmark of yellow brick in Sirmola"),
    _search("Fessandro Press paid. Who founded it?", "Fessandro Press company founded by"),
    _search("Bushad Munandar. Where was he born?", "Bushad Munandar born in"),
    _search("In Amohremir. Which river flows there?", "Amohremir town on the River"),
    "<think>The Yulloa flows through Amohremir.</think>\n<answer>GOLD</answer>",
)
CALL = """\
<reasoning>I look it up.</reasoning>
<tool>
{"name": "wiki_search", "args": {"query": "emblem of Amirdeshe"}}
</tool>"""
TAMTRL = (
    "TAMTRL pays a turn the outcome times how likely its memory is to a teacher who sees only the evidence."
)
OUTCOME = "The outcome alone: nothing says which of the turns earned it."
MT_PPO = (
    "MT-PPO pays form, and passages that hold the answer; each search costs 0.1 times the searches so far; "
    "a right answer in form earns 1."
)
MT_GRPO = (
    "MT-GRPO pays a call that runs (0.2) and a result that holds the answer (0.5); "
    "then a right answer, and its form."
)

PICTURES: dict[str, Callable[[], str]] = {
    "MemChunkQA-v0": lambda: reading(
        "MemChunkQA-v0", 7, "TAMTRL", TAMTRL, tasks="world-test", chunk_size=420, n_documents=12
    ),
    "MemNIAH-v0": lambda: reading("MemNIAH-v0", 0, None, OUTCOME, chunk_size=3500),
    "MemSearchQA-v0": lambda: calling(
        "MemSearchQA-v0", 1, SEARCHES, "SearchRewards", MT_PPO, tasks="world-test", k=3
    ),
    "MemToolQA-v0": lambda: calling(
        "MemToolQA-v0",
        2,
        (CALL, "<reasoning>It is a sheaf.</reasoning>\n<answer>GOLD</answer>"),
        "ToolRewards",
        MT_GRPO,
        tasks="world-test",
    ),
    "MemSokoban-v0": lambda: sokoban("MemSokoban-v0", 3, board_text, 280),
    "MemSokobanImage-v0": lambda: sokoban("MemSokobanImage-v0", 5, board_picture, 280, tile=TILE),
    "MemSokobanGrid-v0": lambda: sokoban("MemSokobanGrid-v0", 5, board_planes, 346),
}


def main() -> None:
    """Write every picture."""
    IMAGES.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
