"""The parts of the documentation site: links, docstrings, pages, pictures; and the citation file."""

import base64
import importlib.util
import math
import re
import shutil
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest
from browser import chromium

import memenvs
from memenvs.core.arguments import env_parameters
from memenvs.core.episode_file import read_episodes
from memenvs.core.files import read_json, write_json
from memenvs.evaluation.suite import PartScore, SuiteResult, read_suite

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
IDS = sorted(name for name in gym.registry if name.startswith("Mem"))


def load(name):
    spec = importlib.util.spec_from_file_location(Path(name).stem, DOCS / name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


links = load("_ext/repository_links.py")
previews = load("_ext/link_previews.py")
docstrings = load("_ext/docstrings.py")
load("leaderboard.py")  # which the next one imports
environments = load("environment_pages.py")
reference = load("_ext/reference_pages.py")
pictures = load("pictures.py")
check_site = load("check_site.py")
notebooks = load("_ext/notebooks.py")


NOWHERE = "```\n[a](../README.md)\n```\n[b](../nothing.md) [c](https://a.org/x) [d](#here)\n"


@pytest.mark.parametrize(
    ("text", "page", "name", "expected"),
    [  # a page outside, a source file, the sample runs' report; code and links that lead nowhere stay
        ("[x](../data/README.md#a) [y](rewards.md)", "docs/a.md", "a", "[x](data.outside#a) [y](rewards.md)"),
        ("[x](docs/rewards.md#how-fast)", "README.md", "overview", "[x](rewards.md#how-fast)"),
        ("[x](../rewards.md)", "docs/tutorials/a.md", "tutorials/a", "[x](../rewards.md)"),
        (
            "[`g`](../baselines/grpo.py)", "docs/a.md", "a",
            '<a class="source" href="source/baselines/grpo.py.html">`g`</a>',
        ),
        ("[a](../sample)", "docs/trainers/trl.md", "trainers/trl", '<a href="../sample.html">a</a>'),
        (NOWHERE, "docs/a.md", "a", NOWHERE),
    ],
)  # fmt: skip
def test_a_link_leads_to_the_page_of_the_site_that_shows_its_target(text, page, name, expected):
    assert links.rewrite(text, page, name) == expected


def test_a_source_file_that_a_page_links_to_has_a_page():
    assert "baselines/grpo.py" in links.linked_files()


def test_a_page_becomes_a_notebook_whose_cells_are_its_python_blocks(tmp_path):
    pytest.importorskip("nbformat", reason="of the extra docs")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "p.png").write_bytes(b"abc")
    page = tmp_path / "page.md"
    page.write_text(
        "# T\n\n![p](images/p.png)\n\n[x](y.md)\n\n```python\n1\n```\n\n```output\n1\n```\n\n[w](https://a.b)\n"
    )
    cells = [(cell.cell_type, cell.source) for cell in notebooks.notebook(page).cells]
    shown = "# T\n\n![p](data:image/png;base64,YWJj)\n\nx"
    assert cells == [("markdown", shown), ("code", "1"), ("markdown", "[w](https://a.b)")]


def test_a_docstring_keeps_its_code_equations_and_signs():
    lines = ["Of `a_b` and *c*:", "", "    R_k = r_k * x_", "", "Args:", "    x: a `y`.", "", "    more"]
    found = docstrings.to_rst(lines)
    assert found[0] == r"Of ``a_b`` and \*c\*:"
    assert found[2:5] == ["::", "", "    R_k = r_k * x_"]
    assert found[-3:] == ["    x: a ``y``.", "", "    more"]


@pytest.mark.parametrize("name", IDS)
def test_an_environment_has_a_page_with_its_contract_and_every_argument_explained(name):
    page = (DOCS / "envs" / f"{name}.md").read_text(encoding="utf-8")
    assert page == environments.page(name), "write it again: python docs/environment_pages.py"
    assert f"({name}.md)" in (DOCS / "envs" / "index.md").read_text()
    for title in ("Action", "Observation", "Reward", "End", "Arguments"):
        assert f"\n## {title}\n" in page
    for parameter in env_parameters(name):
        (row,) = re.findall(rf"^\| `{parameter.name}` \|.*$", page, re.MULTILINE)
        assert re.search(r"\| [^|]+ \|$", row), row


def test_a_class_that_extends_another_has_its_contract_on_the_page():
    page = environments.page("MemSokobanImage-v0")
    assert "+10 solved" in page
    assert "the board now, and the text of" in page  # its own observation, not the other's


@pytest.mark.parametrize("name", list(reference.MODULES))
def test_a_page_of_the_reference_has_every_public_name(name):
    page = reference.module_page(name)
    assert f"\n{name}\n" in (DOCS / "api" / "index.md").read_text().partition("{toctree}")[2]
    for public in getattr(sys.modules[name], "__all__", ()):
        assert f"{name}.{public}\n" in page


