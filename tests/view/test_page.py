"""The page of a report in a real browser."""

import json
import re
import time

import pytest
from browser import chromium
from viewer_runs import EVIL, play_runs, read_with, replied, write

from memenvs import evaluate
from memenvs.core.episode import Credit
from memenvs.core.episode_file import EpisodeWriter, read_episodes
from memenvs.core.files import read_json
from memenvs.evaluation.compare import compare
from memenvs.evaluation.summary import Interval, show_number
from memenvs.view import write_report


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return play_runs(tmp_path_factory.mktemp("runs"))


# In Chromium.


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    try:
        driver = chromium(tmp_path_factory.mktemp("profile"))
    except ImportError as error:
        pytest.skip(f"{error}; selenium is in the extra dev-browser")
    yield driver
    driver.quit()


@pytest.fixture
def page(browser):
    """Opens a page, and says at the end of the test that nothing went wrong in it."""
    browser.get_log("browser")
    yield Page(browser)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


class Page:
    """A page in the browser."""

    def __init__(self, browser):
        self.browser = browser

    def open(self, path, view=""):
        self.browser.get("about:blank")
        self.browser.get(f"file://{path}{view}")
        return self

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def one(self, selector):
        return self.wait(lambda: self.all(selector))[0]

    def text(self, selector="main"):
        return self.browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent).join('\\n')",
            selector,
        )

    def press(self, key):
        self.browser.switch_to.active_element.send_keys(key)

    def wait(self, found, seconds=10):
        end = time.monotonic() + seconds
        while not (value := found()):
            assert time.monotonic() < end, self.text("body")[:500]
            time.sleep(0.02)
        return value

    def view(self):
        return self.browser.execute_script("return location.hash")

    def shows(self, view):
        self.wait(lambda: self.view() == view)
        return self


