"""Check a built site: every internal link and anchor leads somewhere, nothing is loaded from another host.

`python docs/check_site.py build/html`. With `--clipped` it also opens every page in Chromium, 1400 pixels
wide, light and dark, and names lines of code that do not fit and text that is hard to read; this needs the
extra dev-browser.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}
NOT_LOADED = ("canonical", "index", "search", "prev", "next", "author")  # rel of <link>


class SitePage(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one tag."""
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in LOADED and values.get("rel") not in NOT_LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])


def problems(site: Path) -> Iterator[str]:
    """A line for each link that leads nowhere and each file of another host."""
    pages = {path: SitePage(path) for path in sorted(site.resolve().rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for address in page.loaded:
            parts = urlsplit(address)
            if parts.netloc:
                yield f"{name}: loads {address}, which is on another host"
            elif parts.scheme != "data" and not (path.parent / unquote(parts.path)).exists():
                yield f"{name}: loads {address}, which is not there"
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{name}: {address} leads nowhere"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                yield f"{name}: {address} has no such anchor"


CLIPPED = """
const blocks = [...document.querySelectorAll("pre")];
blocks.forEach((block) => { block.style.whiteSpace = "pre"; });
const clipped = blocks.filter((block) => block.scrollWidth > block.clientWidth + 1);
blocks.forEach((block) => { block.style.whiteSpace = ""; });
return clipped.map((block) => block.textContent.trim().split("\\n").sort((a, b) => b.length - a.length)[0]);
"""
"""JavaScript: the longest line of each block that is wider than its place, so that it wraps or is cut off."""

FAINT = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const known = new Map();
const rgba = (colour) => {
  if (!known.has(colour)) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    known.set(colour, [r, g, b, a / 255]);
  }
  return known.get(colour);
};
const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];
const ground = (node) => {
  if (!node) return matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
  const colour = rgba(getComputedStyle(node).backgroundColor);
  return colour[3] === 1 ? colour : over(colour, ground(node.parentElement));
};
const light = (colour) => {
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = colour.map((c) => linear(c / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const found = new Map();
for (const node of document.body.querySelectorAll("*")) {
  const own = [...node.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE);
  const text = own.map((child) => child.data).join("").trim();
  if (!text || node.closest("svg, script, style, noscript, :disabled") || node.offsetWidth < 2) continue;
  if (!node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  const behind = ground(node), ink = over(rgba(getComputedStyle(node).color), behind);
  const [low, high] = [light(ink), light(behind)].sort((x, y) => x - y), ratio = (high + 0.05) / (low + 0.05);
  const colours = [ink, behind].map((one) => "rgb(" + one.map(Math.round).join(" ") + ")").join(" on ");
  if (ratio < 4.5) found.set(colours, `${text.slice(0, 40)}: ${colours}, contrast ${ratio.toFixed(2)}`);
}
return [...found.values()];
"""
"""JavaScript: a text of each pair of colours whose contrast is below 4.5 (WCAG 2.2, 1.4.3)."""

VIEWS = ("#e3", "#t3", "#?compare=0,1")
"""Addresses in the sample report."""


def clipped(site: Path, driver: Any, width: int = 1400) -> Iterator[str]:
    """A line for each block of code that does not fit a window of `width` pixels, and for each faint text."""
    driver.set_window_size(width, 900)
    names = (path.relative_to(site) for path in sorted(site.rglob("*.html")))
    # Files of the repository keep their lines.
    pages = [str(name) for name in names if name.parts[0] not in ("source", "_modules")]
    for name in [*pages, *(f"sample.html{view}" for view in VIEWS if "sample.html" in pages)]:
        driver.get(f"{site.resolve().as_uri()}/{name}")
        for line in driver.execute_script(CLIPPED):
            yield f"{name}: wider than {width} pixels: {line}"
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            for text in driver.execute_script(FAINT):
                yield f"{name}, {scheme}: {text}"


def main() -> int:
    """Check the site that is named."""
    match sys.argv[1:]:
        case [folder, *options] if (Path(folder) / "index.html").exists() and options in ([], ["--clipped"]):
            site = Path(folder)
        case _:
            sys.exit("usage: python docs/check_site.py FOLDER [--clipped], one that `make docs` built")
    lines = list(problems(site))
    if options:
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
        from browser import chromium  # type: ignore[import-not-found]

        with tempfile.TemporaryDirectory() as profile:
            driver = chromium(profile)
            try:
                lines += clipped(site, driver)
            finally:
                driver.quit()
    sys.stderr.writelines(f"{line}\n" for line in lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
