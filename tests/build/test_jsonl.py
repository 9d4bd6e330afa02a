"""Questions in the files that people have: their encodings, forms and fields."""

from __future__ import annotations

import gzip
import json

import pytest
from build_command import command, one_line

from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.tasks.metrics import grade_answer
from memenvs.tasks.taskset import open_questions, open_tasks

DAM = {"question": "Who built the dam?", "answers": ["Ann Lee"]}
LONGBENCH = {"_id": "1", "input": "Q?", "context": "C", "answers": ["a"], "dataset": "musique", "length": 1}
MILL = {"question": "Whose is the mill?", "answers": ["Bob"]}


@pytest.fixture
def read_both(tmp_path):
    """Reads a file as `tasks=FILE` and builds it as `nq`; the answers of each question, which must agree."""

    def read(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        direct = open_questions(str(path))
        assert command("nq", "--source", path, "--out", tmp_path / "set") == 0
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


@pytest.mark.parametrize("source", [".", "part-*.jsonl"])
def test_questions_in_shards_are_one_set_whose_card_names_each(tmp_path, source):
    for number, record in enumerate((DAM, MILL)):
        (tmp_path / f"part-{number}.jsonl").write_text(json.dumps(record))
    questions = open_questions(str(tmp_path / source))
    assert [task.answers[0] for task in questions] == BOTH
    assert command("nq", "--source", tmp_path / source, "--out", tmp_path / "set") == 0
    assert list(open_tasks(tmp_path / "set").card.inputs) == ["part-0.jsonl", "part-1.jsonl"]
    (tmp_path / "part-1.jsonl").write_text(json.dumps({**MILL, "answers": ["Bo Kim"]}))
    changed = open_questions(str(tmp_path / source))
    assert changed[1].answers == (("Bo Kim",),)
    assert changed.hash != questions.hash


def test_a_folder_of_splits_needs_the_name_of_one(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({**DAM, "answers": [name]}))
    with pytest.raises(ValueError, match=r"test\.jsonl, train\.jsonl"):
        open_questions(str(tmp_path))
    assert command("nq", "--source", tmp_path, "--split", "test", "--out", tmp_path / "set") == 0
    assert [task.answers for task in open_tasks(tmp_path / "set")] == [(("test",),)]


def test_questions_are_read_from_parquet(source_file):
    path = source_file("q.parquet", [DAM, MILL])
    assert [task.answers[0] for task in open_questions(str(path))] == BOTH


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


def test_the_official_file_of_triviaqa_is_read(built):
    answer = {"Value": "Ann Lee", "Aliases": ["A. Lee", "Ann Lee"], "NormalizedAliases": ["ann lee"]}
    record = {"QuestionId": "tc_1", "Question": "Who built the dam?", "Answer": answer, "EntityPages": []}
    (task,) = built("triviaqa", {"Data": [record], "Domain": "Web", "Version": 1.0})
    assert (task.id, task.answers) == ("tc_1", (("Ann Lee", "A. Lee"),))


def test_questions_without_an_id_are_numbered_in_their_file(tmp_path):
    (tmp_path / "dev.jsonl").write_text(f"{json.dumps(DAM)}\n{json.dumps({**MILL, 'id': 'm'})}")
    assert [task.id for task in open_questions(str(tmp_path / "dev.jsonl"))] == ["dev-0", "m"]


def test_questions_with_blank_answers_are_left_out_and_counted(tmp_path):
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, [DAM, {**MILL, "answers": [" "]}])))
    questions = open_questions(str(tmp_path / "q.jsonl"))
    assert (len(questions), questions.left_out) == (1, 1)
    assert command("nq", "--source", tmp_path / "q.jsonl", "--out", tmp_path / "set") == 0
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
    assert command("nq", "--source", path, "--out", tmp_path / "set") == 2
    line = one_line(capsys)
    assert said in line
    assert "bad.jsonl" in line


def test_your_own_questions_may_have_the_same_forms(tmp_path):
    record = {"question": "When?", "answer": 1933, "documents": [{"text": "In 1933."}]}
    (tmp_path / "q.json").write_text(json.dumps([record], indent=1))
    assert command("jsonl", "--source", tmp_path / "q.json", "--out", tmp_path / "set") == 0
    assert [task.answers for task in open_tasks(tmp_path / "set")] == [(("1933",),)]


# Fields that are not read.


