"""Draw docs/images/*.svg: an episode of each environment as a film, the architecture and the icon.

`python docs/pictures.py` writes the same files every time. The episodes are real. In all but one scripted
policies play; a model's was recorded by

    memenvs play --env MemChunkQA-v0 --task 29 --env-args tasks=world-test n_documents=6 chunk_size=300
        cut_at=document max_memory=128 max_answer=32 template=short tokenizer=world --policy hf:smollm2-reader
        --temperature 0 --methods TAMTRL --save docs/images/smollm2-reader.jsonl
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

import memenvs
from memenvs.core.episode import Episode
from memenvs.core.episode_file import read_episodes
from memenvs.evaluation.plots import MEANINGS
from memenvs.evaluation.turns import fates
from memenvs.rollout.scripted import make_policy
from memenvs.sokoban.render import png, rgb

IMAGES = Path(__file__).parent / "images"
INK, DIM, PAPER, PANEL = "#e6e9ef", "#9aa5b8", "#1d2330", "#262d3d"
CREDIT, LOSS, MARK, KEPT = (MEANINGS[name][1] for name in ("credit", "loss", "evidence", "kept"))
SHADE = {MARK: "#4d4a22", KEPT: "#1d3f3a", LOSS: "#4a3226"}
WIDTH, MARGIN = 520, 14  # pixels; a phone shows 360 of them, and text of 14 pixels as 10
FONT, COLUMN, ROW = 14, 8.4, 19  # pixels
COLUMNS = 56  # of a panel
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
            if colour in SHADE and len(text) > 1:  # not of a sign
                yield f'<rect x="{x:g}" y="{y - 14:g}" width="{width:g}" height="18" fill="{SHADE[colour]}"/>'
            place = f'x="{x:g}" y="{y:g}" textLength="{width:g}" fill="{colour}" font-weight="{weight}"'
            yield f'<text {place} xml:space="preserve">{escape(text)}</text>'
        x += width


class Panel(NamedTuple):
    """A box with a title and at most `rows` lines."""

    title: str
    lines: Sequence[Line]
    rows: int

    @property
    def height(self) -> int:
        """Pixels from its top to its bottom."""
        return self.rows * ROW + 36

    def draw(self, y: float) -> Iterator[str]:
        """The elements of the panel whose top is at y."""
        box = f'x="{MARGIN}" y="{y:g}" width="{WIDTH - 2 * MARGIN}" height="{self.height}"'
        yield f'<rect {box} rx="6" fill="{PANEL}"/>'
        yield from write_line(MARGIN + 10, y + 20, [(self.title, DIM)])
        for number, line in enumerate(self.lines[: self.rows]):
            yield from write_line(MARGIN + 10, y + 23 + (number + 1) * ROW, line)


def wrapped(text: str, colour: str = INK, columns: int = COLUMNS) -> list[Line]:
    """A text as lines of one colour."""
    lines = [
        piece
        for line in text.splitlines()
        for piece in textwrap.wrap(line, columns, drop_whitespace=True) or [""]
    ]
    return [[(line, colour)] for line in lines]


def marked(text: str, wanted: Sequence[str]) -> list[Line]:
    """A text as lines, with the wanted sentences in the colour of evidence."""
    text = re.sub(r"[ \t]*\n[ \t]*", "\n", text.strip())
    is_wanted = np.zeros(len(text), np.bool_)
    for sentence in wanted:
        for match in re.finditer(r"\s+".join(map(re.escape, sentence.split())), text):
            is_wanted[match.start() : match.end()] = True
    lines: list[Line] = []
    at = 0
    for (line, _), *_ in wrapped(text):
        at = text.index(line, at)
        pieces = itertools.groupby(range(at, at + len(line)), key=lambda place: bool(is_wanted[place]))
        lines.append(
            [(text[(some := list(places))[0] : some[-1] + 1], MARK if key else INK) for key, places in pieces]
        )
        at += len(line)
    return lines


def around_evidence(lines: list[Line], rows: int, words: str = "") -> list[Line]:
    """The rows of a text in which its first evidence is seen; without evidence, the first of these words."""
    first = next((n - 2 for n, line in enumerate(lines) if any(colour == MARK for _, colour in line)), None)
    if words and first is None:
        first = next((n - 1 for n, line in enumerate(lines) if any(words in text for text, _ in line)), None)
    start = max(0, min(first or 0, len(lines) - rows))
    shown = lines[start : start + rows]
    if start:
        shown[0] = [("…", DIM)]
    if start + rows < len(lines):
        shown[-1] = [("…", DIM)]
    return shown


class EpisodeFilm:
    """A film of an episode: the question, panels, what each turn earned and a note, one below the other.

    Args:
        episode: the episode; its last turn is the answer.
        method: name of the method that pays.
        has_evidence: for each turn before the answer, whether it found evidence, which a dot shows.
    """

    def __init__(self, episode: Episode, method: str, has_evidence: Sequence[bool]) -> None:
        self.episode, self.has_evidence, self.fates = episode, has_evidence, fates(episode)
        self.title: Line = [
            (f"what {method} pays each turn   ", DIM),
            ("●", MARK),
            (" found evidence  ", DIM),
            *([("▼", LOSS), (" lost it", DIM)] if "lost" in self.fates else []),
        ]
        self.frames: list[Frame] = []
        self.height = 0.0

    def shoot(self, seconds: float, panels: Sequence[Panel], turn: int, note: str = "") -> None:
        """Show panels for some seconds while a turn is played; with a note the turn is paid."""
        parts, y = list[str](), 12.0
        question = self.episode.turns[0].before["privileged"]["question"]
        for line in wrapped(question, columns=COLUMNS + 2):
            y += ROW
            parts += write_line(MARGIN, y, line, "bold")
        y += 12
        for panel in panels:
            parts += panel.draw(y)
            y += panel.height + 8
        parts += self._strip(y, turn, turn + bool(note))
        for number, line in enumerate(wrapped(note, columns=COLUMNS + 2), 1):
            parts += write_line(MARGIN, y + 78 + number * ROW, line, "bold")
        self.frames.append(Frame(seconds, parts))
        self.height = y + 78 + 2 * ROW + MARGIN

    def _strip(self, y: float, now: int, paid: int) -> Iterator[str]:
        yield from write_line(MARGIN, y + 14, self.title)
        turns = len(self.episode.turns)
        width = min(118, (WIDTH - 2 * MARGIN + 6) / turns - 6)
        for turn in range(turns):
            x, answers = MARGIN + turn * (width + 6), turn == turns - 1
            box = f'x="{x:g}" y="{y + 22:g}" width="{width:g}" height="48" rx="6"'
            yield f'<rect {box} fill="{PANEL}" stroke="{INK if turn == now else PANEL}"/>'
            yield from write_line(x + 8, y + 40, [("answer" if answers else f"turn {turn + 1}", DIM)])
            if turn < paid:
                if not answers and self.has_evidence[turn]:
                    yield f'<circle cx="{x + width - 9:g}" cy="{y + 35:g}" r="4" fill="{MARK}"/>'
                if self.fates[turn] == "lost":
                    yield from write_line(x + width - 14, y + 40, [("▼", LOSS)])
                yield from write_line(x + 8, y + 61, [self.credit(turn)], "bold")

    def credit(self, turn: int) -> tuple[str, str]:
        """What a turn earned, with its colour."""
        value = self.episode.turn_rewards[turn]
        colour = CREDIT if value > 0 else LOSS if value < 0 else DIM
        return (f"{value:+.2f}" if value else "0.00"), colour


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
    font = f'font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" font-size="{FONT}"'
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


def reading(episode: Episode, method: str, notes: Sequence[str]) -> str:
    """An episode of reading section by section, and what a method pays each turn.

    Args:
        episode: the episode.
        method: name of the method.
        notes: a sentence about each turn, and one about the whole.
    """
    rows, sections, has_evidence, memories = 8, list[list[Line]](), list[bool](), [list[str]()]
    changed: dict[str, int] = {}  # lines of the memory, with the turn that added or lost them
    for number, turn in enumerate(episode.turns[:-1]):
        text = turn.observation[slice(*turn.before["privileged"]["chunk_span"])]
        lines = marked(text, evidence(episode))
        before, after = memories[-1], turn.action.splitlines()
        sections.append(around_evidence(lines, rows, after[-1].partition(",")[0]))
        has_evidence.append(any(colour == MARK for line in lines for _, colour in line))
        memories.append(after)
        changed |= {line: number for line in [*before, *after] if (line in before) != (line in after)}
    shown = EpisodeFilm(episode, method, has_evidence)
    history = list[Line]()
    for line, number in changed.items():
        credit, colour = shown.credit(number)
        first, *rest = wrapped(line, LOSS if colour == LOSS else INK, COLUMNS - 6)
        history += [[(f"{credit:5} ", colour), *first], *([(" " * 6, INK), *more] for more in rest)]
    tall = max(len(history), *map(len, memories))
    old: list[Line] = [[("(empty)", DIM)]]
    for number, (before, after) in enumerate(itertools.pairwise(memories)):
        section = Panel(f"section {number + 1} of {len(sections)}", sections[number], rows)
        new = [("- " + line, LOSS) for line in before if line not in after]
        new += [("· " + line, INK) if line in before else ("+ " + line, KEPT) for line in after]
        shown.shoot(0.8, [section, Panel("memory", old, tall)], number)
        shown.shoot(1.6, [section, Panel("memory", stacked(new), tall)], number, notes[number])
        old = stacked([("· " + line, INK) for line in after])
    last = len(sections)
    answer = Panel("answer from memory", [*wrapped(episode.turns[-1].action), *outcome(episode)], rows)
    shown.shoot(1.6, [answer, Panel("memory", old, tall)], last, notes[-2])
    whole = Panel("each line of the memory, and the credit of its turn", history, tall)
    shown.shoot(6, [answer, whole], last, notes[-1])
    return film(shown.frames, shown.height)


def calling(episode: Episode, method: str, notes: Sequence[str]) -> str:
    """An episode of searches or tool calls, and what a method pays each turn.

    It takes the arguments of `reading`.
    """
    replies = [wrapped(turn.action) for turn in episode.turns]
    rows, tall, seen, has_evidence, results = 10, max(map(len, replies)), set[str](), [], []
    for turn in episode.turns[:-1]:
        text = re.sub(r"</?(information|result)>", "\n", turn.info["feedback"])
        lines = list[Line]()
        for title, passage in re.findall(r"^Doc \d+\(Title: \"?(.*?)\"?\) (.*)", text, re.M | re.S):
            lines += [[("▸ " + title, INK)], *around_evidence(marked(passage, evidence(episode)), rows - 1)]
        new = {piece for line in lines for piece, colour in line if colour == MARK} - seen
        has_evidence.append(bool(new))
        seen |= new
        results.append(lines)
    shown = EpisodeFilm(episode, method, has_evidence)
    for number, lines in enumerate(results):
        reply = Panel("reply", replies[number], tall)
        shown.shoot(0.9, [reply, Panel("what comes back", [], rows)], number)
        shown.shoot(2, [reply, Panel("what comes back", lines, rows)], number, notes[number])
    answer = [Panel("reply", replies[-1], tall), Panel("outcome", outcome(episode), rows)]
    shown.shoot(1.6, answer, len(results), notes[-2])
    shown.shoot(6, answer, len(results), notes[-1])
    return film(shown.frames, shown.height)


def stacked(texts: Sequence[tuple[str, str]]) -> list[Line]:
    """Texts with their colours as lines, one below the other."""
    return [line for text, colour in texts for line in wrapped(text, colour)]


def evidence(episode: Episode) -> list[str]:
    """The sentences that a task needs, or the needles."""
    privileged = episode.turns[0].before["privileged"]
    return [text.strip() for text in privileged["sentences"] or privileged["evidence"]]


def outcome(episode: Episode) -> list[Line]:
    """Whether the answer of an episode is right, and the evidence that it needs."""
    privileged, right = episode.turns[0].before["privileged"], episode.metrics["success"] == 1
    verdict: Line = [
        ("right", CREDIT) if right else ("wrong", LOSS),
        (f", the target is {privileged['target']}", DIM),
    ]
    return [verdict, *stacked([("the evidence", DIM), *((text, MARK) for text in evidence(episode))])]


def played(env_id: str, task: int, replies: Sequence[str], method: str, **arguments: Any) -> Episode:
    """An episode of given replies, with the credit of a method."""
    rest = iter(replies)
    (episode,) = memenvs.collect(
        env_id, lambda *_: next(rest), [0], tasks=[task], methods=[method], env_args=arguments
    )
    return episode


def sokoban(
    env_id: str, seed: int, draws: Callable[[Any, Any], list[str]], height: float, **arguments: Any
) -> str:
    """A level solved by `gold`; `draws` gives the elements of an environment and its observation."""
    env = gym.make(env_id, **arguments)
    policy = make_policy("gold", env)
    observation, info = env.reset(seed=seed)
    frames, total, over, move = [], 0.0, False, 0
    history: list[Line] = []
    while True:
        parts, line = [*draws(env, observation)], [("return    ", DIM), (f"{total:+.2f}", INK)]
        for number, row in enumerate([*history, [("", INK)], line]):
            parts += write_line(280, 40 + number * ROW, row)
        frames.append(Frame(4 if over else 2.2 if isinstance(observation, (str, dict)) else 0.7, parts))
        if over:
            return film(frames, height)
        action = policy(observation, info)
        observation, reward, terminated, truncated, info = env.step(action)
        total, over, move = total + float(reward), terminated or truncated, move + 1
        paid = (f"{float(reward):+.2f}", CREDIT if reward > 0 else LOSS)
        if isinstance(action, str):
            moves = re.sub(r"<think></think>|</?answer>", "", action)
            history += [[(f"turn {move}    ", DIM), paid], [("  " + moves, INK)]]
        else:
            history += [[(f"{MOVES[action]:10}", INK), paid]]


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
        place = f'x="{MARGIN + 10}" y="{50 + number * 36}" font-size="28" letter-spacing="14" fill="{INK}"'
        parts.append(f'<text {place} xml:space="preserve">{escape(line)}</text>')
    return parts


def board_picture(env: Any, observation: Any) -> list[str]:
    """The picture that is part of the observation."""
    return [picture(observation["image"], MARGIN, MARGIN)]


def board_planes(env: Any, observation: Any) -> list[str]:
    """The board as it is rendered, and the seven planes of its observation."""
    parts = [picture(rgb(env.unwrapped._playing.grid, TILE), MARGIN, MARGIN)]
    for number, name in enumerate(PLANES):
        x, y = MARGIN + (number % 4) * 124, 270 + (number // 4) * 84
        pixels = np.where(observation[:, :, number, None].astype(bool), [240, 228, 66], [51, 60, 79])
        parts.append(picture(np.kron(pixels, np.ones((9, 9, 1))).astype(np.uint8), x, y))
        parts += write_line(x, y + 70, [(name, DIM)])
    return parts


def picture(pixels: npt.NDArray[np.uint8], x: float, y: float) -> str:
    """An image (H, W, 3) with its corner at x, y."""
    height, width, _ = pixels.shape
    place = f'x="{x:g}" y="{y:g}" width="{width}" height="{height}"'
    return f'<image {place} href="data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"/>'


def box(x: float, y: float, width: float, title: str, *lines: str) -> Iterator[str]:
    """A box with a title and lines of text, for `architecture`."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{38 + ROW * len(lines)}"'
    yield f'<rect {place} rx="6" fill="{PANEL}" stroke="{DIM}"/>'
    yield from write_line(x + 10, y + 23, [(title, INK)], "bold")
    for number, line in enumerate(lines, 1):
        yield from write_line(x + 10, y + 25 + number * ROW, [(line, DIM)])