@pytest.fixture(scope="module", params=["r.html", "folder"])
def report(request, runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / request.param
    write_report([runs], out)
    return out if out.is_file() else out / "report.html"


def column(page, name):
    """The cells of a column of the table of episodes."""
    return page.browser.execute_script(
        "const table = [...document.querySelectorAll('table')].pop();"
        "const heads = [...table.tHead.rows[0].cells].map((one) => one.textContent.split(' ')[0]);"
        "const c = heads.indexOf(arguments[0]);"
        "return [...table.tBodies[0].rows].map((row) => row.cells[c].textContent)",
        name,
    )


def header(page, name):
    """The button that sorts by a column."""
    return next(one for one in page.all("table:not(.runs) thead button") if one.text.split()[0] == name)


def test_the_table_shows_question_target_answer_and_score_and_filters_and_sorts(page, report):
    page.open(report).wait(lambda: len(page.all("tr.row")) == 5)
    assert column(page, "answer")[0] == column(page, "target")[0] != ""
    assert column(page, "success")[:2] == ["✓ 1", "✗ 0"]
    page.one("#filter").send_keys("env=MemSokoban-v0 success<1")
    page.wait(lambda: len(page.all("tr.row")) == 2)
    page.one("#filter").clear()
    first, second, *_ = column(page, "question")[0].split()
    page.one("#filter").send_keys(f'"{second} {first}"')
    page.wait(lambda: len(page.all("tr.row")) == 0)
    page.one("#filter").clear()
    page.one("#filter").send_keys(f'"{first} {second}"')
    page.wait(lambda: len(page.all("tr.row")) > 0)
    page.one("#filter").clear()
    page.one("#filter").send_keys("env=MemChunkQA-v0")
    page.wait(lambda: len(page.all("tr.row")) == 2)
    header(page, "return").click()
    returns = [float(value) for value in column(page, "return")]
    assert returns == sorted(returns, reverse=True)
    header(page, "return").click()
    assert [float(value) for value in column(page, "return")] == sorted(returns)


def test_each_run_has_its_mean_score_and_interval(page, report):
    page.open(report).one("table.runs")
    first = page.text("table.runs tbody tr:first-child")
    assert "0.500 [0.500, 0.500]" in first  # both episodes are of one task, and tasks are resampled
    page.all("table.runs a")[0].click()
    page.wait(lambda: len(page.all("tr.row")) == 2)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A report of three evaluations of the same tasks: their folder, and the page."""
    folder, reading = tmp_path_factory.mktemp("evaluated"), {"tasks": "world-test", "n_documents": 6}
    for name, policy, more in (
        ("best", "careful", {}),
        ("grows", "lexical", {"memory_mode": "react"}),
        ("plain", "lexical", {}),
    ):
        arguments = {"env_args": {**reading, **more}, "tasks": "0:6", "samples": 2, "out": folder / name}
        evaluate("MemChunkQA-v0", policy, methods=["TAMTRL"], scorer="lexical", **arguments)
    write_report([folder], folder / "r.html")
    return folder, folder / "r.html"


def test_the_runs_say_what_made_them_and_sort_by_it(page, evaluated):
    page.open(evaluated[1]).one("table.runs")
    rows = [row.text for row in page.all("table.runs tbody tr")]
    assert ["careful" in row for row in rows] == [True, False, False]
    assert ["react" in row for row in rows] == [False, True, False]  # the others have the default
    assert all("rewrite" in row for row in (rows[0], rows[2]))
    assert all("TAMTRL" in row for row in rows)
    summary = read_json(evaluated[0] / "best" / "results.json")["metrics"]["success"]
    assert Interval(summary["mean"], summary["low"], summary["high"]).span() in rows[0]

    def sort_by(name):
        next(one for one in page.all("table.runs thead button") if one.text.startswith(name)).click()
        return [row.text.split()[0] for row in page.all("table.runs tbody tr")]

    assert sort_by("success")[0] == "best"
    assert sort_by("success")[-1] == "best"
    assert sort_by("memory")[0] == "grows"
    page.open(evaluated[1], page.view()).one("table.runs")
    assert page.all("table.runs tbody tr")[0].text.startswith("grows")
    page.open(evaluated[1], "#?q=run%3Dgrows").one(".settings summary").click()
    settings = page.text(".settings")
    for setting in ("env_args.memory_mode", "env_args.n_documents", "seed"):
        assert setting in settings


def test_ticked_runs_are_compared_with_a_baseline_as_one_row_a_task(page, evaluated):
    page.open(evaluated[1]).one("[aria-label='Compare best']").click()
    page.one("[aria-label='Compare grows']").click()
    folders = [evaluated[0] / name for name in ("best", "grows")]
    (row,) = compare(folders, metrics=["success"], allow=["env_args"]).differences
    shown = page.text(".compared tbody tr:first-child")
    for text in (
        show_number(row.difference.mean, "+"),
        row.difference.span(),
        f"{row.wins}/{row.ties}/{row.losses}",
    ):
        assert text in shown
    assert "memory mode is react (rewrite in best)" in page.text(".compared .failure")
    assert len(page.all("tr.worse")) == row.losses > 0
    tasks = page.browser.find_element("css selector", "[aria-label=Tasks] table")
    assert len(tasks.find_elements("css selector", "tbody tr")) == 6
    assert tasks.find_elements("css selector", "tbody tr")[0].get_attribute("class") == "worse"
    assert not any(row.is_displayed() for row in page.all("tr.row"))  # of each episode
    page.open(evaluated[1], page.view()).one("tr.worse a").click()
    page.wait(lambda: "The same task in 3 runs" in page.text())
    page.open(evaluated[1], "#?compare=1,0").one(".compared")  # the other one is the baseline
    (back,) = compare(folders[::-1], metrics=["success"], allow=["env_args"]).differences
    shown = page.text(".compared tbody tr:first-child")
    assert show_number(back.difference.mean, "+") in shown
    assert back.difference.span() in shown


def test_compared_runs_are_shown_turn_by_turn_and_a_cost_opens_the_turn(page, evaluated):
    folders = [evaluated[0] / name for name in ("best", "grows")]
    wanted = compare(folders, allow=["env_args"]).turns
    page.open(evaluated[1], "#?compare=0,1").one("table.turns")
    rows = [row.text for row in page.all("table.turns tbody tr")]
    assert len(rows) == len(wanted)
    for text, row in zip(rows, wanted, strict=True):
        assert {row.run, show_number(row.credit.mean)} <= set(text.split())
    costly = next(row for row in wanted if row.costly)
    link = page.all("table.turns tbody tr")[wanted.index(costly)].find_element("css selector", "a")
    assert link.text == str(len(costly.costly))
    link.click()
    page.wait(lambda: f"turn={costly.turn - 1}" in page.view())


def test_a_filter_hides_runs_without_a_match_and_names_unknown_fields(page, evaluated):
    page.open(evaluated[1], "#?q=policy%3Dcareful").wait(lambda: len(page.all("tr.row")) == 12)
    assert len(page.all("table.runs tbody tr")) == 1
    page.open(evaluated[1]).one("#filter").send_keys("succes<1")
    page.wait(lambda: "succes" in page.text("[role=alert]"))
    assert "did you mean success" in page.text("[role=alert]")
    assert not any(table.is_displayed() for table in page.all("table"))
    page.one("#filter").clear()
    page.one("#filter").send_keys("success<")  # no value yet
    page.wait(lambda: page.text("[role=alert]") == "")
    assert len(page.all("table.runs tbody tr")) == 3


def test_the_strip_of_a_failure_shows_the_signals_and_where_they_fall(page, tmp_path):
    lost = replied("a", "b", "c", "d")
    for turn, value in zip(lost.turns, (0.3, 0.975, 0.5, 0.0), strict=True):
        turn.signals = {"tamtrl": value}
    lost.measured = {"tamtrl": [0, 1, 2]}  # the last turn has nothing to measure
    write(tmp_path / "e.jsonl", [lost])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page.open(tmp_path / "r.html", "#e0").one(".turn")
    said = [step.get_attribute("title") for step in page.all(".step")]
    assert "tamtrl signal 0.975" in said[1]
    assert "tamtrl signal –" in said[3]
    assert ["largest fall" in one for one in said] == [False, False, True, False]
    page.browser.execute_script(
        "const select = document.querySelector('.strip select'); select.value = 'reward';"
        "select.dispatchEvent(new Event('change'))"
    )
    assert "reward 0" in page.all(".step")[1].get_attribute("title")
    assert "strip=reward" in page.view()


def test_the_turn_that_loses_the_answer_is_marked_on_the_strip_and_on_its_card(page, tmp_path):
    read_with(tmp_path / "a" / "episodes.jsonl", ["x", "y", "z"])
    (episode,) = read_episodes(tmp_path / "a" / "episodes.jsonl")
    answer = episode.turns[0].before["privileged"]["target"]
    for name, replies in (
        ("b", [answer, "nothing", "wrong"]),
        ("c", [answer, f"so: {answer}", rf"\boxed{{{answer}}}"]),
    ):
        read_with(tmp_path / name / "episodes.jsonl", replies)
    write_report([tmp_path], tmp_path / "r.html")
    for view, marked in (("#e1", [False, True, False]), ("#e2", [False] * 3)):
        page.open(tmp_path / "r.html", view).one(".turn")
        assert ["▼" in step.text for step in page.all(".step")] == marked
        assert [bool(card.find_elements("css selector", ".lost")) for card in page.all(".turn")] == marked
    page.open(tmp_path / "r.html", "#t1").one(".side")
    assert "lost" in page.text(".side [aria-label='Turn 2 of b']")
    assert "lost" not in page.text(".side [aria-label='Turn 2 of c']")


def test_an_empty_reply_is_seen_with_its_credit(page, tmp_path):
    write(tmp_path / "e.jsonl", [replied("", credits={"m": [Credit(0, -0.6)]}), replied("x")])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    (piece,) = page.open(tmp_path / "r.html", "#e0").one(".turn").find_elements("css selector", ".credit")
    assert piece.text == "(empty)"
    assert "m -0.6" in piece.get_attribute("title")
    assert "--loss" in piece.get_attribute("style")
    assert column(page.open(tmp_path / "r.html"), "answer") == ["(empty)", "x"]


def test_the_address_keeps_filter_order_and_turn(page, report):
    page.open(report, "#?q=env%3DMemChunkQA-v0&sort=return").wait(lambda: len(page.all("tr.row")) == 2)
    page.all("tr.row")[0].click()
    page.one(".turn")
    page.press("j")
    page.wait(lambda: "turn=1" in page.view())
    page.open(report, page.view()).one(".turn.current#turn-1")
    page.press("\ue00c")  # Escape
    page.wait(lambda: len(page.all("tr.row")) == 2)
    assert page.browser.title.startswith("episodes")


def test_an_episode_begins_with_what_was_asked_expected_answered_and_scored(page, report):
    page.open(report)
    page.wait(lambda: page.all("tr.row"))[0].click()
    page.one(".turn")
    boxes = page.text(".headline-boxes")
    for name in ("question", "target", "answer", "score"):
        assert name in boxes
    assert "✓ 1" in boxes
    assert "Episode 0" in page.browser.title


def test_an_episode_shows_evidence_memory_credit_and_pay(page, report):
    page.open(report, "#e0").one(".turn")
    assert page.all(".turn mark")  # evidence inside the chunk
    assert page.all(".turn ins")  # what came into the memory
    (coloured, *_) = page.all(".credit[title*=tamtrl]")
    assert "rgb" in coloured.get_attribute("style")
    table = page.text(".card thead")
    for name in ("outcome, replaced", "tamtrl", "infomem", "tamtrl signal", "return so far"):
        assert name in table


def test_the_strip_says_where_evidence_was_read_and_kept_and_goes_to_a_turn(page, report):
    page.open(report, "#e0").one(".turn")
    said = [step.get_attribute("title") for step in page.all(".step")]
    assert any("reads evidence" in one for one in said)
    assert any("% of it" in one for one in said)
    page.all(".step")[1].click()
    assert page.one(".turn.current").get_attribute("id") == "turn-1"


def test_arrow_keys_say_the_credit_of_each_piece_of_a_reply(page, report):
    page.open(report, "#e3").one("#turn-0 .credit")
    reply = page.one("#turn-0 .reply")
    page.browser.execute_script("arguments[0].focus()", reply)
    reply.send_keys("\ue014\ue014")  # the second piece
    pieces = page.all("#turn-0 .credit")
    assert pieces[1].get_attribute("title") in page.text("#turn-0 .said")
    assert "log-probability" in page.text("#turn-0 .said")


def test_the_same_task_in_other_runs_is_shown_side_by_side(page, runs, tmp_path):
    for name in ("gold", "silent"):
        read_with(tmp_path / name / "episodes.jsonl", [name, "b", "c"])
    write_report([tmp_path], tmp_path / "r.html")
    page.open(tmp_path / "r.html", "#e0").one(".turn")
    page.browser.execute_script("document.querySelector('a[href^=\"#t0\"]').click()")
    page.wait(lambda: "The same task in 2 runs" in page.text())
    assert [name.text for name in page.all(".side .name")] == ["gold", "silent"]


def test_side_by_side_scrolls_as_one_with_names_apart_and_evidence(page, evaluated):
    page.open(evaluated[1], "#t0").one(".side")
    names = [name.text for name in page.all(".side .name")]
    assert names[:3] == ["best, sample 1", "grows, sample 1", "grows, sample 2"]
    assert len(set(names)) == len(names) == 5
    assert len(page.all(".side")) == 1  # all turns move together
    assert "reads evidence" in page.text(".side .card")
    assert page.all(".side .evidence mark")
    head, side = page.one(".side .name"), page.one(".side")
    page.browser.execute_script("arguments[0].scrollTop = 200", side)
    assert head.rect["y"] == pytest.approx(side.rect["y"], abs=2)  # the names stay


def changes(page, turn):
    """What the memory lost and gained at a turn."""
    find = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)"
    return [page.browser.execute_script(find, f"#turn-{turn} {kind}") for kind in ("del", "ins")]


def test_memories_are_compared_by_line_and_by_word_inside_lines_that_are_mostly_equal(page, tmp_path):
    before = "The kitchens of the Kunnelle are famous.\n\nLorets is a town on the Dundura.\nAsk who drew it"
    after = "In the Hevuvo the stones are old.\n\nLorets is a town on the River Dundura.\nAsk who drew it now"
    read_with(tmp_path / "e.jsonl", [before, after, "c"])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page.open(tmp_path / "r.html", "#e0").one(".turn")
    assert changes(page, 1) == [
        ["The kitchens of the Kunnelle are famous.\n"],
        ["In the Hevuvo the stones are old.\n", " River", " now"],
    ]
    assert "9 words added, 7 removed, 11 kept" in page.text("#turn-1 .memory summary")
    assert changes(page, 2) == [[], []]
    assert "memory unchanged" in page.text("#turn-2 .memory summary")


def test_a_word_replaced_at_the_start_of_a_line_stays_apart_from_the_new_one(page, tmp_path):
    read_with(tmp_path / "e.jsonl", ["Dana leads the town", "Ann leads the town", "c"])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page.open(tmp_path / "r.html", "#e0").one(".turn")
    assert "Dana Ann leads the town" in page.text("#turn-1 .memory .text")


def test_entries_are_compared_by_their_number(page, tmp_path):
    first = "ADD: Lorets is a town\nADD: the mayor is Brobya\nADD: the kitchens are famous for eel stew"
    second = "UPDATE 1: Lorets is a big town\nDELETE 2\nUPDATE 3: nothing\nADD: the mayor is Brobya"
    read_with(tmp_path / "e.jsonl", [first, second, "c"], memory_mode="structured")
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page.open(tmp_path / "r.html", "#e0").one(".turn")
    assert changes(page, 1) == [
        ["[2] the mayor is Brobya\n[3] the kitchens are famous for eel stew\n"],
        [" big", "[3] nothing\n[4] the mayor is Brobya\n"],
    ]


def test_large_memories_are_compared(page, tmp_path):
    lines = ["\n".join(f"line {i} says {i * k} " + "word " * 9 for i in range(900)) for k in (7, 11)]
    words = [" ".join(f"w{i * k}" for i in range(5000)) for k in (2, 3)]
    for name, memories in (("lines", lines), ("words", words)):
        read_with(tmp_path / f"{name}.jsonl", [*memories, "c"], max_memory=30_000)
    write_report(sorted(tmp_path.glob("*.jsonl")), tmp_path / "r.html")
    for view in ("#e0", "#e1"):
        page.open(tmp_path / "r.html", view).one("#turn-2")


def test_the_chunk_is_shown_in_any_wording(page, tmp_path):
    wordings = [None, "short", {"read": "\U0001f600 {question} {memory}\n{chunk}\nWhat do you note?"}]
    for number, template in enumerate(wordings):
        read_with(tmp_path / f"{number}.jsonl", ["a", "b", "c"], template=template)
    write_report(sorted(tmp_path.glob("*.jsonl")), tmp_path / "r.html")
    first, second, _ = read_episodes(tmp_path / "0.jsonl")[0].turns
    for view in ("#e0", "#e1", "#e2"):
        page.open(tmp_path / "r.html", view).one(".turn")
        for button in page.all(".turn .label + .text > .more"):
            button.click()
        for number, turn in enumerate((first, second)):
            chunk = re.search(r"<section>\n(.*)\n</section>", turn.observation, re.DOTALL)[1]
            assert page.text(f"#turn-{number} .label + .text").startswith(chunk)
            evidence = turn.before["privileged"]["evidence_in_chunk"]
            assert bool(page.all(f"#turn-{number} mark")) == bool(evidence)
        assert not page.all("#turn-2 mark")


def test_where_everything_stays_in_the_prompt_a_turn_shows_the_chunk_that_it_read(page, tmp_path):
    read_with(tmp_path / "e.jsonl", ["\U0001f600 a", "b", "c"], memory_mode="react")
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    turns = read_episodes(tmp_path / "e.jsonl")[0].turns
    page.open(tmp_path / "r.html", "#e0").one(".turn")
    for button in page.all(".turn .label + .text > .more"):
        button.click()
    for number, turn in enumerate(turns[:2]):
        read = turn.before["privileged"]
        chunk = turn.observation[slice(*read["chunk_span"])]
        assert page.text(f"#turn-{number} .label + .text").startswith(chunk)
        assert bool(page.all(f"#turn-{number} mark")) == bool(read["evidence_in_chunk"])
    assert not page.all("#turn-2 mark")


def look_for(page, text):
    """Search in the open episode, and wait until the page says what it found."""
    page.press("/")
    page.browser.execute_cdp_cmd("Input.insertText", {"text": text})  # keys have no emoji
    page.press("\ue007")  # Enter
    page.wait(lambda: "find=" in page.view())
    return page.text(".tools [role=status]")


def test_a_search_opens_folded_and_shortened_texts_and_goes_from_place_to_place(page, tmp_path):
    read_with(tmp_path / "e.jsonl", ["a", "b", "c"])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page.open(tmp_path / "r.html", "#e0").one(".turn")
    chunk = re.search(r"<section>\n(.*)", read_episodes(tmp_path / "e.jsonl")[0].turns[1].observation)[1]
    phrase = " ".join(chunk.split()[:12]).upper()  # its first words, which the page leaves out at first
    assert phrase not in page.text("#turn-1 .label + .text").upper()
    assert look_for(page, phrase.replace(" ", "  ")) == "1 of 2"  # in the chunk, and in the prompt
    assert page.one(".turn.current").get_attribute("id") == "turn-1"
    prompt = "#turn-1 .halves > :first-child details[open]"
    assert not page.all(prompt)
    page.press("\ue007")
    page.wait(lambda: "2 of 2" in page.text(".tools"))
    assert page.all(prompt)
    page.press("\ue007")
    page.wait(lambda: "1 of 2" in page.text(".tools"))


def test_a_search_crosses_pieces_and_knows_no_special_characters(page, tmp_path):
    reply = "What (was) seen: 1.5 [of] 😀 them?"
    write(tmp_path / "e.jsonl", [replied(reply, credits={"m": [Credit(0, 1.0, (3, 18))]})])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    for text, told in ((reply, "1 of 2"), ("1x5", "not found"), ("(", "1 of 2")):  # the answer is the reply
        page.open(tmp_path / "r.html", "#e0").one(".turn")
        assert look_for(page, text) == told


def test_the_next_episode_is_searched_for_the_same_text(page, report):
    page.open(report, "#e0?find=%5Cboxed%7BB").one(".turn")
    assert "of" in page.text(".tools [role=status]")
    page.press("n")
    page.shows("#e1?find=%5Cboxed%7BB").wait(lambda: "not found" in page.text(".tools [role=status]"))


def test_everything_of_an_episode_unfolds(page, report):
    page.open(report, "#e0").one(".turn")
    assert page.all(".turn details:not([open])")
    page.press("o")
    assert not page.all(".turn details:not([open])")
    assert not page.all(".turn .more")


def test_an_episode_is_saved_as_json(page, runs, report, tmp_path):
    page.browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    page.open(report, "#e1").one(".turn")
    page.one("button[aria-label*=JSON]").click()
    saved = tmp_path / "episode-1.json"
    page.wait(saved.exists)
    line = (runs / "read" / "episodes.jsonl").read_text().splitlines()[1]
    assert json.loads(saved.read_text()) == json.loads(line)


def test_a_dark_page_prints_light_with_its_marks(page, report):
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    find = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    try:
        for media, back, tools in (("", "rgb(22, 24, 28)", "flex"), ("print", "rgb(251, 251, 249)", "none")):
            page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
            page.open(report, "#e0").one(".turn")
            assert page.browser.execute_script(find, "body", "backgroundColor") == back
            assert page.browser.execute_script(find, ".tools", "display") == tools
        assert page.browser.execute_script(find, "mark", "printColorAdjust") == "exact"
    finally:
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_colour_returns_to_credit_after_an_episode_without_any(page, report):
    page.open(report, "#e2").one(".turn")
    chosen = "return document.querySelector('.legend select').value"
    assert page.browser.execute_script(chosen) == "nothing"
    page.press("p")
    page.shows("#e1").wait(lambda: page.browser.execute_script(chosen) == "credit")
    page.all(".legend option")[-1].click()  # nothing, by choice
    page.press("p")
    page.shows("#e0?colour=nothing").wait(lambda: page.browser.execute_script(chosen) == "nothing")


def test_the_keyboard_goes_through_turns_episodes_failures_and_groups(page, report):
    page.open(report, "#e0").one(".turn")
    page.press("j")
    assert page.one(".turn.current").get_attribute("id") == "turn-1"
    page.press("k")
    assert page.one(".turn.current").get_attribute("id") == "turn-0"
    page.press("n")
    page.shows("#e1").wait(lambda: "Episode 1" in page.text())
    page.press("p")
    page.shows("#e0").wait(lambda: "Episode 0" in page.text())
    page.press("f")  # the silent one
    page.shows("#e1").wait(lambda: "Episode 1" in page.text())
    page.press("g")
    page.shows("#g1").wait(lambda: "Group (2)" in page.text())
    assert len(page.all(".side .card")) >= 4
    page.press("\ue00c")  # Escape
    page.wait(lambda: len(page.all("tbody tr.row")) == 5)


def test_a_search_shows_its_passages(page, report):
    page.open(report, "#e2").one(".passage")
    opened = len(page.all(".passage[open]"))
    page.one(".passage:not([open]) summary").click()
    assert len(page.all(".passage[open]")) == opened + 1
    assert len(page.all(".passage[open] .success")) == opened  # those with evidence


def test_a_span_is_counted_in_characters_also_behind_some_that_take_two_units(page, tmp_path):
    episode = replied("\U0001f600\U0001f600 good bad", credits={"m": [Credit(0, 1.0, (3, 7))]})
    write(tmp_path / "e.jsonl", [episode])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page.open(tmp_path / "r.html", "#e0").one(".credit")
    assert page.text(".credit") == "good"


def test_a_reply_says_how_many_tokens_it_has_and_what_cut_it_off(page, tmp_path):
    episode = replied("a", "b", "", "d")
    for turn, tokens, finished in zip(
        episode.turns, (1, 2, 0, None), (True, False, False, None), strict=True
    ):
        turn.reply.tokens, turn.reply.finished = tokens, finished
    write(tmp_path / "e.jsonl", [episode])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page.open(tmp_path / "r.html", "#e0").one(".turn")
    assert [page.text(f"#turn-{k} .label") for k in range(4)] == [
        "reply, 1 token",
        "reply, 2 tokens, truncated at its limit",
        "reply, no room behind the prompt",
        "reply",
    ]


def test_an_episode_that_was_kept_without_texts_shows_replies_and_rewards(page, runs, tmp_path):
    episodes = read_episodes(runs / "read" / "episodes.jsonl")
    with EpisodeWriter(tmp_path / "e.jsonl", texts=False) as writer:
        writer.write(episodes[0])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page.open(tmp_path / "r.html", "#e0").one(".turn")
    assert not page.all(".turn .halves, .turn .memory")
    assert page.text("#turn-2 .reply") == episodes[0].turns[2].action
    assert "tamtrl" in page.text("#turn-2 .facts")


def test_a_group_of_a_learner_has_boards_and_the_advantage_of_each_turn(page, report):
    page.open(report, "#g3").wait(lambda: "learner's advantage, turn 1" in page.text())
    assert page.all("svg.board[role=img][aria-label^='Board']")
    assert page.all(".credit[title*='advantage'][title*='log-probability']")
    assert "thought" in page.text(".thought summary")


def test_everything_that_is_pressed_has_a_name(page, report):
    for view in ("", "#e0", "#g3"):
        page.open(report, view).wait(lambda: page.all("main button, main select"))
        nameless = page.browser.execute_script(
            "return [...document.querySelectorAll('button, select, input, a, summary')].filter((node) => "
            "!(node.getAttribute('aria-label') || (node.closest('label') || node).textContent).trim())"
            ".map((node) => node.outerHTML)"
        )
        assert nameless == []


def test_the_differences_of_runs_are_read_on_a_phone_without_scrolling_sideways(page, evaluated):
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        for view, selector in (("#?compare=0,1", ".compared .scroll"), ("#t0?compare=0,1", ".side")):
            page.open(evaluated[1], view).one(selector)
            for box in page.all(selector):
                assert page.browser.execute_script(
                    "return arguments[0].scrollWidth <= arguments[0].clientWidth", box
                )
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_narrow_window_is_not_wider_than_it_is(page, report):
    page.browser.set_window_size(500, 800)
    try:
        for view in ("", "#e0", "#e2", "#g3"):
            page.open(report, view).wait(lambda: page.all("main button, main select"))
            root = "document.documentElement"
            assert page.browser.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth"), view
    finally:
        page.browser.set_window_size(1200, 900)


@pytest.mark.parametrize("form", ["r.html", "folder"])
def test_a_hostile_episode_changes_nothing(page, form, tmp_path):
    long = f"{EVIL} \ud800\u2028 " + "\U0001f600 x" * 350_000
    hostile = replied(
        *(long, f"<think>{EVIL}</think>"),
        signals={EVIL: 1.0, "__proto__": 0.0},
        measured={EVIL: [0]},
        credits={EVIL: [Credit(0, 1.0, (0, 9), EVIL), Credit(0, -1.0)], "__proto__": [Credit(0, 1.0)]},
        **{"task": EVIL, "env": EVIL, "error": EVIL, "end": "failed", "metrics": {EVIL: 1.0}},
    )
    write(tmp_path / "e.jsonl", [hostile, replied("c", task="b")])
    write_report([tmp_path / "e.jsonl"], tmp_path / form)
    place = tmp_path / form if form == "r.html" else tmp_path / form / "report.html"
    page.open(place)
    assert "end" in page.text("thead")
    page.open(place, "#e0").one(".turn")
    assert EVIL in page.text("#turn-0 .reply")[:1000]
    assert len(page.text("#turn-0 .reply")) < 30_000
    (button,) = [one for one in page.all("#turn-0 .reply .more") if "show more" in one.text]
    button.click()
    page.wait(lambda: len(page.text("#turn-0 .reply")) > 80_000)
    page.press("n")
    page.shows("#e1").wait(lambda: page.text(".reply") == "c")
    ran = page.browser.execute_script("return [window.evil, document.images.length, document.title]")
    assert ran == [None, 0, "Episode 1, b · memenvs"]


def test_a_script_that_is_put_into_the_page_does_not_run(browser, report):
    page = Page(browser).open(report)
    browser.execute_script(
        "const node = document.createElement('script'); node.textContent = 'window.evil = 1';"
        "document.body.append(node)"
    )
    assert browser.execute_script("return window.evil") is None
    page.wait(lambda: any("Content Security Policy" in one["message"] for one in browser.get_log("browser")))
