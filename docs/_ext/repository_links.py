"""Markdown that code hosts show, as pages of the site.

Some pages are outside docs/, and pages link to files outside docs/. A code host shows both; Sphinx knows
neither. So each page outside gets an empty file in docs/, which git ignores, and its text when Sphinx reads
that file; and a link to a file of the repository leads to a page with that file's text.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
    "data": "data/README.md",
}
SUFFIX = ".outside"
"""The suffix of the empty files; conf.py says that they are Markdown."""
PICTURES = (".png", ".svg", ".jpg")
LEXERS = {
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".cff": "yaml",
    ".json": "json",
}
SAMPLE = "docs/sample"  # runs, of which the site has a report: sample.html
SHOWN = 200_000  # characters of a file

_FENCED = re.compile(r"^( *```+).*?^\1 *$", re.DOTALL | re.MULTILINE)
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_SCRIPT = re.compile(r"\]\(\.\./(examples/tables/\S+\.sh)\)")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]+)?\)")


def rewrite(text: str, place: str, docname: str) -> str:
    """A page's Markdown with links that Sphinx resolves.

    Args:
        text: Markdown.
        place: the file it stands in, from the root of the repository.
        docname: the page that it becomes, from docs/.
    """

    def link(match: re.Match[str]) -> str:
        image, label, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        page = next((name for name, outside in OUTSIDE.items() if outside == path), None)
        if page is not None:
            path = f"docs/{page}{SUFFIX}"
        elif not (ROOT / path).exists():
            return match[0]  # Sphinx warns
        inside = path.startswith("docs/") and path.endswith((".md", ".rst", SUFFIX))
        if inside or (image and path.endswith(PICTURES)):
            return f"{image}[{label}]({_relative(path, f'docs/{docname}')}{anchor or ''})"
        if path == SAMPLE:
            return f'<a href="{_relative("sample", docname)}.html">{label}</a>'
        return f'<a class="source" href="{_relative(source_page(path), docname)}.html">{label}</a>'

    parts, last = [], 0
    for fence in _FENCED.finditer(text):
        parts += [_LINK.sub(link, text[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, _LINK.sub(link, text[last:])])


def with_scripts(text: str) -> str:
    """A page's Markdown with the scripts that a table links to below the table, folded away."""

    def show(table: re.Match[str]) -> str:
        scripts = list(dict.fromkeys(_SCRIPT.findall(table[0])))
        if not scripts:
            return table[0]
        folder = Path(scripts[0]).parent
        paths = [*scripts, f"{folder}/table.sh", f"{folder.parent}/common.sh"]
        texts = [(path, (ROOT / path).read_text(encoding="utf-8")) for path in paths]
        blocks = [f"`{path}`\n\n```bash\n{text}```\n" for path, text in texts]
        return "\n".join([table[0], ":::{dropdown} The scripts", *blocks, ":::", ""])

    return _TABLE.sub(show, text)


def source_page(path: str) -> str:
    """The page that shows a file or lists a folder."""
    return f"source/{path}/index" if (ROOT / path).is_dir() else f"source/{path}"


@functools.cache
def linked_files() -> list[str]:
    """Files and folders outside the site that its pages link to, and what those folders hold."""
    linked: set[str] = set()
    docs = ROOT / "docs"
    pages = (page.relative_to(docs).with_suffix("").as_posix() for page in docs.rglob("*.md"))
    for docname in [*pages, *OUTSIDE]:
        place = OUTSIDE.get(docname, f"docs/{docname}.md")
        text = rewrite((ROOT / place).read_text(encoding="utf-8"), place, docname)
        for target in re.findall(r'class="source" href="([^"]+)\.html"', text):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(docname), target))
            path = path.removeprefix("source/").removesuffix("/index")
            linked.add(path)
            if (ROOT / path).is_dir():
                linked.update(f"{path}/{child.name}" for child in (ROOT / path).iterdir() if child.is_file())
    return sorted(linked)


def _relative(path: str, start: str) -> str:
    return posixpath.relpath(path, posixpath.dirname(start) or ".")


def _write(app: Sphinx) -> None:
    """Before Sphinx looks for files."""
    for stale in Path(app.srcdir).glob(f"*{SUFFIX}"):
        stale.unlink()
    for docname in OUTSIDE:
        (Path(app.srcdir) / f"{docname}{SUFFIX}").touch()


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Before a page is parsed."""
    place = OUTSIDE.get(docname)
    if place is not None:
        app.env.note_dependency(str(ROOT / place))
        source[0] = (ROOT / place).read_text(encoding="utf-8")
    source[0] = rewrite(with_scripts(source[0]), place or f"docs/{docname}.md", docname)


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each linked file."""
    for path in linked_files():
        if (ROOT / path).is_dir():
            names = sorted(child.name for child in (ROOT / path).iterdir() if child.is_file())
            body = "".join(f'<li><a href="{name}.html"><code>{name}</code></a></li>' for name in names)
            body = f"<ul>{body}</ul>"
        else:
            text = (ROOT / path).read_text(encoding="utf-8")
            lexer = LEXERS.get(os.path.splitext(path)[1], "text")
            if len(text) > SHOWN:  # what is cut can be no JSON
                text, lexer = text[: text.rfind("\n", 0, SHOWN)], "text"
            body = app.builder.highlighter.highlight_block(text, lexer, linenos="inline")
        title = f"<h1><code>{path}</code></h1>"
        yield source_page(path), {"title": path, "body": title + body, "parents": []}, "page.html"


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("builder-inited", _write)
    app.connect("source-read", _read)
    app.connect("html-collect-pages", _pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
