"""`memenvs build BENCHMARK`: each official format is read, and anything else is a one-line error."""

import base64
import copy
import gzip
import hashlib
import itertools
import json
from pathlib import Path

import pytest
from build_command import command

from memenvs.build.contexts import KeptContexts
from memenvs.build.sources import BENCHMARKS, SOURCES
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.tasks.context import Reader
from memenvs.tasks.metrics import (
    LOCOMO_ABSENT,
    METRICS,
    gold_answer,
    locomo_f1,
    mrcr_ratio,
)
from memenvs.tasks.taskset import open_questions, open_tasks
from memenvs.tasks.tokens import load_tokenizer

RECORDS = json.loads((Path(__file__).parent / "official_records.json").read_text(encoding="utf-8"))
"""A record of each source in its official form."""

TRAINING = RECORDS.pop("memagent_training")
RECORDS |= dict.fromkeys(("triviaqa", "popqa", "bamboogle"), RECORDS["nq"])
HOTPOT, CONTEXT = RECORDS["hotpotqa"], RECORDS["memagent"]["context"]
each_source = pytest.mark.parametrize("name", sorted(BENCHMARKS))


SEVERAL = {"locomo": 5, "memoryagentbench": 2, "ama_bench": 2, "qasper": 2}
"""Sources whose records have several questions, and how many those above have."""


def with_id(record, number):
    """The record under another id, by the field that its source has."""
    found = copy.deepcopy(record)
    for key in ("_id", "id", "index", "question_id", "episode_id"):
        if key in found:
            found[key] = type(found[key])(number)
    return found


def contexts(tasks):
    reader = Reader(tasks, load_tokenizer())
    return [reader.context(task.documents).text for task in tasks]


@each_source
def test_a_record_in_the_official_form_becomes_a_task(built, name):
    tasks = built(name, RECORDS[name])
    assert len(tasks) == SEVERAL.get(name, 1)
    assert tasks.card.source == name
    assert tasks.card.licence == SOURCES[name].licence
    assert tasks.card.citation == SOURCES[name].citation
    assert tasks.metric in METRICS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bad.json", b'[{"input": '),
        ("bad.json", b"[" * 100_000),
        ("bad.json", b"[]"),
        ("bad.json", b"[1]"),
        ("bad.json", b"\xff"),
        ("bad.parquet", b"PAR1" + b"x" * 100 + b"PAR1"),
    ],
)
def test_a_file_of_another_kind_is_one_line(tmp_path, refused, name, content):
    (tmp_path / name).write_bytes(content)
    assert name in refused("memagent", "--source", tmp_path / name)


HOSTILE = {
    "another schema": lambda name: json.dumps([{"name": "dam", "height": 3}]),
    "two of one id": lambda name: json.dumps([RECORDS[name]] * 2),
    "a lone surrogate": lambda name: json.dumps([RECORDS[name]]).replace("?", "\\ud800?"),
}


@each_source
@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_not_the_official_form_is_one_line(tmp_path, refused, name, what):
    if what == "two of one id" and name in ("mrcr", "babilong", "narrativeqa"):
        pytest.skip("its records have no id of their own")
    (tmp_path / "bad.json").write_text(HOSTILE[what](name))
    assert "bad.json" in refused(name, "--source", tmp_path / "bad.json")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def refusal(name, path):
    """What a reader says of a file, or None."""
    try:
        source = SOURCES[name]
        found = source.make(source.options(source=str(path)), load_tokenizer())
        if isinstance(found, KeptContexts):
            found.tasks(load_tokenizer())
    except ValueError as error:
        return str(error)
    return None


@each_source
def test_anything_in_the_place_of_a_field_is_one_line_or_a_task(tmp_path, name):
    """No field makes a reader raise anything but a line that names the file; some may be anything."""
    path = tmp_path / "bad.json"
    for field in RECORDS[name]:
        for value in (None, 3, [], "", [None]):
            path.write_text(json.dumps([{**RECORDS[name], field: value}]))
            said = refusal(name, str(path))
            assert said is None or (str(path) in said and "\n" not in said), (field, value, said)


# 2WikiMultihopQA.


