"""Check a built site: every internal link and anchor leads somewhere, nothing is loaded from another host.

`python docs/check_site.py build/html`. With `--clipped` it also opens every page in Chromium, 1400 pixels
wide, and names the blocks of code that are cut off; this needs the extra dev-browser.
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
return [...document.querySelectorAll("pre")].filter((block) => block.scrollWidth > block.clientWidth + 1)
    .map((block) => block.textContent.trim().split("\\n").sort((a, b) => b.length - a.length)[0])
"""
"""JavaScript: the longest line of each block that is wider than its place."""


def clipped(site: Path, driver: Any, width: int = 1400) -> Iterator[str]:
    """A line for each block of code that is cut off in a window of `width` pixels."""
    driver.set_window_size(width, 900)
    for path in sorted(site.resolve().rglob("*.html")):
        name = path.relative_to(site.resolve())
        if name.parts[0] not in ("source", "_modules"):  # files of the repository, which keep their lines
            driver.get(path.as_uri())
            for line in driver.execute_script(CLIPPED):
                yield f"{name}: cut off at {width} pixels: {line}"


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
