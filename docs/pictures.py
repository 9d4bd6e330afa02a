"""Draw docs/images: a turn of each environment as it is rendered.

`python docs/pictures.py` writes the same files every time.
"""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import gymnasium as gym
import numpy as np
import numpy.typing as npt

import memenvs  # noqa: F401  # registers the environments
from memenvs.sokoban.render import rgb

IMAGES = Path(__file__).parent / "images"
INK, DIM, PAPER = "#e6e9ef", "#8b95a7", "#1d2330"
COLOURS = {"1": INK, "2": DIM, "32": "#8ccf7e", "33": "#e5c76b", "0": INK}
COLUMN, ROW, MARGIN = 8.0, 18, 20  # pixels
LONGEST = 30  # lines
TILE = 32
PLANES = ("wall", "floor", "target", "box on target", "box", "player", "player on target")
CALL = '{"name": "wiki_search", "args": {"query": "QUESTION"}}'
TOOL = f"<reasoning>Who would know?</reasoning><tool>{CALL}</tool>"
SEARCH = "<think>Who would know?</think><search>QUESTION</search>"


class Shot(NamedTuple):
    """A turn to be drawn, after these replies.

    In a reply QUESTION, EVIDENCE (of the chunk) and GOLD (the gold reply) are filled in.
    """

    env: str
    seed: int
    replies: tuple[str, ...] = ()
    arguments: dict[str, Any] = {}  # noqa: RUF012  # never changed


SHOTS = (
    Shot("MemChunkQA-v0", 11, ("EVIDENCE",), {"chunk_size": 1500}),
    Shot("MemNIAH-v0", 2, ("EVIDENCE",), {"chunk_size": 1500}),
    Shot("MemSearchQA-v0", 2, (SEARCH,)),
    Shot("MemToolQA-v0", 2, (TOOL,)),
    Shot("MemSokoban-v0", 3, ("GOLD",)),
    Shot("MemSokobanImage-v0", 3, ("GOLD", "GOLD"), {"tile": TILE}),
    Shot("MemSokobanGrid-v0", 3),
)


def draw(shot: Shot) -> str:
    """The SVG of a turn."""
    if shot.env == "MemSokobanGrid-v0":
        return _planes(shot)
    env = gym.make(shot.env, render_mode="ansi", **shot.arguments)
    inner: Any = env.unwrapped
    observation, info = env.reset(seed=shot.seed)
    for reply in shot.replies:
        told = info["privileged"]
        reply = reply.replace("QUESTION", told["question"]).replace("GOLD", inner.gold_reply())
        reply = reply.replace("EVIDENCE", "\n".join(told.get("evidence_in_chunk", ())))
        observation, _, _, _, info = env.step(reply)
    lines = str(env.render()).splitlines()
    if len(lines) > LONGEST:
        lines = [*lines[: LONGEST - 1], "  \x1b[2m…\x1b[0m"]
    if isinstance(observation, dict):
        return _card(lines, observation["image"])
    return _card(lines)


def _card(lines: list[str], picture: npt.NDArray[np.uint8] | None = None) -> str:
    """Lines of a terminal, and a picture beside them."""
    columns = max(len(re.sub(r"\x1b\[\d+m", "", line)) for line in lines)
    width, height = columns * COLUMN + 2 * MARGIN, len(lines) * ROW + 2 * MARGIN
    parts, colour, weight = [], INK, "normal"
    for number, line in enumerate(lines):
        spans = []
        for code, text in re.findall(r"(?:\x1b\[(\d+)m)?([^\x1b]*)", line):
            if code:
                colour, weight = COLOURS[code], "bold" if code == "1" else "normal"
            if text:
                spans.append(f'<tspan fill="{colour}" font-weight="{weight}">{escape(text)}</tspan>')
        y = MARGIN + (number + 0.8) * ROW
        parts.append(f'<text x="{MARGIN}" y="{y:g}" xml:space="preserve">{"".join(spans)}</text>')
    if picture is not None:
        rows, cells, _ = picture.shape
        data = base64.b64encode(_png(picture)).decode()
        place = f'x="{width:g}" y="{MARGIN}" width="{cells}" height="{rows}"'
        parts.append(f'<image {place} href="data:image/png;base64,{data}"/>')
        width, height = width + cells + MARGIN, max(height, rows + 2 * MARGIN)
    return _svg(width, height, parts)


def _planes(shot: Shot) -> str:
    """A board and the seven planes of its observation."""
    env = gym.make(shot.env, **shot.arguments)
    planes, _ = env.reset(seed=shot.seed)
    grid = env.unwrapped._playing.grid  # type: ignore[attr-defined]
    board = rgb(grid, TILE)
    data = base64.b64encode(_png(board)).decode()
    side = board.shape[0]
    place = f'x="{MARGIN}" y="{MARGIN}" width="{side}" height="{side}"'
    parts = [f'<image {place} href="data:image/png;base64,{data}"/>']
    cell, pitch = 12, 12 * planes.shape[1] + 44
    for number, name in enumerate(PLANES):
        x = side + 3 * MARGIN + (number % 4) * (pitch + 20)
        y = MARGIN + (number // 4) * (cell * planes.shape[0] + 44)
        parts.append(f'<text x="{x}" y="{y + 12}" fill="{INK}">{number} {name}</text>')
        for row, column in np.ndindex(*planes.shape[:2]):
            fill = "#e5c76b" if planes[row, column, number] else "#333c4f"
            place = f'x="{x + column * cell}" y="{y + 22 + row * cell}"'
            parts.append(f'<rect {place} width="{cell - 1}" height="{cell - 1}" fill="{fill}"/>')
    return _svg(side + 3 * MARGIN + 4 * (pitch + 20), side + 2 * MARGIN + 24, parts)


def _svg(width: float, height: float, parts: list[str]) -> str:
    font = 'font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" font-size="13"'
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
            f'<rect width="100%" height="100%" rx="10" fill="{PAPER}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A picture (H, W, 3) as PNG."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    parts = [
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    ]
    blocks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(blocks)


def main() -> None:
    """Write every picture."""
    IMAGES.mkdir(exist_ok=True)
    for shot in SHOTS:
        (IMAGES / f"{shot.env}.svg").write_text(draw(shot), encoding="utf-8")


if __name__ == "__main__":
    main()