def test_2wiki_has_hotpotqas_evidence_and_its_own_triples(built):
    tasks = built("2wiki", RECORDS["2wiki"])
    (task,) = tasks
    assert tasks.titles(task.evidence) == ["Dam", "Ann"]
    assert tasks.needed_sentences(task) == [
        ("Dam", "The dam was built by Ann."),
        ("Ann", "Ann was born in Bem."),
    ]
    assert task.meta["type"] == "compositional"
    assert task.meta["evidences"][1] == ["Ann", "place of birth", "Bem"]


# MemAgent.


@pytest.mark.parametrize(
    ("record", "suffix", "metric"),
    [(RECORDS["memagent"], ".json", "memagent_sub_em"), (TRAINING, ".parquet", "boxed_em")],
)
def test_both_files_of_memagent_are_read_to_the_character(built, record, suffix, metric):
    second = with_id(record, 8)
    second["context"] = (
        "Document 1:\nMill\nA mill.\n\nIt burnt.\n\n\nDocument 2:\nDocument 2:\n\nDocument 4:\nx"
    )
    if suffix == ".parquet":
        second["extra_info"] = {**record["extra_info"], "index": 8}
    tasks = built("memagent", record, second, suffix=suffix)
    assert [task.id for task in tasks] == ["7", "8"]
    assert contexts(tasks) == [record["context"], second["context"]]
    assert tasks.metric == metric
    assert [len(task.documents) for task in tasks] == [2, 2]
    assert tasks.titles(tasks[0].documents) == ["Dam", "Mill"]
    assert tasks[0].evidence == ()
    assert tasks[0].meta == {"num_docs": 2}


def test_a_set_exported_in_memagents_form_is_read_back_to_the_character(tmp_path):
    made, again = tmp_path / "made", tmp_path / "again"
    size = ("--entities", "60", "--documents", "12", "--num-tasks", "5")
    assert command("world", *size, "--export", "memagent", "--out", made) == 0
    assert command("memagent", "--source", made / "memagent.parquet", "--out", again) == 0
    ours, theirs = open_tasks(made), open_tasks(again)
    assert contexts(theirs) == contexts(ours)
    assert [task.question for task in theirs] == [task.question for task in ours]
    assert [task.answers for task in theirs] == [task.answers for task in ours]
    assert theirs.n_documents == ours.n_documents


def test_equal_documents_of_two_contexts_are_stored_once(built):
    records = [with_id(RECORDS["memagent"], number) for number in range(3)]
    tasks = built("memagent", *records)
    assert (len(tasks), tasks.n_documents) == (3, 2)


def test_a_needle_file_of_memagent_is_one_document_and_wants_every_answer(built):
    record = {"index": 0, "input": "Which?", "outputs": ["31", "47"], "length": 9, "context": "31\n\n47"}
    tasks = built("memagent", record)
    assert contexts(tasks) == ["31\n\n47"]
    assert tasks.metric == "string_match_all"
    assert tasks[0].answers == (("31", "47"),)
    with_documents = {**record, "context": CONTEXT}  # RULER's questions in the same form
    assert built("memagent", with_documents).metric == "memagent_sub_em"


def test_questions_that_cannot_be_scored_are_left_out_and_counted(built, capsys):
    nothing = {**with_id(RECORDS["memagent"], 8), "answers": [" "]}
    tasks = built("memagent", RECORDS["memagent"], nothing)
    assert (len(tasks), tasks.card.counts["left_out"]) == (1, 1)
    assert "1 question left out that have no answer to score" in capsys.readouterr().out


def test_the_first_tasks_are_those_of_the_file(built):
    records = [with_id(RECORDS["memagent"], number) for number in (5, 3, 4)]
    assert [task.id for task in built("memagent", *records, args=("--num-tasks", 2))] == ["5", "3"]


def test_a_compressed_file_is_read(tmp_path):
    with gzip.open(tmp_path / "eval.jsonl.gz", "wt") as file:
        file.write(json.dumps(RECORDS["memagent"]))
    assert command("memagent", "--source", tmp_path / "eval.jsonl.gz", "--out", tmp_path / "set") == 0


# LongBench.


