"""The documentation site: `make docs` builds it into build/html, offline, with warnings as errors."""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS), str(DOCS.parent)]

from repository_links import ROOT, SAMPLE  # noqa: E402

import memenvs  # noqa: E402  # of this checkout
from memenvs.view.report import write_report  # noqa: E402

project = "memenvs"
author = "The memenvs authors"
copyright = author
version = release = memenvs.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "docstrings",
    "link_previews",
    "notebooks",
    "reference_pages",
    "repository_links",
]

source_suffix = {".md": "markdown", ".rst": "restructuredtext", ".outside": "markdown"}

# Markdown as code hosts read it: the same anchors, and bare addresses are links.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence", "html_image"]  # `<img>` has a width on code hosts too
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

# Docstrings are Google's, with code in single backticks.
default_role = "literal"
highlight_language = "none"  # a block without a language is a command or a drawing
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # attributes are members already
napoleon_attr_annotations = False  # their types stand in the signature
napoleon_custom_sections = [
    *("Action", "Observation", "Reward", "End", "Info", "Metrics", "Privileged", "Version"),
]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("ArrayLike", "Array", "Mask", "Floats", "Ids")}
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"memenvs {release}"
html_logo = html_favicon = "images/icon.svg"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")  # previews of links need the whole address
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "monokai"

# `make docs-links` asks for every address outside.
linkcheck_anchors = False
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_ignore = [r"https?://(127\.0\.0\.1|localhost)"]


def setup(app):
    """Add the sample report, to which pages link as docs/sample."""
    app.connect("build-finished", write_sample)


def write_sample(app, failed):
    """Write the sample report beside the built pages."""
    if app.builder.format == "html" and not failed:
        write_report([ROOT / SAMPLE], Path(app.outdir) / "sample.html")