def arrow(
    x: float, y: float, right: float, down: float, label: str = "", both: bool = False
) -> Iterator[str]:
    """An arrow from x, y, with a label beside or above it; `both` gives it two heads."""
    heads = 'marker-end="url(#head)"' + ' marker-start="url(#head)"' * both
    line = f'd="M{x:g} {y:g}l{right:g} {down:g}" stroke="{MARK}" stroke-width="2"'
    yield f'<path {line} fill="none" {heads}/>'
    yield from write_line(x + 12, y + down / 2 + 5, [(label, MARK)])


def architecture() -> str:
    """Task sets, environments, reward methods, and what uses their episodes."""
    across, wide, narrow = WIDTH - 2 * MARGIN, 300, 150
    side, middle = WIDTH - MARGIN - narrow, MARGIN + 60
    parts = [
        *box(MARGIN, 14, across, "task sets", "bundled, published or generated: `memenvs build`"),
        *arrow(middle, 71, 0, 30, "a task: question, documents, evidence"),
        *box(MARGIN, 106, wide, "environment", "reading, needles, search,", "tools, Sokoban, or your own"),
        *arrow(MARGIN + wide + 4, 144, side - MARGIN - wide - 8, 0, both=True),
        *box(side, 106, narrow, "policy", "function, model", "or endpoint"),
        *arrow(middle, 182, 0, 30, "each turn"),
        *box(
            MARGIN,
            217,
            wide,
            "reward methods",
            "TAMTRL, IGPO, GiGPO, …: wrappers",
            "that give every turn its credit",
        ),
        *arrow(side - 4, 255, MARGIN + wide - side + 8, 0),
        *box(side, 217, narrow, "scorer", "a model, or", "word overlap"),
        *arrow(middle, 293, 0, 30, "episodes, with the credit of each turn"),
    ]
    users = {
        "learners": ("PPO, GRPO,", "SFT, PRM"),
        "adapters": ("TRL, verl,", "SkyRL, …"),
        "evaluate": ("intervals,", "comparisons"),
        "view": ("browser,", "terminal"),
    }
    for place, (title, lines) in enumerate(users.items()):
        parts += box(MARGIN + place * 124.4, 328, 118, title, *lines)
    size = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" markerHeight="5"'
    tip = f'<path d="M0 0l8 4l-8 4z" fill="{MARK}"/>'
    head = f'<marker id="head" {size} orient="auto-start-reverse">{tip}</marker>'
    return film([Frame(1, [head, *parts])], 418)