@pytest.mark.parametrize("separator", ["\n", "\n\n"])
def test_passages_of_longbench_are_documents_and_join_to_its_text(built, separator):
    texts = ["Dam\nBuilt by Ann.", "Mill\nA mill.\nPassage 9:\nIt burnt.", "Sea\nDeep."]
    context = separator.join(f"Passage {i}:\n{text}" for i, text in enumerate(texts, 1))
    tasks = built("longbench", {**RECORDS["longbench"], "context": context})
    assert contexts(tasks) == [context]
    assert tasks.document_texts(tasks[0].documents) == texts
    assert tasks[0].answers == (("Ann", "Ann Lee"),)


def test_a_story_of_longbench_is_one_document(built):
    record = {**RECORDS["longbench"], "dataset": "narrativeqa", "context": "Once.\n\nPassage 1:\nTwice.\n"}
    tasks = built("longbench", record)
    assert contexts(tasks) == [record["context"]]
    assert tasks[0].meta == {"dataset": "narrativeqa", "length": 9}


# FlashRAG's collection.


def test_questions_of_flashrag_are_for_searching_and_both_ways_to_read_them_agree(built, tmp_path, capsys):
    record = {**RECORDS["popqa"], "metadata": {"s_pop": 7}}
    tasks = built("popqa", record, {**record, "id": "test_1", "golden_answers": [" ", "Bob"]})
    assert (tasks.n_documents, tasks.card.environment, tasks.metric) == (0, "MemSearchQA-v0", "em")
    assert [task.id for task in tasks] == ["test_0", "test_1"]
    assert tasks[1].answers == (("Bob",),)
    assert list(open_questions(str(tmp_path / "popqa.jsonl"))) == list(tasks)
    assert "retriever=lexical:CORPUS" in capsys.readouterr().out


# LongMemEval.


def test_sessions_of_longmemeval_are_dated_documents_the_earliest_first(built):
    (task,) = tasks = built("longmemeval", RECORDS["longmemeval"])
    assert contexts(tasks) == [
        "### Session 1:\nSession Date: 2023/05/19 (Fri) 10:00\nSession Content:\n\n"
        "user: Hello.\n\nassistant: Hello!\n\n"
        "### Session 2:\nSession Date: 2023/05/20 (Sat) 02:21\nSession Content:\n\n"
        "user: I read that Ann built the dam.\n\nassistant: Good for her!"
    ]
    assert task.question == "Current date: 2023/05/30 (Tue) 23:40\nWho built the dam?"
    assert tasks.titles(task.evidence) == ["Session Date: 2023/05/20 (Sat) 02:21"]
    assert [text for _, text in tasks.needed_sentences(task)] == ["I read that Ann built the dam."]
    assert (task.id, task.meta["answerable"]) == ("single-session-user/e47becba", True)


def test_an_abstention_of_longmemeval_says_so_and_keeps_its_sessions(built):
    record = copy.deepcopy(RECORDS["longmemeval"])
    record |= {"question_id": "e47becba_abs", "answer": 3}
    del record["haystack_sessions"][0][0]["has_answer"]
    (task,) = tasks = built("longmemeval", record)
    assert task.meta["answerable"] is False
    assert task.answers == (("3",),)
    assert tasks.titles(task.evidence) == ["Session Date: 2023/05/20 (Sat) 02:21"]  # by answer_session_ids


# MRCR.


def test_messages_of_mrcr_are_documents_and_the_reply_asked_for_is_evidence(built):
    (task,) = tasks = built("mrcr", RECORDS["mrcr"], suffix=".parquet")
    assert tasks.texts(task.documents)[:2] == ["User: write a poem about dams", "Assistant: Ann built it."]
    assert len(task.documents) == 6
    assert tasks.texts(task.evidence) == ["User: write a poem about dams", "Assistant: Water stands."]
    assert task.question.startswith("Prepend aYooSG8CQg")
    assert task.answers == (("aYooSG8CQgWater stands.",),)


@pytest.mark.parametrize(
    ("prediction", "score"),
    [
        ("aYooSG8CQgabcd", 1.0),
        ("aYooSG8CQgbcde", 0.75),  # 2 * 3 alike of 4 + 4
        ("aYooSG8CQg", 0.0),
        ("abcd", 0.0),
        (" aYooSG8CQgabcd", 0.0),
        ("", 0.0),
    ],
)
def test_mrcr_pays_similarity_after_the_random_string_alone(prediction, score):
    assert mrcr_ratio(prediction, ["aYooSG8CQgabcd"]) == score


