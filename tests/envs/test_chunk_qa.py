"""Chunked reading: what is shown, what is kept, what is scored."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from groups import gold, play_group

from memenvs.build.multi import MultiOptions, multi
from memenvs.build.niah import NiahOptions, niah
from memenvs.build.write import write_task_set
from memenvs.core.files import CARD
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.rollout.collect import collect
from memenvs.tasks.context import Reader
from memenvs.tasks.metrics import BOX_METRICS, METRICS
from memenvs.tasks.taskset import Card
from memenvs.tasks.tokens import load_tokenizer


@pytest.fixture
def make(small_set):
    return lambda **kwargs: ChunkQAEnv(**{"tasks": str(small_set.path), "chunk_size": 200, **kwargs})


def read_all(env, memory="memory", **reset):
    """Play to the answer turn; the observations and infos on the way."""
    seen = [env.reset(**reset)]
    while not env.answering:
        observation, _, _, _, info = env.step(memory)
        seen.append((observation, info))
    return seen


def section(observation):
    return observation.partition("<section>\n")[2].rpartition("\n</section>")[0]


def memory_of(observation):
    return observation.partition("<memory>\n")[2].partition("\n</memory>")[0]


@pytest.fixture(scope="module")
def sets(small_set, tmp_path_factory):
    """A set of single questions, one of three at once, one of needles, and one of a needle in noise."""
    tokenizer, folder = load_tokenizer("world"), tmp_path_factory.mktemp("sets")
    prose = small_set.texts(range(40))
    drafts = {
        "multi": multi(MultiOptions(source=[str(small_set.path)], objectives=3, num_tasks=4), tokenizer),
        "niah": niah(NiahOptions(variant="multivalue", num_tasks=4, tokens=900), tokenizer, prose),
        "noise": niah(NiahOptions(variant="single_1", num_tasks=2, tokens=800), tokenizer, ()),
    }
    made = {
        name: write_task_set(folder / name, draft, Card(name), tokenizer) for name, draft in drafts.items()
    }
    return {"single": str(small_set.path), **{name: str(one.path) for name, one in made.items()}}


@pytest.mark.parametrize("name", ["single", "multi", "niah"])
def test_gold_scores_one_by_every_metric_in_every_format(sets, name):
    formats = [(metric, "boxed") for metric in METRICS] + [
        (m, "tag") for m in METRICS if m not in BOX_METRICS
    ]
    for metric, answer_format in formats:
        env = ChunkQAEnv(sets[name], chunk_size=2000, metric=metric, answer_format=answer_format)
        for policy, outcome in (("gold", 1.0), ("silent", 0.0)):
            episodes = collect(env, policy, range(2), tasks=range(2))
            assert [episode.outcome for episode in episodes] == [outcome] * 2, (metric, answer_format)


def test_a_set_is_scored_by_its_own_metric_by_default(sets):
    def earned(**kwargs):
        env = ChunkQAEnv(sets["niah"], chunk_size=2000, **kwargs)
        _, info = read_all(env, options={"task": 0})[-1]
        return env.step(f"\\boxed{{{info['privileged']['answers'][0][1]}}}")[1]  # one of the four values

    assert earned() == 0.25
    assert earned(metric="em") == 1.0  # takes the values for alternatives


def test_the_metric_of_a_card_that_no_environment_knows_is_refused(small_set, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMENVS_VERIFY", "0")  # the card of a builder that knows more metrics
    copy = shutil.copytree(small_set.path, tmp_path / "set")
    card = json.loads((copy / CARD).read_text())
    (copy / CARD).write_text(json.dumps({**card, "metric": "bleu"}))
    with pytest.raises(ValueError):
        ChunkQAEnv(str(copy))


def asked(observation):
    return observation.partition("<question>\n")[2].partition("\n</question>")[0]


@pytest.fixture
def one_by_one(sets):
    return lambda ask="each", **kwargs: ChunkQAEnv(sets["multi"], chunk_size=2000, ask=ask, **kwargs)


def test_questions_are_asked_one_by_one_of_the_memory_that_the_reading_left(one_by_one):
    env = one_by_one()
    seen = read_all(env, memory="what I know", options={"task": 1})
    task = env.tasks[1]
    assert asked(seen[0][0]) == task.question == "; ".join(task.questions)
    observation = seen[-1][0]
    for question in task.questions:
        assert (asked(observation), memory_of(observation)) == (question, "what I know")
        assert "in the form \\boxed{…}." in observation
        observation, _, terminated, _, _ = env.step("no answer becomes a memory")
    assert terminated


def test_each_answer_pays_its_share_at_its_own_turn(one_by_one):
    env = one_by_one()
    seen = read_all(env, memory="some memory", options={"task": 1})
    first, _, third = (accepted[0] for accepted in env.tasks[1].answers)
    steps = [env.step(f"\\boxed{{{answer}}}") for answer in (first, "wrong", third)]
    assert [step[1] for step in steps] == [pytest.approx(1 / 3), 0.0, pytest.approx(1 / 3)]
    metrics = steps[-1][4]["metrics"]
    assert metrics["em"] == pytest.approx(2 / 3)
    assert (metrics["success"], metrics["format"]) == (0.0, 1.0)
    counts = load_tokenizer("world").counts([one[0] for one in (*seen, *steps[:-1])])
    assert metrics["turns"] == len(counts)
    assert metrics["prompt_tokens"] == pytest.approx(sum(counts), rel=0.02)
    together = one_by_one("together", metric="em")
    read_all(together, options={"task": 1})
    assert together.step(f"\\boxed{{{first}; wrong; {third}}}")[1] == pytest.approx(2 / 3)


def test_the_scoring_fields_are_those_of_the_question_asked_now(one_by_one):
    env = one_by_one()
    *_, (_, reading), (observation, info) = read_all(env, memory="notes", options={"task": 1})
    task = env.tasks[1]
    targets = [accepted[0] for accepted in task.answers]
    assert reading["privileged"]["target"] == "; ".join(targets)
    for question, target in zip(task.questions, targets, strict=True):
        told = info["privileged"]
        assert (told["question"], told["target"], told["answers"][0][0]) == (question, target, target)
        assert told["prompt_with_memory"] == observation
        assert all(evidence in told["teacher_prompt"] for evidence in told["evidence"])
        observation, _, _, _, info = env.step(f"\\boxed{{{target}}}")
        assert info["privileged"]["answered"]
        assert info["privileged"]["reply"] == f"\\boxed{{{target}}}"
    assert info["privileged"]["target"] == "; ".join(targets)  # all together again, for InfoMem


def test_questions_asked_later_are_not_shown_while_the_text_is_read(one_by_one):
    env = one_by_one(
        "later", template={"read": "{question}|{memory}|{chunk}", "answer": "{question}|{memory}"}
    )
    *reading, (answer, _) = read_all(env, options={"task": 1})
    questions = env.tasks[1].questions
    assert all(one.startswith("3 questions will be shown later") for one, _ in reading)
    assert answer.partition("|")[0] == questions[0]


def test_a_group_is_credited_question_by_question(sets):
    def second_question_unanswered(request):
        env = request.env.unwrapped
        return "" if env.state.turn - len(env._reading.chunks) == 1 else env.gold_reply()

    group = play_group(
        "MemChunkQA-v0",
        [gold],
        [second_question_unanswered],
        env_args={"tasks": sets["multi"], "chunk_size": 2000, "ask": "each"},
        methods=["QuestionCredit"],
    )
    right, wrong = ([credit.value for credit in one.credits["question_credit"]] for one in group)
    half = 0.5**0.5  # both answered the first question and the third, one the second
    np.testing.assert_allclose(right[-3:], [0.0, half, 0.0], atol=1e-4)
    np.testing.assert_allclose(wrong[-3:], [0.0, -half, 0.0], atol=1e-4)
    assert right[0] == pytest.approx(half / 3, abs=1e-4)
    assert [one.outcome for one in group] == [pytest.approx(1.0), pytest.approx(2 / 3)]


@pytest.mark.parametrize("ask", ["each", "later"])
def test_several_answers_to_one_question_cannot_be_asked_one_by_one(small_set, tmp_path, ask):
    tokenizer = load_tokenizer("world")
    draft = multi(MultiOptions(source=[str(small_set.path)], objectives=2, num_tasks=2), tokenizer)
    draft = replace(draft, tasks=[replace(task, question="Which codes are there?") for task in draft.tasks])
    path = write_task_set(tmp_path / "set", draft, Card("multi"), tokenizer).path
    with pytest.raises(ValueError) as error:
        ChunkQAEnv(str(path), ask=ask)
    assert "\n" not in str(error.value)


def test_the_sections_joined_are_the_context_and_the_answer_turn_shows_none(make, small_set):
    env = make()
    *reading, (answer, _) = read_all(env, options={"task": 4})
    context = env._reading.context.text
    assert "".join(section(observation) for observation, _ in reading) == context
    assert context not in answer
    assert "<section>" not in answer


def test_the_rollouts_of_a_task_share_its_text(make, monkeypatch):
    texts = []
    read = Reader.context
    monkeypatch.setattr(Reader, "context", lambda *args: texts.append(read(*args)) or texts[-1])
    first, second, other = make(chunk_size=210), make(chunk_size=210), make(chunk_size=211)
    observations = [env.reset(options={"task": 1})[0] for env in (first, second, first, other)]
    assert len(texts) == 2  # one for each size of a chunk
    assert observations[0] == observations[1] == observations[2]


def test_a_memory_over_the_limit_is_cut_at_a_token_behind_the_thought_and_counted(make):
    env = make(max_memory=10)
    env.reset(seed=0)
    text = "many words " * 20
    observation, *_, info = env.step("<think>" + "hm " * 100 + "</think>" + text)
    kept, tokenizer = memory_of(observation), load_tokenizer("world")
    assert text.startswith(kept)
    assert tokenizer.count(kept) <= 10 < tokenizer.count(kept + " words many")
    assert info["privileged"]["memory_span"][0] == len("<think>" + "hm " * 100 + "</think>")
    while not env.state.end:
        info = env.step("short")[4]
    assert info["metrics"]["memory_overflow"] == 1.0


@pytest.mark.parametrize(
    ("thoughts", "reply", "memory"),
    [
        ("strip", "<think>Is it her?</think>\n\nShe was.", "She was."),
        ("strip", "Is it her?</think> She was.", "She was."),  # the chat template wrote <think>
        ("strip", "<think>Is it h", ""),  # cut: no memory
        ("strip", "She <think>?</think> was.", "She <think>?</think> was."),  # it does not open the reply
        ("strip", "<think><think>Is it</think>She was.", "She was."),
        ("opened", "Is it h", ""),
        ("opened", "Is it <think>her?</think>She was.", "She was."),
        ("keep", "<think>Is it her?</think> She was.", "<think>Is it her?</think> She was."),
    ],
)
def test_the_thought_that_opens_a_reply_is_no_memory(make, thoughts, reply, memory):
    env = make(thoughts=thoughts)
    env.reset(seed=0)
    observation, _, _, _, info = env.step(reply)
    assert memory_of(observation) == info["privileged"]["memory"] == memory
    span = info["privileged"]["memory_span"]
    assert (reply[slice(*span)] if span else "") == memory


@pytest.mark.parametrize(
    ("thoughts", "reply", "outcome"),
    [
        ("strip", "<think>perhaps \\boxed{GOLD}</think> I do not know.", 0.0),
        ("strip", "<think>" + "hm " * 2000 + "</think>\\boxed{GOLD}", 1.0),
        ("keep", "<think>perhaps \\boxed{GOLD}</think> I do not know.", 1.0),
    ],
)
def test_an_answer_counts_behind_the_thought_only(make, thoughts, reply, outcome):
    env = make(thoughts=thoughts)
    _, info = read_all(env, seed=0)[-1]
    gold = info["privileged"]["answers"][0][0]
    _, reward, _, _, info = env.step(reply.replace("GOLD", gold))
    assert reward == outcome
    assert ("<think>" in info["privileged"]["reply"]) == (thoughts == "keep")
    assert info["privileged"]["memory_span"] is None


@pytest.mark.parametrize(
    ("arguments", "reply", "outcome"),
    [
        ({}, "It is \\boxed{21}.", 1.0),
        ({}, "\\boxed{number 21}", 1.0),
        ({}, "21", 0.0),
        ({}, "<answer>21</answer>", 0.0),
        ({"answer_format": "tag"}, "<answer>21</answer>", 1.0),
        ({"answer_format": "tag"}, "\\boxed{21}", 0.0),
        ({"max_answer": 20}, "very long " * 30 + "\\boxed{21}", 0.0),
        ({"metric": "em"}, "\\boxed{code 21}", 0.0),
        ({"metric": "f1"}, "\\boxed{code 21}", pytest.approx(2 / 3)),
        ({"metric": "sub_em"}, "\\boxed{code 21}", 1.0),
        ({"metric": "string_match_part"}, "the code is 21", 1.0),
        ({"metric": "string_match_all"}, "the code is 21", 0.5),  # one of the two accepted answers
    ],
)
def test_the_outcome_is_the_metric_of_the_answer_in_its_format(make, arguments, reply, outcome):
    env = make(**arguments)
    read_all(env, memory="\\boxed{21}", options={"task": 3})  # a memory earns nothing
    _, reward, terminated, truncated, info = env.step(reply)
    assert (reward, terminated, truncated) == (outcome, True, False)
    assert info["metrics"]["success"] == (outcome == 1.0)


def test_evidence_is_whole_in_all_and_in_parts_in_the_chunks(make, small_set):
    seen = read_all(make(chunk_size=64), options={"task": 5})
    whole = small_set.document_texts(small_set[5].evidence)
    assert seen[0][1]["privileged"]["evidence"] == whole
    parts = "".join(sorted("".join(info["privileged"]["evidence_in_chunk"]) for _, info in seen))
    assert len(parts) == sum(map(len, whole))
    assert all(
        part in section(observation)
        for observation, info in seen
        for part in info["privileged"]["evidence_in_chunk"]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"template": "short"},
        {"template": {"read": "\U0001f600 {memory} {question}\n{chunk}\n\n{chunk}"}},
        {"memory_mode": "structured"},
        {"memory_mode": "mem1", "ask": "later"},
        {"memory_mode": "react"},
    ],
)
def test_the_chunk_span_is_where_the_observation_shows_the_chunk(make, arguments):
    seen = read_all(make(**arguments), memory="ADD: it", options={"task": 5})
    spans = [info["privileged"]["chunk_span"] for _, info in seen]
    shown = [observation[slice(*span)] for (observation, _), span in zip(seen, spans[:-1], strict=False)]
    assert shown == [section(observation) for observation, _ in read_all(make(), options={"task": 5})[:-1]]
    assert spans[-1] is None


def test_depths_are_where_the_evidence_begins(make):
    env = make()
    _, info = env.reset(options={"task": 5})
    text = env._reading.context.text
    for depth, evidence in zip(info["privileged"]["depths"], info["privileged"]["evidence"], strict=True):
        assert text[round(depth * len(text)) :].startswith(evidence)


def test_nothing_privileged_is_said_in_the_answer_prompt(make):
    answer, info = read_all(make(), memory="", options={"task": 33})[-1]
    assert "231" not in answer
    assert info["privileged"]["answers"] == [["231", "number 231"]]


def test_fewer_documents_keep_the_evidence_and_the_order(make, small_set, sets):
    env = make(n_documents=6)
    env.reset(seed=3, options={"task": 8})
    documents, task = env.state.documents, small_set[8]
    assert len(documents) == 6
    assert set(task.evidence) <= set(documents)
    assert list(documents) == [document for document in task.documents if document in documents]
    env.reset(seed=4, options={"task": 8})
    assert env.state.documents != documents
    env = ChunkQAEnv(sets["noise"], n_documents=10)  # whose haystack repeats its few documents
    env.reset(seed=0, options={"task": 0})
    assert len(env.state.documents) == 10
    assert env.tasks[0].evidence[0] in env.state.documents


def test_another_template_is_used_and_its_braces_kept(make):
    template = {"read": "{question}|{memory}|{chunk}|{}", "answer": "Q {question} M {memory} \\boxed{}"}
    env = make(template=template, chunk_size=10_000)
    observation, _ = env.reset(options={"task": 3})
    assert observation == f"What is the code of Thing 3?||{env._reading.context.text}|{{}}"
    assert env.step("{question}")[0] == "Q What is the code of Thing 3? M {question} \\boxed{}"


@pytest.mark.parametrize(
    "kwargs",
    [
        {"n_documents": 1},
        {"ask": "all"},
        {"metric": "boxed_em", "answer_format": "tag"},
        {"tokenizer": "/no/such"},
        {"template": "long"},
        {"template": {"read": "{question}"}},
        {"template": {"write": ""}},
        {"memory_mode": "mem1", "thoughts": "keep"},
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(make, kwargs, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError) as error:
        make(**kwargs)
    assert "\n" not in str(error.value)
