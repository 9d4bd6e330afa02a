"""What a link to a page shows elsewhere (Open Graph): its title, its first paragraph and a picture."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PICTURE = "_images/turn_credit.png"  # a bitmap, because previews show no SVG
LENGTH = 200  # characters of a description


def tags(title: str, paragraphs: Iterable[str], picture: str) -> str:
    """The `meta` elements of a page; its first paragraph with text is the description."""
    text = next((text for text in map(str.strip, paragraphs) if text), "")
    description = textwrap.shorten(text, LENGTH, placeholder=" …")
    values = {"og:type": "website", "og:site_name": "memenvs", "og:title": title, "og:image": picture}
    if description:
        values |= {"og:description": description, "description": description}
    return "\n".join(
        f'<meta {"property" if name.startswith("og:") else "name"}="{name}" content="{html.escape(value)}" />'
        for name, value in {**values, "twitter:card": "summary_large_image"}.items()
    )


def _add(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    from docutils import nodes

    if doctree is None:  # the index and the search
        return
    base = app.config.html_baseurl
    picture = f"{base.rstrip('/')}/{PICTURE}" if base else context["pathto"](PICTURE, 1)
    paragraphs = [
        node.astext() for node in doctree.findall(nodes.paragraph) if not any(node.findall(nodes.image))
    ]
    title = next(doctree.findall(nodes.title)).astext()
    context["metatags"] = f"{context.get('metatags', '')}\n{tags(title, paragraphs, picture)}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the extension to Sphinx."""
    app.connect("html-page-context", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
