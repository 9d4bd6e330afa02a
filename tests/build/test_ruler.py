"""RULER's tasks other than the needles: recomputed from their texts, budgets, randomness and errors."""

import re
from collections import Counter

import numpy as np
import pytest
from build_command import command, one_line
from reference_values import cases

from memenvs.build.ruler import ALPHA, ZETA, RulerOptions, read_squad, ruler
from memenvs.tasks.taskset import open_tasks
from memenvs.tasks.tokens import load_tokenizer


def build(task, count=6, tokens=3000, split="train", seed=3, tokenizer=None, **chosen):
    tokenizer = tokenizer or load_tokenizer()
    options = RulerOptions(kind=[task], num_tasks=count, tokens=tokens, split=split, seed=seed, **chosen)
    return ruler(options, tokenizer, ())


def text(draft, task):
    header = draft.layout.header
    shown = (
        header.replace("{i}", str(i)) + draft.documents.texts[number]
        for i, number in enumerate(task.documents, 1)
    )
    return "".join(shown)


# --- against what RULER's own code gave


@pytest.mark.parametrize("case", [one for one in cases("ruler_made") if one["input"]["task"] == "vt"])
def test_a_task_has_the_assignments_of_rulers(case):
    given, theirs = case["input"], case["output"]
    for task in (draft := build("vt", chains=given["chains"], hops=given["hops"])).tasks:
        lines = [line for line in text(draft, task).splitlines() if line.startswith("VAR ")]
        assert len(lines) == theirs["assignments"]
        assert sum(line[-1].isdigit() for line in lines) == theirs["numbers"]
        assert len(task.answers[0]) == theirs["asked"]
        assert {len(name) for name in task.answers[0]} == {theirs["name_length"]}
        assert len(task.meta["value"]) == theirs["value_digits"]


@pytest.mark.parametrize("case", [one for one in cases("ruler_made") if one["input"]["task"] == "cwe"])
def test_words_occur_as_often_as_in_ruler(case):
    given, theirs = case["input"], case["output"]
    for task in (draft := build("cwe", tokens=given["tokens"], count=2)).tasks:
        words = re.findall(r" [0-9]+\. (\S+)", text(draft, task))
        times = Counter(Counter(words).values())
        few, many = sorted(times)
        assert {str(few), str(many)} == set(theirs["times"])
        assert times[many] == theirs["times"][str(many)] == len(task.answers[0]) == theirs["asked"]
        more = times[few] - theirs["times"][str(few)]  # uncommon words that our budget has more
        assert len(words) == theirs["entries"] + few * more


@pytest.mark.parametrize("case", [one for one in cases("ruler_made") if one["input"]["task"] == "fwe"])
def test_words_are_as_frequent_as_rulers(case):
    given, theirs = case["input"], case["output"]
    ranks = np.arange(1, given["vocabulary"] + 1)
    counts = (given["words"] * ranks**-ALPHA / ZETA).astype(int)
    assert counts[counts > 0].tolist() == theirs["counts"]
    for task in build("fwe").tasks:
        assert len(task.answers[0]) == theirs["asked"]
        assert {len(word) for word in task.answers[0]} == {theirs["length"]}


# --- variable tracking


def resolved(lines):
    """What each variable is worth, by reading the text from top to bottom."""
    worth = {}
    for line in lines:
        if found := re.fullmatch(r"VAR ([A-Z]{5}) = ([0-9]{5})", line):
            worth[found[1]] = found[2]
        elif found := re.fullmatch(r"VAR ([A-Z]{5}) = VAR ([A-Z]{5})", line):
            worth[found[1]] = worth[found[2]]  # fails where a line stands before the one it needs
    return worth


