"""Pages as Jupyter notebooks: the build executes them, and the site has the notebook and its report.

The Python blocks of a page become cells, everything else text. A cell that raises an error stops the build.
"""

from __future__ import annotations

import base64
import mimetypes
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PAGES = ("quickstart",)
SHOW = '\n\nfrom IPython.display import IFrame\n\nIFrame("{}#e0", width="100%", height=600)'
FRAME = (
    '\n<iframe src="{0}#e0" width="100%" height="600" style="border: 1px solid"></iframe>'
    '\n<a href="{0}">Open the report alone</a>\n'
)
"""The first episode of a report, in the notebook and on the page."""

_CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```output\n.*?^```\n)?", re.DOTALL | re.MULTILINE)
_REPORT = re.compile(r'^write_report\(.*"(\S+\.html)"\)$', re.MULTILINE)
_PICTURE = re.compile(r'(?<=[("])images/[^)"]+(?=[)"])')
_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)[^)]*\)")


def notebook(page: Path) -> Any:
    """The notebook of a page, not executed; a cell that writes a report shows it.

    A notebook is not beside the pages, so its pictures are inside, and addresses of other pages are left out.
    """
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    def inside(picture: re.Match[str]) -> str:
        file = page.parent / picture[0]
        kind, _ = mimetypes.guess_type(file.name)
        return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"

    cells = []
    for number, part in enumerate(_CODE.split(page.read_text(encoding="utf-8"))):
        if number % 2:
            shown = map(SHOW.format, _REPORT.findall(part))
            cells.append(new_code_cell("".join([part.rstrip(), *shown])))
        elif part.strip():
            cells.append(new_markdown_cell(_LINK.sub(r"\1", _PICTURE.sub(inside, part)).strip()))
    for place, cell in enumerate(cells):  # otherwise the ids are random
        cell["id"] = f"cell-{place}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Before a page is parsed: link to its notebook, and show a report below the code that writes it."""
    if docname in PAGES:
        title, rest = source[0].split("\n", 1)
        link = f'<a href="{docname}.ipynb" download>Download this page as a notebook</a>'
        framed = _CODE.sub(
            lambda code: "".join([code[0], *map(FRAME.format, _REPORT.findall(code[1]))]), rest
        )
        source[0] = f"{title}\n\n{link}\n{framed}"


def _write(app: Sphinx, error: Exception | None) -> None:
    """When the site is built."""
    if error or app.builder.name != "html":
        return
    import nbformat
    from nbclient import NotebookClient

    for name in PAGES:
        document = notebook(Path(app.srcdir, f"{name}.md"))
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(
                document,
                timeout=600,
                record_timing=False,
                resources={"metadata": {"path": folder}},
                extra_arguments=["--log-level=ERROR"],  # it warns about TCP, which stays on this machine
            ).execute()
            for report in Path(folder).glob("*.html"):
                shutil.copy(report, app.outdir)
        for cell in document.cells:
            if cell.cell_type == "code":  # without progress and what other packages warn about
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        nbformat.write(document, Path(app.outdir, f"{name}.ipynb"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("source-read", _read)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