def icon() -> str:
    """Four turns and what they earned, as in the first film."""
    parts = [f'<rect width="32" height="32" rx="7" fill="{PAPER}"/>']
    for turn, (high, colour) in enumerate([(15, CREDIT), (19, CREDIT), (5, LOSS), (19, CREDIT)]):
        place = f'x="{5 + 6 * turn}" y="{26 - high}" width="4" height="{high}" rx="1.5"'
        parts.append(f'<rect {place} fill="{colour}"/>')
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">{"".join(parts)}</svg>\n'


def _search(thought: str, query: str) -> str:
    return f"<think>{thought}</think>\n<search>{query}</search>"


SEARCHES = (
    _search("First the landmark: who paid for it?", "landmark of yellow brick in Sirmola"),
    _search("Fessandro Press paid. Who founded it?", "Fessandro Press company founded by"),
    _search("Once more: who founded it?", "Fessandro Press founded by"),
    _search("Bushad Munandar. Where was he born?", "Bushad Munandar born in"),
    _search("In Amohremir. Which river flows there?", "Amohremir town on the River"),
    "<think>The Yulloa flows through Amohremir.</think>\n<answer>River Yulloa</answer>",
)
CALL = """\
<reasoning>I look it up.</reasoning>
<tool>
{"name": "wiki_search", "args": {"query": "emblem of Amirdeshe"}}
</tool>"""
NEEDLES = ("common-pigeon", "sunlit-radio", "raspy-loom", "salty-jug")


