"""Questions in the files that people have: their encodings, forms and fields."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build_command import one_line

from memenvs.commands.build import main
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.tasks.metrics import grade_answer
from memenvs.tasks.taskset import open_questions, open_tasks

DAM = {"question": "Who built the dam?", "answers": ["Ann Lee"]}
MILL = {"question": "Whose is the mill?", "answers": ["Bob"]}


def build(*args):
    return main([str(arg) for arg in args])


@pytest.fixture
def read_both(tmp_path):
    """Reads a file as `tasks=FILE` and builds it as `nq`; the answers of each question, which must agree."""

    def read(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        direct = open_questions(str(path))
        assert build("nq", "--source", path, "--out", tmp_path / "set") == 0
        assert list(open_tasks(tmp_path / "set")) == list(direct)
        return [task.answers[0] for task in direct]

    return read


BOTH = [("Ann Lee",), ("Bob",)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.jsonl", f"{json.dumps(DAM)}\n{json.dumps(MILL)}\n"),
        ("q.jsonl", f"\ufeff{json.dumps(DAM)}\r\n\r\n{json.dumps(MILL)}"),
        ("q.json", json.dumps([DAM, MILL], indent=1)),
        ("q.json", "\ufeff" + json.dumps([DAM, MILL])),
        ("q.json", json.dumps(DAM, indent=1) + "\n" + json.dumps(MILL, indent=1)),
        ("q.json", json.dumps(DAM) + "\n" + json.dumps(MILL, indent=1)),
        ("q.json", json.dumps({"version": "1", "data": [DAM, MILL]})),
        ("q.jsonl.gz", gzip.compress(f"{json.dumps(DAM)}\n{json.dumps(MILL)}".encode(), mtime=0)),
        ("q.csv", 'Question,Answer\nWho built the dam?,Ann Lee\n"Whose is\nthe mill?",Bob\n'),
        ("q.tsv", 'question\tpossible_answers\nWho?\t["Ann Lee"]\nWhose?\tBob\n'),
        ("q.csv", f"question,answer,context\nWho?,Ann Lee,{'a ' * 100_000}\nWhose?,Bob,b\n"),
    ],
)
def test_questions_are_read_from_every_form_of_file(read_both, name, content):
    assert read_both(name, content) == BOTH


def test_questions_are_read_from_parquet(tmp_path):
    pq.write_table(pa.Table.from_pylist([DAM, MILL]), tmp_path / "q.parquet")
    assert [task.answers[0] for task in open_questions(str(tmp_path / "q.parquet"))] == BOTH


def test_a_line_in_a_cell_ends_as_in_any_text_file(tmp_path):
    (tmp_path / "q.csv").write_bytes(b'question,answer\r\n"Who built\r\nthe dam?",Ann Lee\r\n')
    assert [task.question for task in open_questions(str(tmp_path / "q.csv"))] == ["Who built\nthe dam?"]


def test_one_object_is_one_question(read_both):
    assert read_both("q.json", json.dumps(DAM, indent=2)) == BOTH[:1]


@pytest.mark.parametrize(
    ("record", "answers"),
    [
        ({"question": "q", "answer": ["Alda", "the Alda"]}, ("Alda", "the Alda")),  # NQ-open
        ({"id": "t1", "question": "q", "golden_answers": ["A+", "AB+"]}, ("A+", "AB+")),  # FlashRAG
        ({"question": "q", "possible_answers": '["Ann", "A. Lee"]', "id": 5}, ("Ann", "A. Lee")),  # PopQA
        (
            {"question": "q", "answer": {"value": "Ann", "aliases": ["Ann", "Lee"]}},
            ("Ann", "Lee"),
        ),  # TriviaQA
        ({"Question": "q", "Answer": "Ann"}, ("Ann",)),  # Bamboogle
        ({"_id": "1", "query": "q", "answers": [{"text": "Ann", "answer_start": 3}]}, ("Ann",)),
        ({"question": "q", "answers": {"text": ["Ann"], "answer_start": [3]}}, ("Ann",)),  # SQuAD on the hub
        ({"question": "q", "answers": 1933}, ("1933",)),
        ({"question": "q", "answers": [1933, 2.5]}, ("1933", "2.5")),
        ({"question": "q", "answer": True}, ("yes",)),
        ({"question": "q", "answer": "[1] in a list"}, ("[1] in a list",)),
        ({"question": "q", "answers": [" ", "Ann", "Ann"]}, ("Ann",)),
    ],
)
def test_the_fields_of_published_files_are_read(read_both, record, answers):
    assert read_both("q.jsonl", json.dumps(record)) == [answers]


def test_the_official_file_of_triviaqa_is_read(tmp_path):
    answer = {"Value": "Ann Lee", "Aliases": ["A. Lee", "Ann Lee"], "NormalizedAliases": ["ann lee"]}
    record = {"QuestionId": "tc_1", "Question": "Who built the dam?", "Answer": answer, "EntityPages": []}
    (tmp_path / "t.json").write_text(json.dumps({"Data": [record], "Domain": "Web", "Version": 1.0}))
    assert build("triviaqa", "--source", tmp_path / "t.json", "--out", tmp_path / "set") == 0
    (task,) = open_tasks(tmp_path / "set")
    assert (task.id, task.answers) == ("tc_1", (("Ann Lee", "A. Lee"),))


def test_questions_without_an_id_are_numbered_in_their_file(tmp_path):
    (tmp_path / "dev.jsonl").write_text(f"{json.dumps(DAM)}\n{json.dumps({**MILL, 'id': 'm'})}")
    assert [task.id for task in open_questions(str(tmp_path / "dev.jsonl"))] == ["dev-0", "m"]


def test_questions_with_blank_answers_are_left_out_and_counted(tmp_path):
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, [DAM, {**MILL, "answers": [" "]}])))
    questions = open_questions(str(tmp_path / "q.jsonl"))
    assert (len(questions), questions.left_out) == (1, 1)
    assert build("nq", "--source", tmp_path / "q.jsonl", "--out", tmp_path / "set") == 0
    assert open_tasks(tmp_path / "set").card.counts["left_out"] == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps({**DAM, "question": "Qui a bâti?"}, ensure_ascii=False).encode("latin-1"), "UTF-8"),
        (json.dumps(DAM).encode("utf-16"), "UTF-8"),
        (b'{"question": "q"}', "'answers'"),
        (b'{"answers": ["Ann"]}', "'question'"),
        (b'{"question": "q", "answers": [["Ann"]]}', "[['Ann']]"),
        (b'{"question": "q", "answers": ["a"]}\n{"question": ', "line 2"),
        (b'{"question": "q", "answers": [""]}', "no question that can be scored"),
        (b'{"id": 1, "question": "q", "answers": ["a"]}\n' * 2, "two questions of the id '1'"),
        (b'{"question": "\\ud800", "answers": ["a"]}', "lone surrogate"),
        (b'{"question": " ", "answers": ["a"]}', "asks nothing"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_what_is_wrong(tmp_path, capsys, content, said):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.jsonl") as raised:
        open_questions(str(path))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert build("nq", "--source", path, "--out", tmp_path / "set") == 2
    line = one_line(capsys)
    assert said in line
    assert "bad.jsonl" in line


def test_your_own_questions_may_have_the_same_forms(tmp_path):
    record = {"question": "When?", "answer": 1933, "documents": [{"text": "In 1933."}]}
    (tmp_path / "q.json").write_text(json.dumps([record], indent=1))
    assert build("jsonl", "--source", tmp_path / "q.json", "--out", tmp_path / "set") == 0
    assert [task.answers for task in open_tasks(tmp_path / "set")] == [(("1933",),)]


HOTPOT = {
    "_id": "b",
    "question": "Who founded The The?",
    "answer": "Ann Lee",
    "supporting_facts": [["Ann Lee", 0]],
    "context": [["Ann Lee", ["Ann Lee founded The The."]], ["Mill", ["A mill."]]],
}
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "Ann Lee has blood group A.",
                    "qas": [
                        {
                            "id": "1",
                            "question": "Which group?",
                            "answers": [{"text": "A", "answer_start": 24}],
                        },
                        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
                    ],
                },
                {"context": "The mill stands by the river.", "qas": []},
            ]
        }
    ]
}
ONE_ANSWER_OF_ARTICLES = {
    "hotpotqa": ([HOTPOT, {**HOTPOT, "_id": "a", "answer": "The The"}], 2, 0),
    "ruler": (SQUAD, 1, 1),
    "jsonl": ([{**DAM, "answers": ["A"], "documents": [{"text": "By Ann."}], "evidence": [0]}], 1, 0),
}


@pytest.mark.parametrize("source", ONE_ANSWER_OF_ARTICLES)
def test_an_answer_of_articles_does_not_refuse_the_file(tmp_path, source):
    content, tasks, left_out = ONE_ANSWER_OF_ARTICLES[source]
    (tmp_path / "f.json").write_text(json.dumps(content))
    size = ("--kind", "qa_1", "--tokens", 20) if source == "ruler" else ()
    assert build(source, "--source", tmp_path / "f.json", *size, "--out", tmp_path / "set") == 0
    built = open_tasks(tmp_path / "set")
    assert (len(built), built.card.counts.get("left_out", 0)) == (tasks, left_out)
    for task in built:
        assert grade_answer(task.answers[0][0], task.answers).em == 1.0
        assert grade_answer("", task.answers).em == 0.0


def test_the_right_letter_of_a_multiple_choice_is_paid(tmp_path):
    record = {
        **DAM,
        "answers": ["A"],
        "documents": [{"text": "The dam was built by Ann Lee."}],
        "evidence": [0],
    }
    (tmp_path / "mcq.jsonl").write_text(json.dumps(record))
    assert build("jsonl", "--source", tmp_path / "mcq.jsonl", "--out", tmp_path / "set") == 0
    for reply, paid in (
        (r"\boxed{A}", 1.0),
        (r"\boxed{\text{(A)}}", 1.0),
        (r"\boxed{B}", 0.0),
        (r"\boxed{}", 0.0),
    ):
        env = ChunkQAEnv(tasks=str(tmp_path / "set"))
        env.reset(seed=0)
        end, rewards = False, 0.0
        while not end:
            _, reward, end, _, _ = env.step(reply)
            rewards += reward
        assert rewards == paid


# HotpotQA's form.

WIKI = {
    **HOTPOT,
    "evidences": [],
    "answer": "Sundalia",
    "answer_id": "Q9",
    "context": [["Alda", ["Alda was a queen.", "She died in 901."]], ["Mill", ["A mill.", "It turns."]]],
    "supporting_facts": [["Alda", 1], ["Mill", 7]],
}
BLANK = {**WIKI, "context": [["Alda", ["Alda was a queen.", " She died in 901."]], ["Mill", ["A mill."]]]}


@pytest.mark.parametrize(
    ("source", "record"), [("2wiki", WIKI), ("2wiki", BLANK), ("hotpotqa", BLANK), ("hotpotqa", WIKI)]
)
def test_sentences_are_joined_by_one_blank_whether_or_not_they_begin_with_it(tmp_path, source, record):
    (tmp_path / "d.json").write_text(json.dumps([record]))
    assert build(source, "--source", tmp_path / "d.json", "--out", tmp_path / "set") == 0
    (task,) = tasks = open_tasks(tmp_path / "set")
    assert tasks.texts(task.documents)[0] == "Alda was a queen. She died in 901."
    assert tasks.needed_sentences(task) == [("Alda", "She died in 901.")]
    assert tasks.titles(task.evidence) == ["Alda", "Mill"]  # although it has no sentence 7


def test_pieces_of_hotpotqa_that_follow_without_a_blank_stay_so(tmp_path):
    context = [["A", ["He said", ' "Cheer Up!', '" and left.', " Then he came.", " And went."]]]
    (tmp_path / "d.json").write_text(
        json.dumps([{**HOTPOT, "context": context, "supporting_facts": [["A", 0]]}])
    )
    assert build("hotpotqa", "--source", tmp_path / "d.json", "--out", tmp_path / "set") == 0
    tasks = open_tasks(tmp_path / "set")
    assert tasks.texts([0]) == ['He said "Cheer Up!" and left. Then he came. And went.']


def test_a_question_keeps_its_own_paragraphs_where_no_size_is_asked_for(tmp_path):
    (tmp_path / "d.json").write_text(
        json.dumps([HOTPOT, {**HOTPOT, "_id": "c", "context": HOTPOT["context"][:1]}])
    )
    assert build("hotpotqa", "--source", tmp_path / "d.json", "--out", tmp_path / "set") == 0
    tasks = open_tasks(tmp_path / "set")
    assert [tasks.titles(task.documents) for task in tasks] == [["Ann Lee", "Mill"], ["Ann Lee"]]
    assert [tasks.titles(task.evidence) for task in tasks] == [["Ann Lee"], ["Ann Lee"]]


@pytest.mark.parametrize("named", [False, True])
def test_aliases_of_2wiki_are_accepted(tmp_path, named):
    (tmp_path / "d.json").write_text(json.dumps([WIKI, {**WIKI, "_id": "o", "answer_id": "Q1"}]))
    aliases = tmp_path / ("names.json" if named else "id_aliases.json")
    aliases.write_text('{"Q_id": "Q9", "aliases": ["Kingdom of Sundalia"], "demonyms": ["Sundalian"]}\n')
    args = ("--aliases", aliases) if named else ()
    assert build("2wiki", "--source", tmp_path / "d.json", *args, "--out", tmp_path / "set") == 0
    first, second = tasks = open_tasks(tmp_path / "set")
    assert first.answers == (("Sundalia", "Kingdom of Sundalia", "Sundalian"),)
    assert second.answers == (("Sundalia",),)
    assert list(tasks.card.inputs) == ["d.json", aliases.name]