def unpacked(svg):
    """An SVG with the pixels of its pictures, since one picture may be compressed in many ways."""

    def pixels(match):
        data = base64.b64decode(match[1])
        start = data.index(b"IDAT") + 4
        return zlib.decompressobj().decompress(data[start:]).hex()

    return re.sub(r"base64,([\w+/=]+)", pixels, svg)


@pytest.mark.parametrize(
    ("extension", "page", "stale"),
    [(reference, "api/memenvs.rst", "api/memenvs.gone.rst"), (links, "data.outside", "gone.outside")],
)
def test_a_written_page_whose_source_is_gone_is_deleted(extension, page, stale, tmp_path):
    (tmp_path / "api").mkdir()
    (tmp_path / stale).touch()
    handlers = {}
    app = SimpleNamespace(srcdir=tmp_path, connect=handlers.__setitem__)
    extension.setup(app)
    handlers["builder-inited"](app)
    assert (tmp_path / page).exists()
    assert not (tmp_path / stale).exists()


def test_a_panel_shows_evidence_in_the_third_line_although_the_words_come_later():
    lines = [[(text, pictures.MARK if text == "c" else pictures.INK)] for text in "abcdefgh"]
    assert pictures.around_evidence(lines, 4, "h")[:3] == lines[:3]


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_shows_what_happens_in_the_environment_now(name):
    kept = (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8")
    assert unpacked(pictures.PICTURES[name]()) == unpacked(kept), "draw it again: python docs/pictures.py"


def test_the_recorded_episode_of_a_film_is_one_that_the_environment_plays_today():
    (kept,) = read_episodes(DOCS / "images" / "smollm2-reader.jsonl")
    sizes = {"n_documents": 6, "chunk_size": 300, "max_memory": 128, "max_answer": 32, "cut_at": "document"}
    env = gym.make(kept.env, tasks="world-test", template="short", tokenizer="world", **sizes)
    observation, _ = env.reset(seed=kept.seed, options={"task": kept.number})
    for turn in kept.turns:
        assert observation == turn.observation
        observation, _, terminated, _, info = env.step(turn.action)
    assert terminated
    assert info["metrics"]["em"] == kept.metrics["em"] == 1


def test_the_leaderboard_shows_the_results_beside_it():
    kept = (DOCS / "leaderboard.md").read_text(encoding="utf-8")
    assert load("leaderboard.py").page() == kept, "write it again: python docs/leaderboard.py"


def test_a_policy_without_a_model_scores_above_a_model_only_with_a_reason():
    board = load("leaderboard.py")

    def row(policy, **means):
        scores = {part: PartScore("em", mean, 0.0, 1.0, 20, 0) for part, mean in means.items()}
        return SuiteResult("small", 2, policy, 1, "2026-01-01", "0.1.0", scores)

    model, other = row("hf:a", reading=0.5, search=0.1), row("hf:b", reading=0.9, search=0.9)
    lexical, silent = row("lexical", reading=0.4, search=0.2), row("silent", reading=0.0, search=0.0)
    (line,) = board.reasons([model, other], [lexical, silent])
    assert "`hf:a` in search, since" in line
    with pytest.raises(ValueError, match="random_text"):
        board.reasons([model], [row("random_text", reading=0.6, search=0.0)])


@pytest.fixture
def send(tmp_path, monkeypatch):
    """Put a row of the suite `small` beside the others, changed in its scores in `search` or elsewhere."""
    board = load("leaderboard.py")
    monkeypatch.setattr(board, "DOCS", tmp_path)
    shutil.copytree(DOCS / "leaderboard", tmp_path / "leaderboard")

    def send(part="search", score=None, **changes):
        other = read_json(DOCS / "leaderboard" / "lexical.json")
        row = other | {"policy": "mine"} | changes
        row["scores"] = row["scores"] | {part: other["scores"]["search"] | (score or {})}
        write_json(tmp_path / "leaderboard" / "mine.json", row)
        return board.page()

    return send


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"score": {"failed": 1}}, "failed episodes in search"),
        ({"score": {"tasks": 5}}, "search must have em of 20 tasks, got em of 5"),
        ({"score": {"metric": "f1"}}, "search must have em of 20 tasks, got f1 of 20"),
        ({"score": {"mean": 2.0}}, "search must have a share"),
        ({"score": {"mean": math.nan}}, "search must have a share"),
        ({"score": {"low": 0.2}}, "search must have a share"),
        ({"score": {"high": math.inf}}, "search must have a share"),
        ({"part": "riddles"}, "small has no part riddles"),
        ({"scores": {}}, "no reading 2k, needles 2k, tool call, Sokoban"),
        ({"suite": "smal"}, "suite 'smal' is not on the page"),
        ({"suite": "hotpotqa"}, "suite 'hotpotqa' is not on the page"),
        ({"version": 1}, "version 1; play the whole suite"),
        ({"samples": 0}, "samples must be a whole number, at least 1"),
        ({"reading": {"chunk_size": 100_000}}, "chunk_size must be at most"),
        ({"policy": ""}, "policy must be a name in one line without backticks, got ''"),
        ({"policy": "mine\n# Results"}, "policy must be a name in one line"),
        ({"policy": "mine` **best**"}, "policy must be a name in one line"),
        ({"date": "yesterday"}, "mine.json: Invalid isoformat string: 'yesterday'; give the date as YYYY"),
        ({"policy": "lexical", "note": "another"}, "repeats the row of lexical.json"),
    ],
)
def test_what_no_run_of_a_suite_on_the_page_can_be_is_refused(changes, said, send):
    with pytest.raises(ValueError, match=r"mine\.json") as refused:
        send(**changes)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_texts_of_a_row_are_no_html(send):
    page = send(policy="hf:<b>mine</b>", note="<script>alert(1)</script>")
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "<b>" not in page