def careless(observation: str, info: Any) -> str:
    """A reply in the first task of `MemNIAH-v0`: it keeps every needle, but loses the first one in turn 3."""
    sentences = re.findall(rf"A special magic number for (?:{'|'.join(NEEDLES)}) is \d+\.", observation)
    if "<section>" in observation:
        return "\n".join(sentences[1:] if info["turn"] == 2 else sentences)
    numbers = re.findall(r"is (\d+)", " ".join(sentences))
    return f"\\boxed{{{', '.join(numbers)}}}"


def needles() -> Episode:
    """An episode of `MemNIAH-v0` in which a turn loses a needle."""
    env = gym.make("MemNIAH-v0", chunk_size=3500)
    methods = [("IGPO", {"measure": "log"})]
    (episode,) = memenvs.collect(env, careless, [5], tasks=[0], methods=methods, scorer="lexical")
    return episode


PICTURES: dict[str, Callable[[], str]] = {
    "MemChunkQA-v0": lambda: reading(
        read_episodes(IMAGES / "smollm2-reader.jsonl")[0],
        "TAMTRL",
        (
            "Turn 1 notes a fact that the answer needs.",
            "Turn 2 notes the other one and keeps the first.",
            "Turn 3 adds a useless fact: 0.00.",
            "The answer is right.",
            "Turn 3 adds a useless fact: 0.00. The outcome alone would pay all four turns the same.",
        ),
    ),
    "MemNIAH-v0": lambda: reading(
        needles(),
        "IGPO",
        (
            "Turn 1 notes a needle.",
            "Turn 2 notes another one.",
            "Turn 3 finds nothing and loses a needle: it is charged.",
            "Turn 4 notes two needles.",
            "Turn 5 changes nothing.",
            "Three of the four numbers are right.",
            "IGPO charges turn 3 for what it lost. The outcome alone would pay all turns the same.",
        ),
    ),
    "MemSearchQA-v0": lambda: calling(
        played("MemSearchQA-v0", 1, SEARCHES, "StepSearch", tasks="world-test", k=1, max_turns=6),
        "StepSearch",
        (
            "New evidence: the landmark, and who paid for it.",
            "New evidence: who founded the company.",
            "The same passage again: this turn is charged.",
            "New evidence: where the founder was born.",
            "New evidence: the river.",
            "The answer earns the outcome.",
            "StepSearch pays a search for new evidence, and charges one that brings known passages.",
        ),
    ),
    "MemToolQA-v0": lambda: calling(
        played(
            "MemToolQA-v0",
            2,
            (CALL, "<reasoning>It is a sheaf.</reasoning>\n<answer>sheaf</answer>"),
            "ToolRewards",
            tasks="world-test",
        ),
        "MT-GRPO",
        (
            "A call that runs earns 0.2, a result with the answer 0.5.",
            "The answer is right.",
            "MT-GRPO pays a call that runs, a result with the answer, and a right answer in form.",
        ),
    ),
    "MemSokoban-v0": lambda: sokoban("MemSokoban-v0", 3, board_text, 270),
    "MemSokobanImage-v0": lambda: sokoban("MemSokobanImage-v0", 5, board_picture, 270, tile=TILE),
    "MemSokobanGrid-v0": lambda: sokoban("MemSokobanGrid-v0", 5, board_planes, 440),
    "architecture": architecture,
    "icon": icon,
}


def main() -> None:
    """Write every picture."""
    IMAGES.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
