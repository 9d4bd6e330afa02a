"""The report of episodes: its content, how it is served, and the terminal's report."""

import contextlib
import http.client
import json
import re
import shutil
import socket
import struct
import sys
import tempfile
import threading
import webbrowser
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from command_line import view as main
from viewer_runs import EVIL, play_runs, read_with, replied, write

from memenvs import collect, evaluate
from memenvs.core.episode import Credit
from memenvs.core.episode_file import EpisodeWriter, RecordEpisodes, read_episodes
from memenvs.evaluation.compare import compare
from memenvs.view import write_report
from memenvs.view.provenance import run_settings
from memenvs.view.report import make_report
from memenvs.view.server import ReportServer
from memenvs.view.terminal import line_diff
from memenvs.wrappers import RewardWrapper


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return play_runs(tmp_path_factory.mktemp("runs"))


def shown_index(page):
    return json.loads(re.search(r'id="index">(.*?)</script>', page)[1])


def test_a_report_holds_every_episode_and_names_no_other_place(runs, tmp_path, capsys):
    out = tmp_path / "r.html"
    assert main([str(runs), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 5 episodes\n"
    page = out.read_text(encoding="utf-8")
    index = shown_index(page)
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
    write(tmp_path / "e.jsonl", [replied(EVIL, task=EVIL)])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    write_report([tmp_path / "e.jsonl"], tmp_path / "folder")
    for page in (tmp_path / "r.html", tmp_path / "folder" / "report.html"):
        assert "<img" not in page.read_text(encoding="utf-8")


def test_numbers_that_no_browser_reads_are_left_out(tmp_path):
    write(tmp_path / "e.jsonl", [replied("NaN", metrics={"success": float("nan")})])
    write_report([tmp_path / "e.jsonl"], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    for part in re.findall(r'<script type="application/json".*?>(.*?)</script>', page):
        json.loads(part, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing-here", "--out", "r.html"],
        ["{empty}", "--out", "r.html"],
        [],
        ["{runs}", "--out", "r.html", "--terminal"],
        ["{runs}", "--terminal", "--episode", "99"],
        ["{runs}", "--out", "{full}"],
    ],
)
def test_a_mistake_is_answered_in_one_line(arguments, runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    places = {"runs": runs, "empty": tmp_path / "empty", "full": tmp_path / "full"}
    assert main([argument.format(**places) for argument in arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
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


@contextlib.contextmanager
def serving(server):
    """Gives what asks a server for a path: its status and the body."""

    def ask(path, **headers):
        call = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        call.request("GET", path, headers=headers)
        answer = call.getresponse()
        with contextlib.closing(call):
            return answer.status, answer.read()

    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield ask
    finally:
        server.shutdown()
        server.server_close()


def test_the_server_answers_this_machine_alone(runs):
    server = ReportServer([runs])
    assert server.server_address[0] == "127.0.0.1"
    with serving(server) as ask:
        status, page = ask("/")
        assert (status, b"memenvs episodes" in page) == (200, True)
        assert ask("/episodes/0.js")[0] == 200
        assert ask("/etc")[0] == 404
        assert ask("/", Host="evil.example")[0] == 403


def test_names_that_no_file_can_have_and_tabs_that_close_leave_no_traceback(runs, capfd):
    with serving(server := ReportServer([runs])) as ask:
        assert [ask(path)[0] for path in ("/%00", "/%ff%00", f"/{'a' * 5000}")] == [404] * 3
        for _ in range(20):
            with socket.create_connection(server.server_address, timeout=5) as tab:
                tab.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                tab.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ask("/")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_reload_shows_the_episodes_that_were_added(runs, tmp_path):
    file = Path(shutil.copy(runs / "s" / "episodes.jsonl", tmp_path))
    with serving(ReportServer([file])) as ask:
        before = ask("/")[1]
        file.write_bytes(2 * file.read_bytes())
        after = ask("/")[1]
    assert [len(shown_index(page.decode())["rows"]) for page in (before, after)] == [1, 2]


def test_the_terminal_lists_episodes_and_shows_one_with_its_credits(runs, capsys):
    assert main([str(runs), "--terminal"]) == 0
    listed = capsys.readouterr().out
    assert re.findall(r"^ +(\d) ", listed, re.M) == list("01234")
    assert re.findall(r"(\w+)/episodes.jsonl", listed) == ["read", "s", "train"]
    assert main([str(runs / "read"), "--terminal", "--episode", "0"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "signals tamtrl " in shown
    assert "credits: tamtrl +" in shown
    assert "evidence inside it" in shown
    returns = re.findall(r"return so far ([+-][\d.]+)", shown)
    assert float(returns[-1]) == pytest.approx(float(re.search(r"; return (\S+);", shown)[1]), abs=1e-3)


def test_the_terminal_lists_failures_alone_by_their_numbers(runs, capsys):
    assert main([str(runs / "read"), "--failures"]) == 0
    assert re.findall(r"^ +(\d) ", capsys.readouterr().out, re.M) == ["1"]  # gold succeeds, silent does not


def test_the_terminal_shows_the_chunk_of_any_wording(tmp_path, capsys):
    read_with(tmp_path / "e.jsonl", ["a", "b", "c"], template="short")
    assert main([str(tmp_path / "e.jsonl"), "--terminal", "--episode", "0"]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"^chunk \([\d,]+ characters\)\n  \S", shown, re.MULTILINE)) == 2
    assert "Text:" not in shown


def test_the_terminal_shows_the_chunk_that_a_turn_read_where_everything_stays_in_the_prompt(tmp_path, capsys):
    read_with(tmp_path / "e.jsonl", ["a", "b", "c"], memory_mode="react")
    assert main([str(tmp_path / "e.jsonl"), "--terminal", "--episode", "0"]) == 0
    turns = capsys.readouterr().out.split("\nturn ")[1:]
    assert ["chunk (" in turn for turn in turns] == [True, True, False]
    assert not any("came back" in turn for turn in turns)


def test_the_terminal_shows_an_episode_that_was_kept_without_texts(runs, tmp_path, capsys):
    (episode, _) = read_episodes(runs / "read" / "episodes.jsonl")
    with EpisodeWriter(tmp_path / "e.jsonl", texts=False) as writer:
        writer.write(episode)
    assert main([str(tmp_path / "e.jsonl"), "--terminal", "--episode", "0"]) == 0
    shown = capsys.readouterr().out
    assert episode.turns[2].action in shown
    assert "credits: tamtrl +" in shown


def test_a_report_has_the_intervals_of_the_evaluation(tmp_path):
    reading = {"tasks": "world-test", "n_documents": 6}
    summary = evaluate(
        "MemChunkQA-v0", "lexical", env_args=reading, tasks="0:9", samples=2, out=tmp_path / "run"
    )
    (intervals,) = make_report([tmp_path / "run"]).table["intervals"]
    for name in ("success", "f1", "prompt_tokens", "return"):
        assert intervals[name] == pytest.approx(summary.metrics[name].interval, rel=1e-5)


def test_a_report_has_the_differences_of_the_comparison(tmp_path):
    reading = {"tasks": "world-test", "n_documents": 6}
    for name in ("careful", "lexical"):
        evaluate("MemChunkQA-v0", name, env_args=reading, tasks="0:9", samples=2, out=tmp_path / name)
    compared = compare([tmp_path / "careful", tmp_path / "lexical"])
    wanted = {row.metric: row for row in compared.differences}
    rows = make_report([tmp_path]).table["differences"]
    assert {"success", "f1", "return"} <= {row["metric"] for row in rows}
    for row in rows:
        own = wanted[row["metric"]]
        assert (row["base"], row["run"], row["tasks"]) == (0, 1, 9)
        assert (row["wins"], row["ties"], row["losses"]) == (own.wins, own.ties, own.losses)
        assert row["difference"] == pytest.approx(own.difference, rel=1e-5, abs=1e-9)


def test_a_recorded_episode_under_a_reward_method_has_the_mean_of_what_was_measured(tmp_path):
    reading = {"tasks": "world-test", "n_documents": 6, "chunk_size": 300}
    inner = RewardWrapper(gym.make("MemChunkQA-v0", **reading), ["TAMTRL"], "lexical")
    env = RecordEpisodes(inner, tmp_path / "e.jsonl")
    collect(lambda: env, "lexical", [5], tasks=[3])
    table = make_report([tmp_path / "e.jsonl"]).table
    (row,) = table["rows"]
    *memories, _ = inner.episode.signals["tamtrl"]  # the last turn has nothing to measure
    assert row[table["columns"].index("mean tamtrl")] == pytest.approx(np.mean(memories), rel=1e-5)


def test_the_settings_of_a_run_are_read_beside_its_episodes(runs, tmp_path):
    learner = {
        "learner": "grpo",
        "model": "small",
        "env": "MemSearchQA-v0",
        "reward": "turn",
        "methods": ["TAMTRL"],
        "lr": 1e-5,
    }
    file = Path(shutil.copy(runs / "s" / "episodes.jsonl", tmp_path))
    assert set(run_settings(file)) == {"date"}
    (tmp_path / "args.json").write_text(json.dumps(learner))
    facts = run_settings(file)
    assert (facts["policy"], facts["memory mode"]) == ("grpo, small", "react")
    assert (facts["methods"], facts["reward"]) == ("TAMTRL", "turn")
    assert facts["lr"] == "1e-05"
    (tmp_path / "args.json").write_text(json.dumps({**learner, "reward": "infomem"}))
    facts = run_settings(file)
    assert facts["methods"] == "InfoMem, TAMTRL"
    assert "reward" not in facts
    (tmp_path / "args.json").write_text(json.dumps({**learner, "env": "os:MemSearchQA-v0"}))
    assert "memory mode" not in run_settings(file)  # a file of somebody else's imports nothing


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


def test_the_terminal_compares_many_similar_lines():
    before, after = ("\n".join(f"line {i % 5} says {i * k}" for i in range(20_000)) for k in (7, 11))
    assert list(line_diff(before, after))[-1] == f"+ line 4 says {19_999 * 11}"


def test_the_terminal_shows_no_control_characters_of_a_file(tmp_path, capsys):
    evil = "\x1b]0;x\x07\u202ecod.exe"
    named = {"signals": {evil: 1.0}, "credits": {evil: [Credit(0, 1.0)]}, "metrics": {evil: 1.0}}
    write(tmp_path / "e.jsonl", [replied(evil, task="a\x1b[2J", **named)])
    for more in ([], ["--episode", "0"]):
        assert main([str(tmp_path / "e.jsonl"), "--terminal", *more]) == 0
        assert not set("\x1b\x07\u202e") & set(capsys.readouterr().out)