# LoCoMo.


def test_sessions_of_locomo_are_dated_documents_in_their_order(built):
    tasks = built("locomo", RECORDS["locomo"])
    assert len(tasks) == 5
    assert set(contexts(tasks)) == {
        "Session 1. Date: 1:56 pm on 8 May, 2023\n"
        "Ann: I built the dam with Cy.\nBob: Look! [shares a photo of a mill]\n\n"
        "Session 2. Date: 2:00 pm on 9 May, 2023\nAnn: It stands.\n\n"
        "Session 3. Date: 3:00 pm on 9 June, 2023\nBob: It fell."
    }
    assert tasks.n_documents == 3
    assert [task.id for task in tasks] == [f"conv-1-{number}" for number in range(5)]


def test_the_turns_that_a_question_of_locomo_names_are_its_evidence_however_they_are_written(built):
    tasks = built("locomo", RECORDS["locomo"])
    needed = [[text for _, text in tasks.needed_sentences(task)] for task in tasks]
    assert needed[0] == ["Ann: I built the dam with Cy.", "Ann: It stands."]
    assert needed[2] == []  # there is no D9:9
    assert needed[3] == ["Bob: Look! [shares a photo of a mill]"]
    assert tasks[0].evidence == (0, 1)


def test_answers_of_locomo_are_as_its_metric_reads_them(built):
    tasks = built("locomo", RECORDS["locomo"])
    answers = [task.answers for task in tasks]
    assert answers == [(("Ann", "Cy"),), (("2023",),), (("Yes",),), (("A mill",),), (LOCOMO_ABSENT,)]
    for task in tasks:
        assert locomo_f1(gold_answer(task.answers, "locomo_f1"), task.answers[0]) == 1.0


def test_a_multi_hop_answer_of_one_part_is_compared_with_the_parts_of_a_reply(built):
    record = copy.deepcopy(RECORDS["locomo"])
    record["qa"] = [{"question": "Who?", "answer": "Ann", "evidence": [], "category": 1}]
    (task,) = built("locomo", record)
    assert locomo_f1("Bob, Ann", task.answers[0]) == 1.0
    assert gold_answer(task.answers, "locomo_f1") == "Ann"


def test_one_category_of_locomo_can_be_built(built):
    (task,) = built("locomo", RECORDS["locomo"], args=("--category", 4))
    assert (task.id, task.meta["category"]) == ("conv-1-3", "single-hop")


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("He was running and jumping", ["she runs, jumps"], 4 / 7),  # he was run jump; she run jump
        ("the 7 May, 2023", ["7 May 2023"], 1.0),
        ("skies", ["sky"], 1.0),  # one of NLTK's exceptions to Porter's rules
        ("Ann, Bob", ["Ann", "Cy"], 0.5),
        ("Bob, Ann", ["Ann"], 2 / 3),
        ("That was not mentioned.", LOCOMO_ABSENT, 1.0),
        ("I do not know.", LOCOMO_ABSENT, 0.0),
        ("", ["Ann"], 0.0),
        ("Ann", [], 0.0),
    ],
)
def test_locomos_f1_is_of_stems_and_of_parts(prediction, answers, score):
    assert locomo_f1(prediction, answers) == pytest.approx(score)


# MemoryAgentBench.


def test_questions_of_memoryagentbench_share_their_context(built):
    tasks = built("memoryagentbench", RECORDS["memoryagentbench"], suffix=".parquet")
    assert [task.id for task in tasks] == ["ruler_qa1_197K_no0", "ruler_qa1_197K_no1"]
    assert contexts(tasks) == [RECORDS["memoryagentbench"]["context"]] * 2
    assert tasks.n_documents == 2
    assert tasks[0].answers == (("Ann", "Ann Lee"),)
    assert tasks.metric == "sub_em"


