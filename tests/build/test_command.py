"""`memenvs build`: what it writes, what it prints, and what it leaves when it fails."""

import contextlib
import functools
import json
import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from build_command import command, one_line
from command_line import play
from reference_values import cases

from memenvs.core.files import CARD, DOCUMENTS, TASKS
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.envs.search_qa import SearchQAEnv
from memenvs.sokoban import LevelSet
from memenvs.tasks.metrics import boxed_em, em, gold_answer, wrap_answer
from memenvs.tasks.taskset import open_tasks
from memenvs.tasks.tokens import load_tokenizer

HOTPOT = {
    "_id": "1",
    "question": "Who?",
    "answer": "Ann",
    "supporting_facts": [["A", 0], ["B", 1]],
    "context": [[title, [f"{title} one.", f" {title} two."]] for title in "ABCDE"],
}


@pytest.fixture
def hotpot(source_file):
    return source_file("hotpot.json", [{**HOTPOT, "_id": str(i)} for i in range(3)])


@pytest.fixture
def build_set(hotpot):
    """Builds the set of `hotpot`, by default with 3 documents a task."""
    return lambda out, *more, documents=3: command(
        "hotpotqa", "--source", hotpot, "--documents", documents, *more, "--out", out
    )


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_built_set_opens_and_its_card_says_how_it_was_made(hotpot, tmp_path, capsys):
    assert (
        command("hotpotqa", "--source", hotpot, "--documents", 4, "--seed", 5, "--out", tmp_path / "set") == 0
    )
    tasks = open_tasks(tmp_path / "set")
    assert len(tasks) == 3
    assert tasks.card.source == "hotpotqa"
    assert tasks.card.arguments["seed"] == 5
    assert list(tasks.card.inputs) == ["hotpot.json"]
    assert str(tmp_path) not in (tmp_path / "set" / CARD).read_text()
    summary = capsys.readouterr().out
    assert "3 tasks over 5 documents" in summary
    assert f"{tasks.card.counts['mean_tokens']} tokens a task by 'general'" in summary
    assert "memenvs play" in summary