@pytest.mark.parametrize("name", ["q.csv", "q.jsonl", "q.parquet"])
def test_fields_that_are_not_read_are_named_once(source_file, tmp_path, capsys, name):
    rows = [{"file": "a.txt", "question": f"Who {i}?", "answer": "Ann", "quote": "By Ann."} for i in range(3)]
    source_file(name, rows)
    if name == "q.csv":
        lines = [",".join(row) for row in [rows[0], *(row.values() for row in rows)]]
        (tmp_path / name).write_text("\n".join(lines))
    for source in ("nq", "jsonl"):
        assert command(source, "--source", tmp_path / name, "--out", tmp_path / "set") == 0
        assert capsys.readouterr().err == f"{tmp_path / name}: ignored: file, quote\n"
    open_questions(str(tmp_path / name))
    assert capsys.readouterr().err == f"{tmp_path / name}: ignored: file, quote\n"


IN_FOLDER = {**DAM, "documents": [{"title": "t", "text": "Built by Ann Lee."}], "evidence": [0]}


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("evidnce", "evidence"),
        ("evidences", "evidence"),
        ("documnets", "documents"),
        ("questoin", "question"),
        ("qestion", "question"),
        ("anwsers", "answers"),
        ("Answrs", "answers"),
    ],
)
def test_a_field_one_letter_away_from_a_known_one_is_an_error(refused_records, wrong, right):
    record = {wrong if name == right else name: value for name, value in IN_FOLDER.items()}
    line = refused_records("jsonl", record)
    assert f"{wrong.lower()!r}" in line
    assert f"write {right!r}" in line


def test_a_misspelled_field_of_a_document_or_of_a_benchmark_is_an_error(built, refused_records):
    document = {"titel": "t", "text": "Built by Ann Lee."}
    assert "write 'title'" in refused_records("jsonl", {**IN_FOLDER, "documents": [document]})
    assert built("hotpotqa", {**HOTPOT, "answr": HOTPOT["answer"]})
    del (wrong := {**HOTPOT, "answr": "Ann"})["answer"]
    assert "write 'answer'" in refused_records("hotpotqa", wrong)


def test_a_column_beside_the_one_that_it_is_like_is_only_another_column(tmp_path, capsys):
    (tmp_path / "q.csv").write_text("question,answers,answer1\nWho?,Ann,Bob\n")
    (task,) = open_questions(str(tmp_path / "q.csv"))
    assert task.answers == (("Ann",),)
    assert capsys.readouterr().err.endswith("ignored: answer1\n")


# Evidence.

LEASE = {
    "question": "How long is the notice?",
    "answers": ["60"],
    "documents": [{"text": "A mill."}, {"title": "Lease", "text": "A. Notice is\n60 days. B."}],
}


@pytest.mark.parametrize(
    ("evidence", "sentences"),
    [
        (["Notice is 60 days."], [("Lease", "Notice is\n60 days.")]),
        ("Notice is 60 days.", [("Lease", "Notice is\n60 days.")]),
        ([[1, 3, 12]], [("Lease", "Notice is")]),
        (["A mill.", "60 days"], [("", "A mill."), ("Lease", "60 days")]),
    ],
)
def test_words_quoted_from_a_document_or_their_characters_are_evidence(built, evidence, sentences):
    (task,) = tasks = built("jsonl", {**LEASE, "evidence": evidence})
    assert tasks.needed_sentences(task) == sentences
    assert task.evidence == ((0, 1) if len(sentences) > 1 else (1,))


def test_a_number_alone_is_the_only_document_that_is_needed(built):
    (task,) = built("jsonl", {**LEASE, "evidence": 1})
    assert task.evidence == (1,)


@pytest.mark.parametrize("evidence", [["A tower."], [2], [-1], [[1, 3]], [[1, 3, 99]], [[1, 5, 3]], [" "]])
def test_evidence_that_no_document_has_is_one_line(refused_records, evidence):
    assert "as evidence" in refused_records("jsonl", {**LEASE, "evidence": evidence})


HOTPOT = {
    "_id": "b",
    "question": "Who founded The The?",
    "answer": "Ann Lee",
    "supporting_facts": [["Ann Lee", 0]],
    "context": [["Ann Lee", ["Ann Lee founded The The."]], ["Mill", ["A mill."]]],
}
GROUP = {"id": "1", "question": "Which group?", "answers": [{"text": "A", "answer_start": 24}]}
WHY = {"id": "2", "question": "Why?", "answers": [], "is_impossible": True}
PARAGRAPHS = [
    {"context": "Ann Lee has blood group A.", "qas": [GROUP, WHY]},
    {"context": "The mill stands by the river.", "qas": []},
]
ONE_ANSWER_OF_ARTICLES = {
    "hotpotqa": ([HOTPOT, {**HOTPOT, "_id": "a", "answer": "The The"}], 2, 0),
    "ruler": ([{"data": [{"paragraphs": PARAGRAPHS}]}], 1, 1),
    "jsonl": ([{**DAM, "answers": ["A"], "documents": [{"text": "By Ann."}], "evidence": [0]}], 1, 0),
}