@pytest.mark.parametrize(
    ("subset", "metric"),
    [
        ("icl_banking77_5900shot_balance", "em"),
        ("factconsolidation_sh_6k", "sub_em"),
        ("longmemeval_s*", "f1"),
    ],
)
def test_a_subset_of_memoryagentbench_has_its_metric_and_a_text_without_marks_is_one_document(
    built, subset, metric
):
    first = RECORDS["memoryagentbench"]
    record = {
        **first,
        "context": "A long text.",
        "metadata": {"source": subset, "question_types": ["a", "b"]},
    }
    tasks = built("memoryagentbench", first, record, args=("--subset", subset))
    assert (tasks.metric, set(contexts(tasks)), tasks.n_documents) == (metric, {"A long text."}, 1)
    assert [task.id for task in tasks] == [f"a/{subset}-0-0", f"b/{subset}-0-1"]
    assert tasks.card.arguments["subset"] == subset


def test_questions_of_one_context_are_joined_and_asked_one_by_one(built):
    first = RECORDS["memoryagentbench"]
    questions = ["Who built the dam?", "Who; or what?", "Who built the mill?", "Where?", "When?"]
    record = {**first, "questions": questions, "answers": [["Ann"], ["x"], ["Bob"], ["Bem"], ["1900"]]}
    record["metadata"] = {"source": "ruler_qa1_197K"}
    tasks = built("memoryagentbench", record, args=("--questions", 2))
    assert [task.questions for task in tasks] == [
        ("Who built the dam?",),
        ("Who; or what?",),  # which cannot be told from two
        ("Who built the mill?", "Where?"),
        ("When?",),
    ]
    assert tasks[2].answers == (("Bob",), ("Bem",))
    assert tasks[2].meta == {"parts": ["ruler_qa1_197K-0-2", "ruler_qa1_197K-0-3"]}
    env = ChunkQAEnv(tasks=str(tasks.path), ask="later")
    env.reset(seed=0, options={"task": 2})
    rewards, done = [], False
    while not done:
        _, reward, done, _, _ = env.step(env.gold_reply())
        rewards.append(reward)
    assert rewards == [0.0, 0.5, 0.5]


# BrowseComp-Plus.

CANARY = "a text that only this test knows"


def hidden(value):
    """A value as BrowseComp-Plus hides it."""
    if isinstance(value, dict):
        return {key: hidden(part) for key, part in value.items()}
    if isinstance(value, list):
        return [hidden(part) for part in value]
    key = itertools.cycle(hashlib.sha256(CANARY.encode()).digest())
    return base64.b64encode(bytes(a ^ b for a, b in zip(value.encode(), key, strict=False))).decode()


def test_documents_of_browsecomp_plus_are_stored_once_and_the_needed_ones_are_evidence(built):
    (task,) = tasks = built("browsecomp_plus", RECORDS["browsecomp_plus"])
    assert tasks.texts(task.documents) == [
        "Ann built the dam.",
        "The mill of Bem stands.",
        "Bob built a bridge.",
    ]
    assert tasks.texts(task.evidence) == ["Ann built the dam.", "The mill of Bem stands."]
    assert task.meta == {"docids": ["1", "2", "3"], "gold": 1}


def test_an_obfuscated_file_is_decoded_by_its_canary(built, tmp_path):
    record = RECORDS["browsecomp_plus"]
    plain = list(built("browsecomp_plus", record))
    obfuscated = {
        **hidden({key: value for key, value in record.items() if key != "query_id"}),
        "query_id": "769",
    }
    tasks = built("browsecomp_plus", obfuscated, suffix=".parquet", args=("--canary", CANARY))
    assert list(tasks) == plain


# AMA-Bench.


def test_the_steps_of_ama_bench_are_documents_numbered_as_in_the_file(built):
    tasks = built("ama_bench", RECORDS["ama_bench"], args=("--questions", 2))
    assert contexts(tasks) == [
        "Task Description\nPush the words to win.\n\n"
        "Step 0:\nAction: left\nObservation: Active rules:\nbaba is you\n\n"
        "Step 1:\nAction: up\nObservation: ball 2 step up"
    ]
    assert (tasks.metric, tasks[0].answers) == ("f1", (("2 steps up",), ("baba is you",)))


def test_a_step_of_ama_bench_may_lack_an_action_or_an_observation(built):
    turns = [{"turn_idx": 7, "action": None, "observation": None}]
    tasks = built("ama_bench", {**RECORDS["ama_bench"], "trajectory": turns})
    assert contexts(tasks)[0].endswith("\n\nStep 7:\nAction: \nObservation: ")
    assert [task.meta["type"] for task in tasks] == ["A", "C"]