@pytest.mark.parametrize(("chains", "hops"), [(1, 4), (3, 2), (2, 9)])
def test_the_asked_variables_are_those_worth_the_value_in_the_text(chains, hops):
    draft = build("vt", chains=chains, hops=hops)
    for task in draft.tasks:
        worth = resolved(text(draft, task).splitlines())
        assert len(worth) == chains * (hops + 1)
        assert Counter(Counter(worth.values()).values()) == {hops + 1: chains}
        value = task.meta["value"]
        assert f"the value {value}," in task.question
        assert sorted(task.answers[0]) == sorted(name for name in worth if worth[name] == value)


def test_the_evidence_of_vt_is_its_chain_in_order():
    draft = build("vt", chains=2)
    for task in draft.tasks:
        lines = [draft.documents.texts[number] for number in task.evidence]
        assert [line.split()[1] for line in lines] == list(task.answers[0])
        places = [task.documents.index(number) for number in task.evidence]
        assert places == sorted(places)


# --- common and frequent words


@pytest.mark.parametrize(("tokens", "many", "few"), [(4095, 6, 1), (4096, 30, 3), (20_000, 30, 3)])
def test_ten_common_words_occur_thirty_times_and_the_others_three(tokens, many, few):
    draft = build("cwe", tokens=tokens, count=3)
    for task in draft.tasks:
        entries = re.findall(r" ([0-9]+)\. (\S+)", text(draft, task))
        assert [int(number) for number, _ in entries] == list(range(1, len(entries) + 1))
        counts = Counter(word for _, word in entries)
        assert {word for word, times in counts.items() if times == many} == set(task.answers[0])
        assert Counter(counts.values()) == {many: 10, few: len(counts) - 10}
        assert task.meta["repeats"] == [many, few]


@pytest.mark.parametrize("tokens", [3000, 30_000])
def test_a_common_word_is_part_of_no_other_word(tokens):
    draft = build("cwe", tokens=tokens, count=3)
    for task in draft.tasks:
        words = {draft.documents.texts[number].strip() for number in task.documents}
        assert all(sum(answer in word for word in words) == 1 for answer in task.answers[0])


def test_words_are_pairs_where_single_ones_do_not_fill_the_budget():
    few, many = build("cwe", tokens=4096, count=1), build("cwe", tokens=30_000, count=1)
    assert not any("-" in word for word in few.tasks[0].answers[0])
    assert all("-" in word for word in many.tasks[0].answers[0])


@pytest.mark.parametrize("tokens", [600, 3000, 20_000])
def test_frequent_words_follow_the_zeta_distribution(tokens):
    draft = build("fwe", tokens=tokens)
    for task in draft.tasks:
        counts = Counter(text(draft, task).split())
        ranked = [word for word, _ in counts.most_common(4)]
        assert ranked[0] == "..."
        assert ranked[1:] == list(task.answers[0])
        assert all(re.fullmatch("[a-z]{6}", word) for word in counts if word != "...")
        assert len(counts) <= tokens // 50
        # floor(N k^-2 / zeta(2)) by one N for all words: N is between these by the most frequent one
        noise, zeta = counts["..."], sum(k**-2 for k in range(1, 10**6))
        of_rank = [times for _, times in counts.most_common()]
        low, high = noise * zeta, (noise + 1) * zeta
        for k, times in enumerate(of_rank, 1):
            assert int(low / k**2 / zeta - 1e-3) <= times <= int(high / k**2 / zeta + 1e-3)


def test_the_answer_of_fwe_has_no_tie():
    for task in build("fwe", tokens=600, count=40).tasks:
        assert len(set(task.meta["counts"])) == 3


# --- question answering


def paragraph(title, i):
    question = {
        "id": f"{title}{i}",
        "question": f"Which number has {title} {i}?",
        "answers": [{"text": str(i), "answer_start": 0}, {"text": f"no. {i}"}],
        "is_impossible": i == 2,
    }
    return {"context": f"{title} {i} is about {title.lower()} and has number {i}.", "qas": [question]}