@pytest.mark.parametrize(
    "arguments",
    [
        ("world", "--entities", 60, "--documents", 10, "--num-tasks", 3, "--out", "a set"),
        ("sokoban", "--levels", 3, "--workers", 1, "--split", "test", "--out", "7.npz"),
        ("sokoban", "--levels", 3, "--workers", 1, "--out", "levels.txt"),
        ("sokoban", "--levels", 3, "--min-solution", 3, "--out", "easy.npz"),
        ("sokoban", "--levels", 3, "--min-solution", 12, "--out", "hard.npz"),
        ("niah", "--tokens", 900, "--num-tasks", 3, "--out", "needles"),
    ],
)
def test_the_hint_of_a_build_plays_what_was_built(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(*arguments) == 0
    hint = capsys.readouterr().out.partition("memenvs play ")[2].split("\n")[0]
    assert play(shlex.split(hint)) == 0
    assert "return " in capsys.readouterr().out


def test_a_card_does_not_say_where_the_tokenizer_is(hotpot, tmp_path, monkeypatch):
    (tmp_path / "tok").mkdir()
    load_tokenizer("world").backend.save(str(tmp_path / "tok" / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    for out, tokenizer in (("a", "./tok"), ("b", tmp_path / "tok")):
        args = ("--documents", 4, "--tokenizer", tokenizer, "--out", out)
        assert command("hotpotqa", "--source", hotpot, *args) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert open_tasks("./a").card.arguments["tokenizer"] == open_tasks("./a").card.tokenizer["name"] == "tok"


def test_the_same_arguments_give_the_same_bytes(hotpot, tmp_path):
    for name, workers in (("a", 1), ("b", 2)):
        args = ("--documents", 4, "--num-tasks", 600, "--workers", workers, "--out", tmp_path / name)
        assert command("hotpotqa", "--source", hotpot, *args) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_the_hub_form_of_hotpotqa_is_read_too(built):
    record = {
        **HOTPOT,
        "supporting_facts": {"title": ["A", "B"], "sent_id": [0, 1]},
        "context": {"title": list("ABC"), "sentences": [["one."], ["two.", " three."], ["four."]]},
    }
    (task,) = tasks = built("hotpotqa", record, args=("--documents", 3))
    assert tasks.titles(task.evidence) == ["A", "B"]


MUSIQUE = {
    "id": "m1",
    "question": "Who?",
    "answer": "Ann",
    "paragraphs": [
        {"idx": i, "title": title, "paragraph_text": f"{title} text.", "is_supporting": i < 2}
        for i, title in enumerate("ABCDE")
    ],
}


def test_blank_aliases_are_dropped(built):
    tasks = built("musique", {**MUSIQUE, "answer_aliases": ["", " ", "A+"]}, args=("--documents", 4))
    assert tasks[0].answers == (("Ann", "A+"),)


def test_questions_of_musique_that_cannot_be_answered_are_counted(built):
    unanswerable = {**MUSIQUE, "answerable": False}  # as the full file has it, of the same id
    tasks = built("musique", MUSIQUE, unanswerable)
    assert (len(tasks), tasks.card.counts["left_out"]) == (1, 1)


ASKED = {"question": "Who?", "answers": ["Ann"]}
OWN = {
    "question": "Who?",
    "answers": ["Ann", "Anne"],
    "documents": [{"title": "A", "text": "A text."}, {"text": "B text."}],
    "evidence": [1],
}


def test_questions_and_documents_of_your_own_become_tasks(built, source_file):
    pool = source_file("pool.jsonl", [{"title": title, "text": f"{title} text."} for title in "CD"])
    record = {**OWN, "id": "q", "meta": {"kind": "x"}}
    (task,) = tasks = built("jsonl", record, args=("--pool", pool, "--documents", 4))
    assert (task.id, task.answers, task.meta) == ("q", (("Ann", "Anne"),), {"kind": "x"})
    assert tasks.document_texts(task.evidence) == ["B text."]
    shown = {"A\nA text.", "B text.", "C\nC text.", "D\nD text."}
    assert set(tasks.document_texts(task.documents)) == shown
    assert list(tasks.card.inputs) == ["jsonl.jsonl", "pool.jsonl"]
    assert tasks.card.arguments["pool"] == "pool.jsonl"


def test_the_lines_that_the_page_shows_become_a_task(built, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
    question, document = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "pool.jsonl").write_text(document)
    args = ("--pool", tmp_path / "pool.jsonl", "--documents", 2)
    (task,) = built("jsonl", json.loads(question), args=args)
    assert (task.id, len(task.documents), len(task.evidence)) == ("dam-1", 2, 1)


def test_documents_of_your_own_are_read_as_they_are_without_a_size(built):
    documents = [{"text": "B text."}, {"title": "A", "text": "A text."}, {"text": "B text."}]
    for evidence, shown in (([], []), ([1], ["A\nA text."])):
        tasks = built("jsonl", {**OWN, "documents": documents, "evidence": evidence})
        assert tasks.document_texts(tasks[0].documents) == ["B text.", "A\nA text.", "B text."]
        assert tasks.document_texts(tasks[0].evidence) == shown


CORPUS = "".join(f'{{"id": "{i}", "contents": "{t}\\n{t} text."}}\n' for i, t in enumerate("ABCD"))


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(CORPUS)
    return ("--corpus", tmp_path / "corpus.jsonl")


def test_questions_may_name_documents_of_a_corpus_by_their_ids(built, corpus):
    tasks = built("jsonl", {**ASKED, "documents": ["2", "0"], "evidence": ["0"]}, args=corpus)
    assert (tasks.titles(tasks[0].documents), tasks.titles(tasks[0].evidence)) == (["C", "A"], ["A"])
    assert list(tasks.card.inputs) == ["jsonl.jsonl", "corpus.jsonl"]
    assert tasks.card.arguments["corpus"] == "corpus.jsonl"


def test_the_evidence_alone_is_hidden_among_the_corpus(built, corpus):
    tasks = built("jsonl", {**ASKED, "evidence": [3]}, args=(*corpus, "--documents", 3))
    assert tasks.titles(tasks[0].evidence) == ["D"]
    assert len({*tasks[0].documents}) == 3


@pytest.mark.parametrize("searched", [False, True])
def test_questions_of_your_own_without_documents_are_for_searching(built, corpus, searched):
    tasks = built("jsonl", ASKED, args=corpus if searched else ())
    assert (tasks.card.environment, tasks.n_documents) == ("MemSearchQA-v0", 4 if searched else 0)


@pytest.mark.parametrize("mark", ["\u2028", "\x0b"])
def test_a_line_of_json_ends_at_a_line_feed_alone(tmp_path, mark):
    escaped = json.dumps({**MUSIQUE, "question": f"Who{mark}?"}, ensure_ascii=mark == "\x0b")  # JSON's own
    (tmp_path / "m.jsonl").write_text(f"\ufeff{escaped}\n", encoding="utf-8")  # a mark of the byte order
    assert command("musique", "--source", tmp_path / "m.jsonl", "--out", tmp_path / "set") == 0
    assert open_tasks(tmp_path / "set")[0].question == f"Who{mark}?"


def test_a_hub_error_without_a_text_is_one_line(refused, monkeypatch):
    def fail(*args, **kwargs):
        raise ConnectionError

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=fail))
    line = refused("hotpotqa", "--source", "hf:no/such", "--documents", 3)
    assert "cannot load hf:no/such (split 'train'): ConnectionError" in line


def test_a_folder_that_is_no_task_set_is_not_replaced(build_set, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("three years of work")
    assert build_set(tmp_path / "mine") == 2
    assert "is not a task set" in one_line(capsys)
    assert files(tmp_path / "mine") == {"thesis.txt": b"three years of work"}


def start(command):
    """A process that hears SIGINT, which a shell has its background jobs ignore."""
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, preexec_fn=listen)


@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_a_build_killed_while_it_writes_leaves_the_old_set(hotpot, build_set, tmp_path, kill):
    out = tmp_path / "sets" / "set"
    assert build_set(out) == 0
    before = files(out)
    command = [sys.executable, "-m", "memenvs.build", "hotpotqa", "--source", hotpot, "--documents", "4"]
    command += ["--num-tasks", "8000", "--out", out, "--export", "jsonl", "memagent"]  # seconds of writing
    process = start(command)
    while not list(out.parent.glob(".set.partial-*/new/*")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(kill)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert files(out) == before
    left = [] if kill != signal.SIGKILL else list(out.parent.glob(".set.partial-*"))  # nobody could remove it
    assert set(out.parent.iterdir()) == {out, *left}


@pytest.mark.parametrize("stop", [OSError("disk trouble"), SystemExit(143)])
def test_a_build_stopped_between_its_two_renames_leaves_the_old_set(build_set, tmp_path, monkeypatch, stop):
    out = tmp_path / "sets" / "set"
    assert build_set(out) == 0
    before = files(out)
    rename = Path.rename

    def stopped(path, target):
        if path.name == "new":
            raise stop
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", stopped)
    with contextlib.suppress(SystemExit):
        assert build_set(out, documents=4) != 0
    assert files(out) == before
    assert list(out.parent.iterdir()) == [out]


def test_the_last_copy_is_kept_where_nothing_can_be_put_in_place(build_set, tmp_path, monkeypatch):
    out = tmp_path / "sets" / "set"
    assert build_set(out) == 0
    before = files(out)
    rename = Path.rename

    def only_away(path, target):
        if path.name in {"new", "old"}:
            raise OSError("read-only")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", only_away)
    assert build_set(out, documents=4) == 2
    (work,) = out.parent.iterdir()
    assert files(work / "old") == before


@pytest.fixture
def killed_between(build_set, tmp_path):
    """Where a set stood that a killed build had moved away, and its files."""
    out = tmp_path / "sets" / "set"
    assert build_set(out) == 0
    before = files(out)
    (out.parent / ".set.partial-1" / "new").mkdir(parents=True)
    out.rename(out.parent / ".set.partial-1" / "old")
    return out, before


def test_the_next_build_puts_a_set_back_that_a_killed_one_moved_away(killed_between, monkeypatch):
    out, before = killed_between

    def fail(*args):
        raise OSError("no luck")

    monkeypatch.setattr("memenvs.build.write.TaskSet", fail)
    assert command("world", "--entities", 60, "--documents", 4, "--num-tasks", 3, "--out", out) == 2
    assert files(out) == before


# One push; solved; lost; unsolvable, which only a search sees; 13 moves; no level.
LEVELS = """\
######
#@$. #
######

######
#@*  #
######

######
#$ .@#
######

#######
#@#.$ #
# #   #
#######

##########
#@       #
# ###### #
#      # #
# #### # #
#.$    # #
##########

######
#@$  #
######
"""


def test_the_levels_of_a_file_are_solved_and_those_left_out_are_counted(tmp_path, capsys):
    (tmp_path / "pack.xsb").write_text(LEVELS)
    for workers in (1, 2):
        out = tmp_path / f"{workers}.npz"
        given = ("--source", tmp_path / "pack.xsb", "--min-solution", 1, "--workers", workers)
        assert command("sokoban", *given, "--out", out) == 0
        levels = LevelSet.load(out, "train")
        assert levels.lengths.tolist() == [1, 13]
        assert levels.shapes == [(3, 6), (7, 10)]
        assert sum(levels.card["left_out"].values()) == 4
        (fault,) = levels.card["faults"]
        assert fault in capsys.readouterr().out
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()


@pytest.mark.parametrize(
    ("given", "lengths"),
    [
        (("--max-solution", 12, "--min-solution", 1), [1]),
        (("--min-solution", 2), [13]),
        (("--levels", 1, "--min-solution", 1), [1]),
        (("--budget", 3, "--min-solution", 1), [1]),
    ],
)
def test_levels_of_a_file_are_chosen_by_length_number_and_budget(tmp_path, given, lengths):
    (tmp_path / "pack.xsb").write_text(LEVELS)
    out = tmp_path / "levels.npz"
    assert command("sokoban", "--source", tmp_path / "pack.xsb", *given, "--out", out) == 0
    assert LevelSet.load(out).lengths.tolist() == lengths


def test_a_killed_worker_of_a_sokoban_build_is_one_line(tmp_path, capsys):
    def kill_a_worker():
        while not (workers := multiprocessing.active_children()):
            time.sleep(0.01)
        os.kill(workers[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    out = tmp_path / "levels.npz"
    size = ("--size", 8, "--boxes", 2, "--levels", 1_000_000)
    assert command("sokoban", *size, "--workers", 2, "--out", out) == 2
    killer.join()
    assert "a worker process was killed (signal 9)" in (line := one_line(capsys))
    assert "give fewer --workers than 2" in line
    assert not out.exists()
    assert not multiprocessing.active_children()


def test_files_of_the_users_beside_the_card_are_not_deleted(build_set, tmp_path, capsys):
    out = tmp_path / "set"
    assert build_set(out, "--export", "jsonl") == 0
    (out / "notes.txt").write_text("mine")
    assert build_set(out, documents=4) == 2
    assert "holds 'notes.txt'" in one_line(capsys)
    assert (out / "notes.txt").read_text() == "mine"


def test_exports_of_the_old_set_are_replaced_with_it(build_set, tmp_path):
    out = tmp_path / "set"
    assert build_set(out, "--export", "jsonl") == 0
    assert build_set(out, documents=4) == 0
    assert not (out / "jsonl.jsonl").exists()


def test_a_link_stays_and_the_folder_it_points_to_is_replaced(build_set, tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    assert build_set(real) == 0
    link.symlink_to(real)
    assert build_set(link, documents=4) == 0
    assert link.is_symlink()
    assert open_tasks(real).card.counts["max_documents"] == 4


def test_a_new_set_has_the_permissions_of_any_new_folder(build_set, tmp_path):
    (tmp_path / "plain").mkdir()
    assert build_set(tmp_path / "set") == 0
    assert (tmp_path / "set").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_build_called_from_code_leaves_signals_alone_and_runs_in_any_thread(hotpot, tmp_path):
    before, done = signal.getsignal(signal.SIGTERM), []
    args = ("hotpotqa", "--source", hotpot, "--documents", 3, "--out", tmp_path / "set")
    thread = threading.Thread(target=lambda: done.append(command(*args)))
    thread.start()
    thread.join()
    assert done == [0]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "world"
    assert command("world", "--entities", 60, "--num-tasks", 12, "--documents", 10, "--out", out) == 0
    return out


@pytest.fixture
def other_world(tmp_path):
    out = tmp_path / "other"
    size = ("--entities", 60, "--num-tasks", 8, "--documents", 6, "--split", "test")
    assert command("world", *size, "--out", out) == 0
    return out


@pytest.fixture
def nq(source_file):
    """Questions without documents, as of NQ-open."""
    return source_file("nq.jsonl", [{"question": f"q{i}?", "answers": [f"a{i}"]} for i in range(9)])


def test_questions_of_two_sets_are_joined_with_the_documents_of_both(world, other_world, tmp_path):
    args = ("--source", world, other_world, "--objectives", 2, "--num-tasks", 40, "--out", tmp_path / "multi")
    assert command("multi", *args) == 0
    singles = {f"{name}": open_tasks(name) for name in (world, other_world)}
    known = {task.id: (tasks, task) for tasks in singles.values() for task in tasks}
    joined, mixed = open_tasks(tmp_path / "multi"), 0
    for task in joined:
        parts = [known[name] for name in task.meta["parts"]]
        assert task.question == "; ".join(part.question for _, part in parts)
        assert task.answers == tuple(part.answers[0] for _, part in parts)
        mixed += parts[0][0] is not parts[1][0]
        texts = {text for tasks, part in parts for text in tasks.document_texts(part.documents)}
        needed = {text for tasks, part in parts for text in tasks.document_texts(part.evidence)}
        assert set(joined.document_texts(task.documents)) == texts
        assert set(joined.document_texts(task.evidence)) == needed
    assert 8 <= mixed <= 32  # half of 40 are expected to take one question of each
    assert joined.card.environment == "MemChunkQA-v0"
    assert list(joined.card.inputs) == ["world/card.json", "other/card.json"]
    assert joined.card.arguments["source"] == ["world", "other"]


def test_single_questions_follow_the_joined_ones_each_once(world, other_world, tmp_path):
    args = ("--source", world, other_world, "--objectives", 2, "--num-tasks", 4, "--out", tmp_path / "multi")
    assert command("multi", *args, "--singles", 9) == 0
    known = {task.id: (tasks, task) for tasks in map(open_tasks, (world, other_world)) for task in tasks}
    joined = open_tasks(tmp_path / "multi")
    assert [len(task.answers) for task in joined] == [2] * 4 + [1] * 9
    alone = list(joined)[4:]
    parts = [task.meta["parts"] for task in alone]
    assert len({tuple(part) for part in parts}) == 9
    for task, (part,) in zip(alone, parts, strict=True):
        tasks, own = known[part]
        assert (task.id, task.question) == (f"single-train-{part}", own.question)
        assert task.answers == own.answers[:1]
        assert set(joined.document_texts(task.documents)) == set(tasks.document_texts(own.documents))
        assert joined.document_texts(task.evidence) == tasks.document_texts(own.evidence)
    assert command("multi", *args[:-1], tmp_path / "plain") == 0
    assert [task.id for task in open_tasks(tmp_path / "plain")] == [task.id for task in joined][:4]


def test_weights_decide_how_often_a_source_is_asked(world, other_world, tmp_path):
    args = ("--source", world, other_world, "--objectives", 2, "--num-tasks", 200, "--weights", 9, 1)
    assert command("multi", *args, "--out", tmp_path / "multi") == 0
    parts = [part for task in open_tasks(tmp_path / "multi") for part in task.meta["parts"]]
    assert 0.05 < sum(part.startswith("world-test") for part in parts) / 400 < 0.15


def test_questions_to_be_searched_are_joined_with_those_of_a_set(world, nq, source_file, tmp_path, capsys):
    out = tmp_path / "multi"
    assert command("multi", "--source", world, nq, "--objectives", 2, "--num-tasks", 30, "--out", out) == 0
    said = capsys.readouterr().out
    assert "play one: memenvs play --env MemSearchQA-v0" in said
    assert "retriever=lexical:CORPUS" in said
    joined = open_tasks(out)
    assert {part.partition("-")[0] for task in joined for part in task.meta["parts"]} == {"world", "nq"}
    assert joined.n_documents == 0
    corpus = source_file("corpus.jsonl", [{"id": "0", "contents": '"A"\nb'}])
    env = SearchQAEnv(str(out), retriever=f"lexical:{corpus}", memory_mode="rewrite")
    env.reset(seed=0)
    assert env.step(env.gold_reply())[1] == 1.0


def test_a_set_without_documents_is_neither_read_nor_searched(nq, tmp_path):
    out = tmp_path / "multi"
    assert command("multi", "--source", nq, "--objectives", 2, "--out", out) == 0
    with pytest.raises(ValueError, match="nothing to read; play its questions in MemSearchQA-v0"):
        ChunkQAEnv(str(out))
    with pytest.raises(ValueError, match="no documents: pass retriever="):
        SearchQAEnv(str(out))


def test_questions_whose_answer_holds_the_separator_are_never_joined(built, tmp_path):
    answers = ["a; b", "c; d", "e; f", "a", "b", "c"]
    records = [{**HOTPOT, "_id": str(i), "answer": answer} for i, answer in enumerate(answers)]
    single = built("hotpotqa", *records, args=("--documents", 3))
    args = ("--source", single.path, "--num-tasks", 50, "--out", tmp_path / "multi")
    assert command("multi", *args, "--objectives", 2) == 0
    parts = {part for task in open_tasks(tmp_path / "multi") for part in task.meta["parts"]}
    assert parts == {"3", "4", "5"}


def test_exports_hold_the_fields_that_the_others_read(world, tmp_path):
    out = tmp_path / "set"
    forms = ("memagent", "verl", "ruler", "jsonl")
    size = ("--entities", 60, "--num-tasks", 6, "--documents", 10)
    assert command("world", *size, "--export", *forms, "--out", out) == 0
    tasks = open_tasks(out)
    memagent = pq.read_table(out / "memagent.parquet").to_pylist()
    verl = pq.read_table(out / "verl.parquet").to_pylist()
    ruler, jsonl = (
        [json.loads(line) for line in (out / f"{form}.jsonl").read_text().splitlines()] for form in forms[2:]
    )
    (theirs,) = cases("memagent_hotpot_synthesis")  # by MemAgent's own script
    assert sorted(memagent[0]) == theirs["output"]["fields"]
    assert sorted(memagent[2]["extra_info"]) == theirs["output"]["extra_info"]
    assert memagent[2]["prompt"] == [{"role": "user", "content": tasks[2].question}]
    assert memagent[2]["reward_model"] == {"style": "rule", "ground_truth": list(tasks[2].answers[0])}
    assert verl[2]["reward_model"] == {"style": "rule", "ground_truth": {"target": list(tasks[2].answers[0])}}
    assert memagent[2]["extra_info"] == {"index": 2, "question": tasks[2].question, "num_docs": 10}
    assert set(verl[0]) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert memagent[2]["context"] in verl[2]["prompt"][0]["content"]
    assert set(ruler[0]) == {"index", "input", "outputs", "length"}
    assert ruler[1]["outputs"] == list(tasks[1].answers[0])
    assert jsonl[3]["context"] == memagent[3]["context"]
    titles = tasks.titles(tasks[3].documents)
    assert [titles[i] for i in jsonl[3]["evidence"]] == tasks.titles(tasks[3].evidence)
    exports = {"memagent.parquet", "verl.parquet", "ruler.jsonl", "jsonl.jsonl"}
    assert set(files(out)) == {CARD, DOCUMENTS, TASKS, *exports}


def test_rows_number_the_tasks_for_trainers_that_play_them(tmp_path):
    args = ("--entities", 60, "--documents", 5, "--num-tasks", 4, "--holdout", 2, "--export", "rows", "verl")
    assert command("world", *args, "--out", tmp_path / "set") == 0
    for folder, count, split in (("set", 4, "train"), ("set-holdout", 2, "test")):
        tasks = open_tasks(tmp_path / folder)
        rows = pq.read_table(tmp_path / folder / "rows.parquet").to_pylist()
        assert [row["task"] for row in rows] == [row["metadata"]["task"] for row in rows] == [*range(count)]
        assert [row["extra_info"]["task"] for row in rows] == [*range(count)]
        assert {row["extra_info"]["split"] for row in rows} == {split}
        assert [row["extra_info"]["id"] for row in rows] == [task.id for task in tasks]
        verl = pq.read_table(tmp_path / folder / "verl.parquet").to_pylist()
        assert [row["extra_info"]["task"] for row in verl] == [*range(count)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Rows for MemAgent and verl of a world, of three of its questions at once, and of needles."""
    folder = tmp_path_factory.mktemp("exported")
    sources = {
        "world": ("--entities", 60, "--documents", 10),
        "multi": ("--source", folder / "world", "--objectives", 3),
        "niah": ("--variant", "multivalue", "--tokens", 900),
    }
    found = {}
    for name, args in sources.items():
        forms = ("--export", "memagent", "verl")
        assert command(name, *args, "--num-tasks", 6, *forms, "--out", folder / name) == 0
        rows = [pq.read_table(folder / name / f"{form}.parquet").to_pylist() for form in forms[1:]]
        found[name] = (open_tasks(folder / name), *rows)
    return found


@pytest.mark.parametrize("name", ["world", "multi", "niah"])
def test_memagent_and_verl_pay_the_gold_reply_of_every_set_and_no_wrong_one(exported, name):
    tasks, memagent, verl = exported[name]
    for task, row, other in zip(tasks, memagent, verl, strict=True):
        gold = gold_answer(task.answers, tasks.card.metric)
        assert row["data_source"] == "hotpotqa"  # by which its default score finds boxed_em
        accepted = row["reward_model"]["ground_truth"]
        assert boxed_em(wrap_answer(gold, "boxed"), accepted) == 1.0
        assert boxed_em("\\boxed{nonsense}", accepted) == boxed_em("", accepted) == 0.0
        assert other["data_source"] == "searchR1_hotpotqa"  # by which its default score finds Search-R1's EM
        assert "<answer>" in other["prompt"][0]["content"]
        accepted = other["reward_model"]["ground_truth"]["target"]
        assert em(gold, accepted) == 1.0
        assert em("nonsense", accepted) == em("", accepted) == 0.0


def test_all_needles_earn_in_any_order_and_some_of_them_nothing(exported):
    tasks, memagent, verl = exported["niah"]
    first, second, third, fourth = tasks[0].answers[0]
    whole, part = f"{third}, {first}, {fourth}, {second}", f"{third}, {first}"
    accepted = memagent[0]["reward_model"]["ground_truth"]
    assert (boxed_em(f"\\boxed{{{whole}}}", accepted), boxed_em(f"\\boxed{{{part}}}", accepted)) == (1, 0)
    accepted = verl[0]["reward_model"]["ground_truth"]["target"]
    assert (em(whole, accepted), em(part, accepted), em(first, accepted)) == (1, 0, 0)


def test_the_form_for_the_hub_has_tasks_documents_and_a_card(build_set, tmp_path):
    assert build_set(tmp_path / "set", "--export", "hf") == 0
    tasks, hub = open_tasks(tmp_path / "set"), tmp_path / "set" / "hf"
    rows, documents = (pq.read_table(hub / f"{name}.parquet").to_pylist() for name in ("tasks", "documents"))
    assert [(row["id"], row["question"]) for row in rows] == [(task.id, task.question) for task in tasks]
    assert [tuple(row["documents"]) for row in rows] == [task.documents for task in tasks]
    assert [row["text"] for row in documents] == tasks.texts(range(tasks.n_documents))
    card = (hub / "README.md").read_text()
    assert "license: cc-by-sa-4.0" in card
    assert "path: tasks.parquet" in card


def test_the_datasets_library_reads_the_form_for_the_hub(build_set, tmp_path):
    datasets = pytest.importorskip("datasets")
    assert build_set(tmp_path / "set", "--export", "hf") == 0
    found = datasets.load_dataset(str(tmp_path / "set" / "hf"), split="train", cache_dir=str(tmp_path))
    assert found[0]["answers"] == [["Ann"]]
    titles = datasets.load_dataset(
        str(tmp_path / "set" / "hf"), "documents", split="train", cache_dir=str(tmp_path)
    )["title"]
    assert {titles[number] for number in found[0]["evidence"]} == {"A", "B"}


def test_spans_of_a_json_line_are_places_in_its_context(build_set, tmp_path):
    out = tmp_path / "set"
    assert build_set(out, "--export", "jsonl") == 0
    for line in (out / "jsonl.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert [position for position, _, _ in row["spans"]] == row["evidence"]
        assert [row["context"][start:end] for _, start, end in row["spans"]] == ["A one.", " B two."]
        assert "spans" not in row["meta"]


def test_an_index_is_built_over_a_file_and_over_a_task_set(world, source_file, tmp_path, capsys):
    from memenvs.retrieval import load_retriever

    corpus = source_file("corpus.jsonl", [{"id": "a", "contents": '"Thames"\nflows through London'}])
    assert command("index", "--corpus", corpus, "--index", "lexical", "--out", tmp_path / "file") == 0
    assert f"lexical:{tmp_path / 'file'}" in capsys.readouterr().out
    assert load_retriever(f"lexical:{tmp_path / 'file'}").search(["london"], 1).ids == [["a"]]
    assert command("index", "--corpus", world, "--index", "lexical", "--out", tmp_path / "set") == 0
    title = open_tasks(world).titles([0])[0]
    assert load_retriever(f"lexical:{tmp_path / 'set'}").search([title], 1).ids[0]


def test_a_dense_index_takes_an_encoder_by_folder(tiny_bert, source_file, tmp_path):
    from memenvs.retrieval import load_retriever

    records = [{"id": str(i), "contents": f'"T{i}"\nword{i}'} for i in range(5)]
    corpus = source_file("corpus.jsonl", records)
    out = tmp_path / "dense"
    assert command("index", "--corpus", corpus, "--encoder", tiny_bert, "--out", out) == 0
    assert len(load_retriever(f"dense:{out}").search(["word3"], 2).ids[0]) == 2


FACTS = "hotpotqa --source q --documents 3"
REFUSED = [  # a command, whose --out is `set`, and the records of the file q
    *(
        (FACTS, [{**HOTPOT, **change}])
        for change in (
            {"supporting_facts": []},
            {"supporting_facts": [["Z", 0]]},
            {"supporting_facts": [["A", -1]]},
            {"context": [["A", [1]], ["B", ["B"]]]},
            {"answer": " "},
            {"question": " "},
        )
    ),
    (f"{FACTS} --num-tasks 0", [HOTPOT]),
    (f"{FACTS} --seed -1", [HOTPOT]),
    (f"{FACTS} --tokenizer no/such", [HOTPOT]),
    (f"{FACTS} --export memagent", [{**HOTPOT, "answer": "a" * 300}]),  # its reward cannot find it
    ("hotpotqa --source q --documents 9", [HOTPOT]),
    ("hotpotqa --source nowhere.json --documents 3", []),
    ("hotpotqa --source loop --documents 3", []),
    ("hotpotqa --source q --documents 3 --out loop", [HOTPOT]),
    ("musique --source q --documents 4", [{**MUSIQUE, "answerable": False}]),
    *(
        ("jsonl --source q --documents 2", [{**OWN, **change}])
        for change in (
            {"answers": []},
            {"answers": [["Ann"]]},
            {"documents": [{"title": "A"}]},
            {"evidence": []},
            {"evidence": [2]},
        )
    ),
    ("jsonl --source q", [{"question": "Who?"}]),
    ("jsonl --source q", [OWN, ASKED]),  # one has documents, one has none
    ("jsonl --source q --corpus corpus", [{**ASKED, "documents": ["9"]}]),
    ("jsonl --source q --corpus twice", [{**ASKED, "documents": ["0"]}]),
    ("jsonl --source q --corpus q", [{**ASKED, "documents": ["0"]}]),
    ("jsonl --source q --corpus none", [{**ASKED, "documents": ["0"]}]),
    ("jsonl --source q --pool corpus", [ASKED]),
    ("jsonl --source q --corpus corpus --documents 2 --questions 2", [{**ASKED, "evidence": ["0"]}]),
    *(
        (f"multi --source world-test --objectives {rest}", [])
        for rest in (
            "1",
            "17",
            "129",
            "2 --singles -1",
            "2 --singles 999",
            "2 --weights 1 0",
            "2 --weights 1 2",
        )
    ),
    ("multi --source niah --objectives 2", []),  # a haystack
    ("multi --source q --objectives 2 --export verl", [{**ASKED, "id": i} for i in range(9)]),  # no text
    ("mrcr_world --tokens 100", []),
    ("mrcr_world --tokens 900 --needles 9", []),
    ("mrcr_world --tokens 900 --essays nowhere", []),
    ("sokoban --source pack.xsb --min-solution 14", []),
    ("sokoban --source pack.xsb --boxes 2", []),
    ("sokoban --source pack.xsb --max-solution 0", []),
    ("index --corpus nowhere.jsonl --index lexical", []),
    ("index --corpus corpus --encoder no/such-model", []),
    ("index --corpus corpus --max-tokens 0", []),
]


@pytest.mark.parametrize(("line", "records"), REFUSED)
def test_what_cannot_be_built_is_one_line_and_leaves_nothing(line, records, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    Path("q").write_text("\n".join(map(json.dumps, records)))
    Path("corpus").write_text(CORPUS)
    Path("twice").write_text(CORPUS * 2)
    Path("pack.xsb").write_text(LEVELS)
    Path("loop").symlink_to("loop")
    if "--encoder" in line:
        pytest.importorskip("sentence_transformers")
    assert command(*shlex.split(line), *([] if "--out" in line else ["--out", "set"])) == 2
    assert one_line(capsys)
    assert not Path("set").exists()