# Forms that a table of fields describes.


def ruler(prompt, outputs):
    return {"index": 3, "input": prompt, "outputs": outputs, "length": 9, "answer_prefix": " Answer:"}


NEEDLES = RECORDS["ruler_jsonl"]["input"]
_ONLY = "Only give me the answer and do not output any other words."
QA = (
    f"Answer the question based on the given documents. {_ONLY}\n\nThe following are given documents.\n\n"
    "Document 1:\nAnn built the dam.\n\nDocument 2:\nBob built it.\nQuestion: is there a mill?\n\n"
    f"Answer the question based on the given documents. {_ONLY}\n\nQuestion: Who built the dam?"
)
_TRACK = "Memorize and track the chain(s) of variable assignment hidden in the following text."
VT = (
    f"{_TRACK}\n\nVAR A = 1 VAR B = A\nQuestion: Find all variables that are assigned the value 1 in the "
    "text above. Answer: According to the chain(s), 2 variables are assigned the value 1, they are:\n\n"
    f"{_TRACK}\n\nVAR C = 5 The dam. VAR D = C\nQuestion: Find all variables that are assigned the value 5 "
    "in the text above."
)


@pytest.mark.parametrize("end", ["", " Answer:", " [/INST] Answer:", "<|im_end|>\n<|im_start|>assistant\n"])
@pytest.mark.parametrize(
    ("prompt", "question", "metric", "last"),
    [
        (NEEDLES, "What are all the special magic numbers for dam mentioned in the provided text?",
         "string_match_all", "47. The end."),
        (QA, "Who built the dam?", "string_match_part", "Bob built it.\nQuestion: is there a mill?"),
        (VT, "Find all variables that are assigned the value 5 in the text above.", "string_match_all",
         "VAR D = C"),
    ],
)  # fmt: skip
def test_rulers_own_lines_are_divided_and_scored_as_ruler_scores_them(
    built, prompt, question, metric, last, end
):
    (task,) = tasks = built("ruler_jsonl", ruler(prompt + end, ["31", "47"]))
    assert task.question == question
    assert task.answers == (("31", "47"),)
    assert tasks.metric == metric
    assert contexts(tasks)[0].endswith(last)
    assert len(task.documents) == (2 if prompt == QA else 1)


def test_babilong_is_read_with_its_target(built):
    (task,) = tasks = built("babilong", RECORDS["babilong"])
    assert contexts(tasks) == [RECORDS["babilong"]["input"]]
    assert (task.question.strip(), task.answers, tasks.metric) == (
        "Where is Mary?",
        (("kitchen",),),
        "babilong",
    )


@pytest.mark.parametrize(
    ("prediction", "target", "score"),
    [
        ("kitchen", "kitchen", 1.0),
        ("She is in the Kitchen. Not in the garden.", "kitchen", 1.0),
        ("kitchen or garden", "kitchen", 0.0),
        ("garden", "kitchen", 0.0),
        ("apple, milk", "apple,milk", 1.0),
        ("milk and apple", "apple,milk", 1.0),
        ("apple", "apple,milk", 0.0),
        ("apple, milk and football", "apple,milk", 0.0),
        ("n,w", "n,w", 1.0),
        ("w,n", "n,w", 0.0),
        ("none", "none", 1.0),
        ("yes", "no", 0.0),
        ("Fred", "Fred", 1.0),
        ("", "no", 0.0),
    ],
)
def test_babilong_wants_the_target_and_no_other_label(prediction, target, score):
    assert METRICS["babilong"](prediction, [target]) == score


CHOICE = """\
Who built the dam?
Choices:
(A) Bob
(B) Ann
(C) Cy
(D) Di
Answer with the letter of the right choice."""


@pytest.mark.parametrize(("name", "answers"), [("longbench_v2", ("B",)), ("infinitebench", ("B", "Ann"))])
def test_a_multiple_choice_asks_for_the_letter(built, name, answers):
    (task,) = tasks = built(name, RECORDS[name])
    assert (task.question, task.answers, tasks.metric) == (CHOICE, (answers,), "choice")


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("B", ["B"], 1.0),
        ("(B)", ["B"], 1.0),
        ("**B**. Ann", ["B"], 1.0),
        ("The correct answer is (B), since C is later.", ["B"], 1.0),
        ("It is not A but B", ["B"], 1.0),
        ("C", ["B"], 0.0),
        ("b", ["B"], 0.0),
        ("Ann", ["B", "Ann"], 1.0),
        ("", ["B"], 0.0),
    ],
)
def test_a_choice_is_scored_by_its_letter(prediction, answers, score):
    assert METRICS["choice"](prediction, answers) == score


