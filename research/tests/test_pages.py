"""Links of the research pages resolve."""

import re
from pathlib import Path

import pytest
from pages import headings

PAGES = sorted(Path(__file__).parents[1].glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for place, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text()):
        target = page.parent / place if place else page
        assert target.exists(), place
        assert not anchor or anchor in headings(target), f"{place}#{anchor}"