def test_a_built_page_with_a_dead_link_or_a_foreign_script_is_found(tmp_path):
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="#top">a</a><a href="other.html#no">b</a><a href="gone.html">c</a>'
        '<script src="https://cdn.org/x.js"></script><a href="https://a.org">d</a>'
    )
    (tmp_path / "other.html").write_text('<a href="index.html#top">e</a>')
    assert list(check_site.problems(tmp_path)) == [
        "index.html: loads https://cdn.org/x.js, which is on another host",
        "index.html: other.html#no has no such anchor",
        "index.html: gone.html leads nowhere",
    ]


def test_code_that_does_not_fit_and_text_that_is_hard_to_read_are_found(tmp_path):
    (tmp_path / "index.html").write_text(
        "<meta name='color-scheme' content='light'><body style='background: white'><pre>fits</pre>"
        f"<pre style='overflow: auto'>short\n{'long ' * 100}</pre>"
        f"<pre style='overflow: auto; white-space: pre-wrap'>{'wraps ' * 100}</pre>"
        "<p style='color: #767676'>clear <b style='color: #777'>faint</b></p>"  # 4.54 and 4.48 on white
    )
    try:
        driver = chromium(tmp_path / "profile")
    except ImportError as error:
        pytest.skip(f"{error}; selenium is in the extra dev-browser")
    try:
        cut, wrapped, light, dark = check_site.clipped(tmp_path, driver)
    finally:
        driver.quit()
    assert cut.startswith("index.html: wider than 1400 pixels: long long")
    assert wrapped.startswith("index.html: wider than 1400 pixels: wraps wraps")
    assert light.startswith("index.html, light: faint")
    assert dark.startswith("index.html, dark: faint")


def test_the_citation_file_is_of_this_version_and_licence():
    cited = pytest.importorskip("yaml").safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert str(cited["version"]) == memenvs.__version__
    assert f'\nversion = "{cited["version"]}"\n' in pyproject
    assert f'\nlicense = "{cited["license"]}"\n' in pyproject


def test_an_environment_page_shows_scores_of_the_leaderboard_and_of_the_shipped_agents():
    page = environments.page("MemToolQA-v0").partition("## Scores")[2]
    result = read_suite(DOCS / "leaderboard" / "lexical.json").scores["tool call"]
    assert f"| lexical | {result.mean:.2f} [{result.low:.2f}, {result.high:.2f}] |" in page
    (row,) = re.findall(r"^\| smollm2-caller \| world-test \| (.*) \|$", page, re.MULTILINE)
    low, high = map(float, re.findall(r"[\d.]+", row)[1:])
    assert 0 <= low < float(row.split()[0]) < high <= 1


# That of MCP is on the page of retrieval, verl_sft on that of verl.
ADAPTERS = {path.stem: path for path in (ROOT / "memenvs" / "adapters").glob("[a-z]*.py")}
ADAPTERS = [ADAPTERS[name] for name in sorted(ADAPTERS.keys() - {"common", "servers", "mcp", "verl_sft"})]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda path: path.stem)
def test_an_adapter_has_a_page_and_a_row_with_the_version_that_its_gate_says_was_tested(adapter):
    table = [line for line in (DOCS / "trainers.md").read_text().splitlines() if line.startswith("| [")]
    rows = [line for line in table if f"(trainers/{adapter.stem}.md)" in line]
    assert rows
    assert (DOCS / "trainers" / f"{adapter.stem}.md").exists()
    for tested in re.findall(r'^check_version\("[\w-]+", "([\d.]+)"', adapter.read_text(), re.MULTILINE):
        assert all(tested in row.partition("]")[0] for row in rows)


def test_a_link_to_a_page_shows_its_title_first_paragraph_and_a_picture():
    found = previews.tags('The "page"', ["", "One & two."], "_images/x.png").splitlines()
    assert '<meta property="og:title" content="The &quot;page&quot;" />' in found
    assert '<meta property="og:description" content="One &amp; two." />' in found
    assert '<meta name="description" content="One &amp; two." />' in found
    assert '<meta property="og:image" content="_images/x.png" />' in found