@pytest.mark.parametrize(
    ("task", "metric"),
    [
        ("passkey", "first_number"),
        ("number_string", "first_number"),
        ("kv_retrieval", "string_match_part"),
        ("longdialogue_qa_eng", "string_match_part"),
        ("longbook_qa_eng", "longbench_f1"),
        ("longbook_sum_eng", None),
        ("longbook_qa_chn", None),
        ("math_calc", None),
        ("code_run", None),
        ("mine", None),
    ],
)
def test_a_task_of_infinitebench_has_its_metric_or_is_refused(tmp_path, source_file, refused, task, metric):
    record = {**RECORDS["infinitebench"], "input": "", "answer": ["71432"], "options": []}
    args = ("infinitebench", "--source", source_file(f"{task}.jsonl", [record]))
    if metric:
        assert command(*args, "--out", tmp_path / "set") == 0
        assert open_tasks(tmp_path / "set").metric == metric
    else:
        refused(*args)


def test_the_first_number_counts():
    score = METRICS["first_number"]
    assert [score(text, ["71432"]) for text in ("It is 71432.", "171432", "", "1 or 71432")] == [1, 0, 0, 0]


def test_a_story_of_narrativeqa_is_one_document_and_both_answers_count(built):
    for suffix in (".jsonl", ".parquet"):
        (task,) = tasks = built("narrativeqa", RECORDS["narrativeqa"], suffix=suffix)
        assert contexts(tasks) == ["Ann built the dam. Bob built the mill."]
        assert (task.answers, tasks.metric) == ((("Ann", "Ann Lee did"),), "rouge_l")


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("the cat sat on the mat", ["the cat was on the mat"], 5 / 6),
        ("Ann", ["Ann Lee"], 2.44 * 0.5 / (0.5 + 1.44)),  # precision 1, recall 1/2
        ("Ann Lee the builder", ["Ann Lee"], 2.44 * 0.5 / (1 + 1.44 * 0.5)),
        ("Lee Ann", ["Ann Lee", "Ann"], 2.44 * 0.5 / (1 + 1.44 * 0.5)),  # precision 1/2, recall 1 of "Ann"
        ("Bob", ["Ann"], 0.0),
        ("", ["Ann"], 0.0),
    ],
)
def test_rouge_l_is_of_common_words_in_their_order(prediction, answers, score):
    assert METRICS["rouge_l"](prediction, answers) == pytest.approx(score)


def of_the_hub(paper):
    """A paper of QASPER as the hub has it: columns in the place of lists of objects."""

    def columns(rows):
        return {name: [row[name] for row in rows] for name in rows[0]}

    asked = [
        {"question": q["question"], "question_id": q["question_id"], "answers": columns(q["answers"])}
        for q in paper["qas"]
    ]
    return {"id": "1909.00694", **paper, "full_text": columns(paper["full_text"]), "qas": columns(asked)}


@pytest.mark.parametrize("hub", [False, True])
def test_qasper_is_read_by_sections_with_its_evidence(built, hub):
    record = RECORDS["qasper"]
    first, second = tasks = built("qasper", of_the_hub(record["1909.00694"]) if hub else record)
    assert tasks.titles(first.documents) == ["Dams", "Introduction", "Method"]
    assert tasks.needed_sentences(first) == [("Method", "We used a lexicon and a corpus.")]
    assert tasks.needed_sentences(second) == [("Introduction", "Dams are old.")]
    assert first.answers == (("lexicon, corpus", "A lexicon"),)
    assert second.answers == (("No", "Unanswerable"),)
    assert tasks.metric == "longbench_f1"
    assert (first.id, first.meta["paper"]) == ("q1", "1909.00694")