@pytest.mark.parametrize("source", ONE_ANSWER_OF_ARTICLES)
def test_an_answer_of_articles_does_not_refuse_the_file(built, source):
    records, count, left_out = ONE_ANSWER_OF_ARTICLES[source]
    tasks = built(source, *records, args=("--kind", "qa_1", "--tokens", 20) if source == "ruler" else ())
    assert (len(tasks), tasks.card.counts.get("left_out", 0)) == (count, left_out)
    for task in tasks:
        assert grade_answer(task.answers[0][0], task.answers).em == 1.0
        assert grade_answer("", task.answers).em == 0.0


def test_the_right_letter_of_a_multiple_choice_is_paid(built):
    documents = [{"text": "The dam was built by Ann Lee."}]
    tasks = built("jsonl", {**DAM, "answers": ["A"], "documents": documents, "evidence": [0]})
    for answer, paid in (("A", 1.0), (r"\text{(A)}", 1.0), ("B", 0.0), ("", 0.0)):
        reply = rf"\boxed{{{answer}}}"
        env = ChunkQAEnv(tasks=str(tasks.path))
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
def test_sentences_are_joined_by_one_blank_whether_or_not_they_begin_with_it(built, source, record):
    (task,) = tasks = built(source, record)
    assert tasks.texts(task.documents)[0] == "Alda was a queen. She died in 901."
    assert tasks.needed_sentences(task) == [("Alda", "She died in 901.")]
    assert tasks.titles(task.evidence) == ["Alda", "Mill"]  # although it has no sentence 7


def test_pieces_of_hotpotqa_that_follow_without_a_blank_stay_so(built):
    context = [["A", ["He said", ' "Cheer Up!', '" and left.', " Then he came.", " And went."]]]
    tasks = built("hotpotqa", {**HOTPOT, "context": context, "supporting_facts": [["A", 0]]})
    assert tasks.texts([0]) == ['He said "Cheer Up!" and left. Then he came. And went.']


def test_a_question_keeps_its_own_paragraphs_where_no_size_is_asked_for(built):
    tasks = built("hotpotqa", HOTPOT, {**HOTPOT, "_id": "c", "context": HOTPOT["context"][:1]})
    assert [tasks.titles(task.documents) for task in tasks] == [["Ann Lee", "Mill"], ["Ann Lee"]]
    assert [tasks.titles(task.evidence) for task in tasks] == [["Ann Lee"], ["Ann Lee"]]


@pytest.mark.parametrize("named", [False, True])
def test_aliases_of_2wiki_are_accepted(built, tmp_path, named):
    aliases = tmp_path / ("names.json" if named else "id_aliases.json")
    aliases.write_text('{"Q_id": "Q9", "aliases": ["Kingdom of Sundalia"], "demonyms": ["Sundalian"]}\n')
    args = ("--aliases", aliases) if named else ()
    first, second = tasks = built("2wiki", WIKI, {**WIKI, "_id": "o", "answer_id": "Q1"}, args=args)
    assert first.answers == (("Sundalia", "Kingdom of Sundalia", "Sundalian"),)
    assert second.answers == (("Sundalia",),)
    assert list(tasks.card.inputs) == ["2wiki.jsonl", aliases.name]


def test_a_document_whose_title_is_null_has_none(built, source_file):
    documents = [{"title": None, "text": "Ann Lee built it."}, {"title": "Mill", "text": "Bob's."}]
    pool = source_file("pool.jsonl", [{"title": None, "text": "A river."}])
    args = ("--pool", pool, "--documents", 3)
    tasks = built("jsonl", {**DAM, "documents": documents, "evidence": [0]}, args=args)
    assert sorted(tasks.titles(range(3))) == ["", "", "Mill"]


@pytest.mark.parametrize(
    ("record", "source"),
    [(LONGBENCH, "longbench"), ({"question": "Q?", "answer": "a", "context": "A long text."}, "--help")],
)
def test_a_record_whose_text_would_be_ignored_is_refused_with_what_reads_it(refused_records, record, source):
    assert f"memenvs build {source}" in refused_records("jsonl", record)