@pytest.fixture
def squad_file(source_file):
    articles = [
        {"title": title, "paragraphs": [paragraph(title, i) for i in range(1, 5)]}
        for title in ("Ants", "Bees", "Cats", "Dogs")
    ]
    return source_file("dev.json", [{"version": "v2.0", "data": articles}])


def test_squad_gives_possible_questions_with_all_answers(squad_file):
    examples = read_squad(str(squad_file), "train").examples
    assert len(examples) == 12
    assert examples[0].answers == ("1", "no. 1")
    assert examples[1].id == "Ants3"
    assert examples[1].paragraphs[examples[1].evidence[0]][1].startswith("Ants 3 is")


def test_qa_1_takes_the_article_first_and_then_the_others(squad_file):
    draft = build("qa_1", count=None, tokens=130, source=str(squad_file))
    assert draft.metric == "string_match_part"
    for task in draft.tasks:
        texts = [draft.documents.texts[number] for number in task.documents]
        own = task.id[:-1]
        assert sum(one.startswith(own) for one in texts) == 4
        assert len(texts) > 4
        assert draft.documents.texts[task.evidence[0]].startswith(f"{own} {task.id[-1]} ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nothing", "is not SQuAD's official JSON"),
        ('{"data": [3]}', "data[0] must be an object, got 3; give SQuAD's official JSON"),
        ('{"data": []}', "holds no question"),
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path, refused, content, said):
    (tmp_path / "f.json").write_text(content)
    assert said in refused("ruler", "--kind", "qa_1", "--tokens", 500, "--source", tmp_path / "f.json")


# --- the command


def test_several_tasks_are_built_into_folders_by_their_names(squad_file, tmp_path, capsys):
    out = tmp_path / "sets"
    args = ("--tokens", 300, "--num-tasks", 3, "--source", squad_file, "--out", out)
    assert command("ruler", "--kind", "vt", "niah_single_1", "qa_1", *args) == 0
    assert sorted(path.name for path in out.iterdir()) == ["niah_single_1", "qa_1", "vt"]
    assert open_tasks(out / "qa_1").card.arguments["source"] == "dev.json"
    assert open_tasks(out / "vt").card.arguments["kind"] == "vt"
    assert open_tasks(out / "vt").card.inputs == {}
    assert capsys.readouterr().out.count("play one:") == 3


def test_a_needle_task_is_that_of_niah_scored_as_ruler_does(tmp_path):
    common = ("--tokens", 900, "--num-tasks", 3)
    assert command("ruler", "--kind", "niah_multikey_1", *common, "--out", tmp_path / "a") == 0
    assert command("niah", "--variant", "multikey_1", *common, "--out", tmp_path / "b") == 0
    assert list(open_tasks(tmp_path / "a")) == list(open_tasks(tmp_path / "b"))
    metrics = [open_tasks(tmp_path / name).metric for name in "ab"]
    assert metrics == ["string_match_all", "needle_exact"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--kind", "qa_1"], "needs --source, SQuAD's official file"),
        (["--kind", "vt", "cwe", "--source", "x.json"], "vt cwe reads no file; leave --source x.json out"),
        (["--kind", "qa_1", "qa_2", "--source", "x.json"], "read different files; build them one by one"),
        (["--kind", "cwe", "--export", "memagent"], "asks for 10 answers in any order"),
    ],
)
def test_what_cannot_be_built_is_one_line_and_leaves_nothing(refused, args, said):
    assert said in refused("ruler", *args, "--tokens", 3000, "--num-tasks", 1)


def test_a_folder_of_sets_does_not_go_into_a_set(tmp_path, capsys):
    assert command("ruler", "--kind", "vt", "--tokens", 300, "--num-tasks", 1, "--out", tmp_path / "o") == 0
    capsys.readouterr()
    assert command("ruler", "--kind", "vt", "fwe", "--tokens", 900, "--out", tmp_path / "o") == 2
    assert "is a task set; choose another --out" in one_line(capsys)
