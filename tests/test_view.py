"""The report of episodes: what it holds, and how it behaves in a real browser."""

import http.client
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import webbrowser
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from command_line import view as main

import memenvs  # noqa: F401  # registers the environments
from memenvs import TextVectorEnv, collect
from memenvs.models import ScriptedPolicy
from memenvs.rollout.records import (
    Credit,
    Episode,
    EpisodeWriter,
    RecordEpisodes,
    read_episodes,
    text_reply,
)
from memenvs.rollout.scripted import make_policy, play_episode
from memenvs.view import write_report
from memenvs.view.server import report_server
from memenvs.view.terminal import line_diff
from memenvs.wrappers import RewardWrapper

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EVIL = "</script><script>window.evil = 1</script><img src=x onerror='window.evil = 2'>"


def write(path, episodes, policy=None):
    with EpisodeWriter(path) as writer:
        for episode in episodes:
            writer.write(episode, policy)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A reading run under reward methods, a search, and a training step of Sokoban with advantages."""
    folder = tmp_path_factory.mktemp("runs")
    reading = gym.make("MemChunkQA-v0", tasks="world-test", chunk_size=1200, n_documents=16)
    env = RewardWrapper(reading, ["TAMTRL", "InfoMem"], scorer="lexical")
    for member, name in enumerate(("gold", "silent")):
        play_episode(env, make_policy(name, env), task=3, seed=5)
        episode = env.record
        episode.number, episode.member = 3, member
        write(folder / "read" / "episodes.jsonl", [episode])
    search = RecordEpisodes(gym.make("MemSearchQA-v0", tasks="world-test"), folder / "s" / "episodes.jsonl")
    play_episode(search, make_policy("lexical", search), task=2, seed=0)
    replies = iter(["Up", "Left || Left", "Down || Down", "Right"] * 4)
    policy = ScriptedPolicy(lambda _: f"<think>I look.</think><answer>{next(replies)}</answer>")
    boards = TextVectorEnv("MemSokoban-v0", 2, autoreset_mode="Disabled")
    group = collect(boards, policy, [2**62], 2)
    for episode in group:
        episode.advantages, episode.step, episode.phase = np.linspace(-1, 1, episode.tokens), 7, "train"
    write(folder / "train" / "episodes.jsonl", group, policy)
    return folder


def read_with(path, replies, **arguments):
    """Write the episode of a reader of two chunks that replies so."""
    chunks = {"tasks": "world-test", "chunk_size": 1200, "n_documents": 16}
    env = RecordEpisodes(gym.make("MemChunkQA-v0", **chunks, **arguments), path)
    rest = iter(replies)
    play_episode(env, lambda *_: next(rest), task=3, seed=5)


# Without a browser.


def test_a_report_holds_every_episode_and_names_no_other_place(runs, tmp_path, capsys):
    out = tmp_path / "r.html"
    assert main([str(runs), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 5 episodes\n"
    page = out.read_text(encoding="utf-8")
    index = json.loads(re.search(r'id="index">(.*?)</script>', page)[1])
    assert len(index["rows"]) == 5
    assert index["runs"] == ["read", "s", "train"]
    assert index["groups"] == [0, 0, 1, 2, 2]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_the_policy_of_the_page_allows_its_own_script_alone(runs, tmp_path):
    write_report([runs / "s"], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_what_a_model_wrote_cannot_end_the_element_that_holds_it(tmp_path):
    write(tmp_path / "e.jsonl", [Episode(task=EVIL, replies=[text_reply(EVIL)], turn_rewards=[0.0])])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    write_report([tmp_path / "e.jsonl"], tmp_path / "folder")
    for page in (tmp_path / "r.html", tmp_path / "folder" / "report.html"):
        assert "<img" not in page.read_text(encoding="utf-8")


def test_numbers_that_no_browser_reads_are_left_out(tmp_path):
    episode = Episode(metrics={"success": float("nan")}, turn_rewards=[0.0], replies=[text_reply("NaN")])
    write(tmp_path / "e.jsonl", [episode])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    for part in re.findall(r'<script type="application/json".*?>(.*?)</script>', page):
        json.loads(part, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing-here", "--out", "r.html"], "there is no episodes.jsonl in nothing-here"),
        (["{empty}", "--out", "r.html"], "there is no episodes.jsonl in"),
        (["{runs}", "--out", "r.html", "--terminal"], "--terminal and --out exclude each other"),
        (["{runs}", "--out", "r.html", "--episode", "1"], "--episode is an option of --terminal; give both"),
        (["{runs}", "--terminal", "--episode", "99"], "there are 5 episodes, from 0; got --episode 99"),
        (["{runs}", "--out", "{full}"], "has 'letter.txt', which is not of a report"),
    ],
)
def test_a_mistake_is_answered_in_one_line(arguments, said, runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    places = {"runs": runs, "empty": tmp_path / "empty", "full": tmp_path / "full"}
    assert main([argument.format(**places) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert (tmp_path / "full" / "letter.txt").exists()


@pytest.mark.parametrize("display", [":0", None])
def test_a_path_alone_opens_a_temporary_report_where_there_is_a_display(
    display, runs, tmp_path, monkeypatch, capsys
):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    if display:
        monkeypatch.setenv("DISPLAY", display)
    assert main([str(runs)]) == 0
    page, _, count = capsys.readouterr().out.partition(": ")
    assert count == "5 episodes\n"
    assert tmp_path in Path(page).parents
    assert "memenvs episodes" in Path(page).read_text(encoding="utf-8")
    assert opened == ([Path(page).as_uri()] if display else [])


def test_a_report_too_large_for_one_file_names_the_folder(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("memenvs.view.report.MAX_FILE", 100)
    with pytest.raises(ValueError, match=r"give a folder instead, as --out .*r$"):
        write_report([runs], tmp_path / "r.html")


def test_the_server_answers_this_machine_alone(runs):
    server = report_server([runs])
    assert server.server_address[0] == "127.0.0.1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        answers = {}
        for name, path, host in (
            ("page", "/", ""),
            ("block", "/episodes/0.js", ""),
            ("other", "/etc", ""),
            ("foreign", "/", "evil.example"),
        ):
            call = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
            call.request("GET", path, headers={"Host": host} if host else {})
            answer = call.getresponse()
            answers[name] = answer.status, b"memenvs episodes" in answer.read()
            call.close()
    finally:
        server.shutdown()
        server.server_close()
    assert answers == {
        "page": (200, True),
        "block": (200, False),
        "other": (404, False),
        "foreign": (403, False),
    }


def test_the_server_answers_from_the_old_report_while_it_makes_a_new_one(runs, tmp_path, monkeypatch):
    file = shutil.copy(runs / "s" / "episodes.jsonl", tmp_path)
    server = report_server([file])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    during = []

    def ask(path):
        call = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        call.request("GET", path)
        status = call.getresponse().status
        call.close()
        return status

    class Asks(str):
        def encode(self, *arguments):
            during.append(ask("/episodes/0.js"))
            return str.encode(self, *arguments)

    monkeypatch.setattr("memenvs.view.server.folder_files", lambda report: {"report.html": Asks("new")})
    try:
        os.utime(file, (0, 0))
        assert ask("/") == 200
    finally:
        server.shutdown()
        server.server_close()
    assert during == [200]


def test_the_terminal_lists_episodes_and_shows_one_with_its_credits(runs, capsys):
    assert main([str(runs), "--terminal"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert main([str(runs / "read"), "--terminal", "--episode", "0"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "signals tamtrl " in shown
    assert "credits: tamtrl +" in shown
    assert "evidence inside it" in shown
    returns = re.findall(r"return so far ([+-][\d.]+)", shown)
    assert float(returns[-1]) == pytest.approx(float(re.search(r"; return (\S+);", shown)[1]), abs=1e-3)


def test_the_terminal_shows_the_chunk_of_any_wording(tmp_path, capsys):
    read_with(tmp_path / "e.jsonl", ["a", "b", "c"], template="short")
    assert main([str(tmp_path / "e.jsonl"), "--terminal", "--episode", "0"]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"^chunk \([\d,]+ characters\)\n  \S", shown, re.MULTILINE)) == 2
    assert "Text:" not in shown


def test_the_terminal_compares_memories_by_line_and_entries_by_number():
    before = "[1] Lorets\n[2] a mayor\n[3] eel stew\n[4] a survey"
    after = "[1] Lorets\n[3] nothing\n[4] a survey\n[5] eel stew"
    assert list(line_diff(before, after)) == [
        "  [1] Lorets",
        "- [2] a mayor",
        "- [3] eel stew",
        "+ [3] nothing",
        "  [4] a survey",
        "+ [5] eel stew",
    ]
    assert list(line_diff("", "a\nb")) == ["+ a", "+ b"]
    assert list(line_diff("a\nb\nc", "b\nd")) == ["- a", "  b", "- c", "+ d"]


def test_the_terminal_compares_many_similar_lines_in_seconds():
    before, after = ("\n".join(f"line {i % 5} says {i * k}" for i in range(20_000)) for k in (7, 11))
    start = time.monotonic()
    assert list(line_diff(before, after))[-1] == f"+ line 4 says {19_999 * 11}"
    assert time.monotonic() - start < 5


def test_the_terminal_shows_no_control_characters_of_a_reply(tmp_path, capsys):
    write(
        tmp_path / "e.jsonl",
        [Episode(task="a\x1b[2J", replies=[text_reply("\x1b]0;x\x07")], turn_rewards=[0])],
    )
    for more in ([], ["--episode", "0"]):
        assert main([str(tmp_path / "e.jsonl"), "--terminal", *more]) == 0
        assert not set("\x1b\x07") & set(capsys.readouterr().out)


# In Chromium.


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="they want the extra dev-browser")
    if not CHROMIUM or not shutil.which("chromedriver"):
        pytest.skip("there is no chromium with its chromedriver (apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        *("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"),
        *("disable-component-update", "disable-sync", "disable-quic", "disable-dev-shm-usage"),
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
        "window-size=1200,900",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
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


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    """A folder; other tests open reports of one file."""
    out = tmp_path_factory.mktemp("report") / "folder"
    write_report([runs], out)
    return out / "report.html"


def test_the_table_filters_and_sorts(page, report):
    page.open(report).wait(lambda: len(page.all("tbody tr")) == 5)
    page.one("#filter").send_keys("env=MemSokoban-v0 success<1")
    page.wait(lambda: len(page.all("tbody tr")) == 2)
    page.one("#filter").clear()
    page.one("#filter").send_keys("world-test")
    page.wait(lambda: len(page.all("tbody tr")) == 3)
    page.one("th[data-name=return] button").click()
    returns = page.browser.execute_script(
        "const heads = [...document.querySelectorAll('thead th')];"
        "const c = heads.findIndex((th) => th.dataset.name === 'return');"
        "return [...document.querySelectorAll('tbody tr')].map((row) => Number(row.cells[c].textContent))"
    )
    assert returns == sorted(returns, reverse=True)
    assert page.one("th[data-name=return]").get_attribute("aria-sort") == "descending"


def test_an_episode_shows_evidence_memory_credit_and_pay(page, report):
    page.open(report)
    page.all("tbody tr")[0].click()
    page.shows("#e0").one(".turn")
    assert page.all(".turn mark")  # evidence inside the chunk
    assert page.all(".turn ins")  # what came into the memory
    assert page.all("svg[role=img][aria-label^='evidence kept']")
    (coloured, *_) = page.all(".credit[title*=tamtrl]")
    assert "rgb" in coloured.get_attribute("style")
    head = page.text("#turn-1 thead")
    for name in ("outcome (replaced)", "tamtrl", "infomem", "signal of tamtrl", "return so far"):
        assert name in head


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
    assert "9 words added, 7 removed, 11 kept" in page.text("#turn-1 .label")
    assert changes(page, 2) == [[], []]


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


def test_large_memories_are_compared_in_seconds(page, tmp_path):
    lines = ["\n".join(f"line {i} says {i * k} " + "word " * 9 for i in range(900)) for k in (7, 11)]
    words = [" ".join(f"w{i * k}" for i in range(5000)) for k in (2, 3)]
    for name, memories in (("lines", lines), ("words", words)):
        read_with(tmp_path / f"{name}.jsonl", [*memories, "c"], max_memory=30_000)
    write_report(sorted(tmp_path.glob("*.jsonl")), tmp_path / "r.html")
    for view in ("#e0", "#e1"):
        start = time.monotonic()
        page.open(tmp_path / "r.html", view).one("#turn-2")
        assert time.monotonic() - start < 8, view


def test_the_chunk_is_shown_in_any_wording(page, tmp_path):
    wordings = [None, {"read": "\U0001f600 {question} {memory}\n{chunk}\nWhat do you note?"}]
    for number, template in enumerate(wordings):
        read_with(tmp_path / f"{number}.jsonl", ["a", "b", "c"], template=template)
    write_report(sorted(tmp_path.glob("*.jsonl")), tmp_path / "r.html")
    first, second, _ = read_episodes(tmp_path / "0.jsonl")[0].turns
    for view in ("#e0", "#e1"):
        page.open(tmp_path / "r.html", view).one(".turn")
        for button in page.all(".turn > .text > .more"):
            button.click()
        for number, turn in enumerate((first, second)):
            chunk = re.search(r"<section>\n(.*)\n</section>", turn.observation, re.DOTALL)[1]
            assert page.text(f"#turn-{number} .text").startswith(f"{chunk}\n")
            evidence = turn.before["privileged"]["evidence_in_chunk"]
            assert bool(page.all(f"#turn-{number} mark")) == bool(evidence)
        assert not page.all("#turn-2 mark")


def test_the_keyboard_goes_through_turns_episodes_failures_and_groups(page, report):
    page.open(report, "#e0").one(".turn")
    page.press("j")
    assert page.one(".turn.current").get_attribute("id") == "turn-1"
    page.press("k")
    assert page.one(".turn.current").get_attribute("id") == "turn-0"
    page.press("n")
    page.shows("#e1").wait(lambda: "1" in page.text("#where"))
    page.press("p")
    page.shows("#e0").one(".turn")
    page.press("f")  # the silent one
    page.shows("#e1").one(".turn")
    page.press("g")
    page.shows("#g1").wait(lambda: "Group of 2" in page.text())
    assert len(page.all(".side .card")) >= 4
    page.press("\ue00c")  # Escape
    page.wait(lambda: len(page.all("tbody tr.row")) == 5)


def test_a_search_shows_its_passages(page, report):
    page.open(report, "#e2").one(".passage")
    opened = len(page.all(".passage[open]"))
    page.one(".passage:not([open]) summary").click()
    assert len(page.all(".passage[open]")) == opened + 1
    assert len(page.all(".passage[open] .success")) == opened  # those that hold an accepted answer


def test_a_span_is_counted_in_characters_also_behind_some_that_take_two_units(page, tmp_path):
    episode = Episode(
        replies=[text_reply("\U0001f600\U0001f600 good bad")],
        turn_rewards=[1.0],
        credits={"m": [Credit(0, 1.0, (3, 7))]},
    )
    write(tmp_path / "e.jsonl", [episode])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page.open(tmp_path / "r.html", "#e0").one(".credit")
    assert page.text(".credit") == "good"


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
            "!(node.getAttribute('aria-label') || node.textContent).trim()).map((node) => node.outerHTML)"
        )
        assert nameless == []


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
    long = f"{EVIL} \ud800\u2028 " + "\U0001f600 x" * 60_000
    hostile = Episode(
        task=EVIL, env=EVIL, error=EVIL, end="failed", turn_rewards=[0.0, 0.0], metrics={EVIL: 1.0},
        signals={EVIL: [1.0, 1.0]}, credits={EVIL: [Credit(0, 1.0, (0, 9), EVIL), Credit(0, -1.0)]},
        replies=[text_reply(long), text_reply(f"<think>{EVIL}</think>")],
    )  # fmt: skip
    hostile.signals["__proto__"] = [0.0, 0.0]
    write(tmp_path / "e.jsonl", [hostile, Episode(task="b", replies=[text_reply("c")], turn_rewards=[0.0])])
    write_report([tmp_path / "e.jsonl"], tmp_path / form)
    place = tmp_path / form if form == "r.html" else tmp_path / form / "report.html"
    page.open(place)
    assert EVIL in page.text("tbody")
    page.open(place, "#e0").one(".turn")
    assert EVIL in page.text("#turn-0 .reply")[:1000]
    assert len(page.text("#turn-0 .reply")) < 30_000
    (button,) = [one for one in page.all("#turn-0 .reply .more") if "show more" in one.text]
    button.click()
    page.wait(lambda: len(page.text("#turn-0 .reply")) > 80_000)
    page.press("n")
    page.shows("#e1").wait(lambda: page.text(".reply") == "c")
    ran = page.browser.execute_script("return [window.evil, document.images.length, document.title]")
    assert ran == [None, 0, "memenvs episodes"]


def test_a_script_that_is_put_into_the_page_does_not_run(browser, report):
    page = Page(browser).open(report)
    browser.execute_script(
        "const node = document.createElement('script'); node.textContent = 'window.evil = 1';"
        "document.body.append(node)"
    )
    assert browser.execute_script("return window.evil") is None
    page.wait(lambda: any("Content Security Policy" in one["message"] for one in browser.get_log("browser")))
