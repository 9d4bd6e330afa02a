"""Links of the research pages resolve."""

from pathlib import Path

import pytest
from pages import check_links

PAGES = sorted(Path(__file__).parents[1].glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    check_links(page)