def test_answers_of_kilt_are_those_of_its_outputs(source_file, tmp_path):
    for name, metric in (("nq-dev-kilt.jsonl", "em"), ("wow-dev-kilt.jsonl", "longbench_f1")):
        path = source_file(name, [RECORDS["kilt"]])
        assert command("kilt", "--source", path, "--out", tmp_path / "set") == 0
        (task,) = tasks = open_tasks(tmp_path / "set")
        assert task.answers == (("Ann Lee", "A. Lee"),)
        assert (tasks.metric, tasks.card.environment) == (metric, "MemSearchQA-v0")


def test_eli5_is_refused_by_the_name_of_its_metric(source_file, refused):
    path = source_file("eli5-dev-kilt.jsonl", [RECORDS["kilt"]])
    assert "ROUGE-L" in refused("kilt", "--source", path)


def test_corpusqa_has_its_documents_and_that_nothing_fits_is_an_answer(built):
    record = RECORDS["corpusqa"]
    records = [
        record,
        {**record, "id": "2", "answer": []},
        {**record, "id": "3", "answer": [{"name": "Alder", "pupils": 310.0}, {"name": "Cy", "pupils": 5}]},
        {**record, "id": "4", "answer": "['Alder', 'Cy']"},
        {**record, "id": "5", "answer": 600.0},
        {**record, "id": "6", "answer": "[]"},
    ]
    tasks = built("corpusqa", *records)
    assert tasks.n_documents == 2
    assert contexts(tasks)[0] == (
        "# Document 1:\nThe Alder school has 310 pupils.\n\n# Document 2:\nThe Birch school has 290 pupils."
    )
    assert [task.answers[0] for task in tasks] == [
        ("Alder school",),
        ("none", "[]"),
        ("name: Alder, pupils: 310, name: Cy, pupils: 5",),
        ("Alder, Cy",),
        ("600", "600.0"),
        ("none", "[]"),
    ]
    assert tasks.metric == "f1"


def test_a_prompt_of_corpusqa_without_numbered_documents_is_one_document(built):
    text = "Reports of schools.\nAlder: 310 pupils."
    prompt = [
        {"role": "user", "content": f"{text}\n\n**Question**: {RECORDS['corpusqa']['question']}\nAnswer:"}
    ]
    assert contexts(built("corpusqa", {**RECORDS["corpusqa"], "prompt": prompt})) == [text]


# Records that cannot be used.

SUBSETS = [
    {**RECORDS["memoryagentbench"], "metadata": {"source": source}}
    for source in ("ruler_qa1_197K", "infbench_sum_eng_shots2")
]
NEEDED = {key: value for key, value in RECORDS["browsecomp_plus"].items() if key != "query_id"}
OBFUSCATED = {**hidden({**NEEDED, "query": NEEDED["query"] * 9}), "query_id": "769"}
UNUSED = [  # source, records, other arguments
    ("memagent", [RECORDS["memagent"], {**with_id(RECORDS["memagent"], 8), "context": "A text."}], ()),
    ("memagent", [RECORDS["memagent"]], ("--num-tasks", 2)),
    ("memagent", [RECORDS["memagent"]], ("--num-tasks", 0)),
    ("longbench", [{**RECORDS["longbench"], "dataset": "gov_report"}], ()),
    ("longmemeval", [{**RECORDS["longmemeval"], "question_type": "other"}], ()),
    ("longmemeval", [{**RECORDS["longmemeval"], "haystack_dates": ["2023/05/20 (Sat) 02:21"]}], ()),
    ("mrcr", [{**RECORDS["mrcr"], "random_string_to_prepend": "short"}], ()),
    ("mrcr", [{**RECORDS["mrcr"], "prompt": '[{"role": "user", "content": "Hello?"}]'}], ()),
    ("memoryagentbench", SUBSETS, ()),
    ("memoryagentbench", SUBSETS, ("--subset", "nope")),
    ("memoryagentbench", SUBSETS, ("--subset", "infbench_sum_eng_shots2")),  # a judge scores it
    ("browsecomp_plus", [OBFUSCATED], ()),
    ("browsecomp_plus", [OBFUSCATED], ("--canary", "another")),
]


@pytest.mark.parametrize(("name", "records", "args"), UNUSED)
def test_records_that_cannot_be_used_are_one_line(refused_records, name, records, args):
    assert refused_records(name, *records, args=args)
