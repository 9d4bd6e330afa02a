"""Chunked reading: what is shown, what is kept, what is scored."""

import json
import shutil
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from memenvs import TextVectorEnv
from memenvs.build.multi import multi
from memenvs.build.niah import niah
from memenvs.build.write import write_task_set
from memenvs.envs.chunk_qa import WORDINGS, ChunkQAEnv
from memenvs.rollout.scripted import make_policy, play_tasks
from memenvs.tasks.metrics import BOX_METRICS, METRICS
from memenvs.tasks.taskset import CARD, Card
from memenvs.tasks.tokens import load_tokenizer
from memenvs.wrappers import VectorRewardWrapper


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
    """A set of single questions, one of three at once, and one of needles."""
    tokenizer, folder = load_tokenizer("world"), tmp_path_factory.mktemp("sets")
    chance = {"tokenizer": tokenizer, "split": "train", "seed": 0}
    prose = small_set.texts(range(40))
    several = multi([small_set], objectives=3, count=4, **chance)
    needles = niah(variant="multivalue", count=4, tokens=900, prose=prose, **chance)
    made = {"single": str(small_set.path)}
    for name, draft in (("multi", several), ("niah", needles)):
        made[name] = str(write_task_set(folder / name, draft, Card(name), tokenizer).path)
    return made


@pytest.mark.parametrize("name", ["single", "multi", "niah"])
@pytest.mark.parametrize(
    ("metric", "answer_format"),
    [(metric, "boxed") for metric in METRICS] + [(m, "tag") for m in METRICS if m not in BOX_METRICS],
)
def test_gold_scores_one_by_every_metric_in_every_format(sets, name, metric, answer_format):
    env = ChunkQAEnv(sets[name], chunk_size=2000, metric=metric, answer_format=answer_format)
    returns = {p: play_tasks(env, make_policy(p, env), range(4))["return"] for p in ("gold", "silent")}
    assert returns == {"gold": [1.0] * 4, "silent": [0.0] * 4}


@pytest.mark.parametrize("metric", ["boxed_em", "math_em"])
def test_a_metric_that_reads_a_box_is_refused_with_another_format(make, metric):
    with pytest.raises(ValueError, match="answer_format='boxed'"):
        make(metric=metric, answer_format="tag")


def test_a_set_is_scored_by_its_own_metric_unless_told_otherwise(sets):
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
    with pytest.raises(ValueError, match="no metric 'bleu'"):
        ChunkQAEnv(str(copy))


@pytest.mark.parametrize("metric", ["em", "boxed_em", "math_em"])
def test_each_of_several_answers_counts_in_its_place(sets, metric):
    env = ChunkQAEnv(sets["multi"], chunk_size=2000, metric=metric)
    _, info = read_all(env, options={"task": 1})[-1]
    first, _, third = (accepted[0] for accepted in info["privileged"]["answers"])
    assert env.step(f"\\boxed{{{first}; wrong; {third}}}")[1] == pytest.approx(2 / 3)


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
    read_all(env, options={"task": 1})
    first, _, third = (accepted[0] for accepted in env.tasks[1].answers)
    steps = [env.step(f"\\boxed{{{answer}}}") for answer in (first, "wrong", third)]
    assert [step[1] for step in steps] == [pytest.approx(1 / 3), 0.0, pytest.approx(1 / 3)]
    info = steps[-1][4]
    assert info["metrics"]["em"] == pytest.approx(2 / 3)
    assert (info["metrics"]["success"], info["metrics"]["format"]) == (0.0, 1.0)
    assert info["metrics"]["turns"] == len(info["turn_rewards"])


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
    assert env.observation_space.contains(reading[0][0])


def test_the_tokens_of_prompts_are_counted_for_each_question(one_by_one):
    env = one_by_one()
    observations = [one for one, _ in read_all(env, memory="some memory of it", options={"task": 1})]
    for _ in range(3):
        observation, _, over, _, info = env.step("x")
        observations += [] if over else [observation]
    counts = load_tokenizer("world").counts(observations)
    assert info["metrics"]["prompt_tokens"] == pytest.approx(sum(counts), rel=0.02)


def test_a_state_between_two_questions_goes_on_from_there(one_by_one):
    env, other = one_by_one(), one_by_one()
    read_all(env, options={"task": 1})
    env.step("first")
    state = env.get_state()
    other.set_state(state)
    assert other.step("second")[0] == env.step("second")[0]


def test_a_group_is_credited_question_by_question(sets):
    venv = TextVectorEnv(
        "MemChunkQA-v0", 2, autoreset_mode="Disabled", tasks=sets["multi"], chunk_size=2000, ask="each"
    )
    host = VectorRewardWrapper(venv, ["QuestionCredit"], group_size=2)
    host.reset(seed=0)
    over = np.zeros(2, bool)
    while not over.all():
        gold = [env.unwrapped.gold_reply() for env in venv.envs]
        answers = venv.envs[1].unwrapped.episode.turn - len(venv.envs[1].unwrapped._reading.chunks)
        _, _, terminated, truncated, _ = host.step([gold[0], "" if answers == 1 else gold[1]], mask=~over)
        over |= terminated | truncated
    (group,) = host.completed_groups
    right, wrong = ([credit.value for credit in one.credits["question_credit"]] for one in group)
    half = 0.5**0.5  # both answered the first question and the third, one the second
    np.testing.assert_allclose(right[-3:], [0.0, half, 0.0], atol=1e-4)
    np.testing.assert_allclose(wrong[-3:], [0.0, -half, 0.0], atol=1e-4)
    assert right[0] == pytest.approx(half / 3, abs=1e-4)
    assert [one.outcome for one in group] == [pytest.approx(1.0), pytest.approx(2 / 3)]


@pytest.mark.parametrize("ask", ["each", "later"])
def test_several_answers_to_one_question_cannot_be_asked_one_by_one(small_set, tmp_path, ask):
    tokenizer = load_tokenizer("world")
    draft = multi([small_set], objectives=2, count=2, tokenizer=tokenizer, split="train", seed=0)
    draft = replace(draft, tasks=[replace(task, question="Which codes are there?") for task in draft.tasks])
    path = write_task_set(tmp_path / "set", draft, Card("multi"), tokenizer).path
    with pytest.raises(ValueError, match="several answers to one question") as error:
        ChunkQAEnv(str(path), ask=ask)
    assert "\n" not in str(error.value)


def test_the_answer_prompt_says_how_many_answers_in_what_order_and_how_parted(sets):
    (*_, (several, _)), (*_, (one, _)) = (
        read_all(ChunkQAEnv(sets[name], chunk_size=2000), options={"task": 0}) for name in ("multi", "single")
    )
    said = '\\boxed{…; …; …}: 3 answers in the order of the questions, separated by ";".'
    assert several.rstrip().endswith(f"in the form {said}")
    assert one.rstrip().endswith("in the form \\boxed{…}.")


def test_the_sections_joined_are_the_context_and_the_answer_turn_shows_none(make, small_set):
    env = make()
    *reading, (answer, _) = read_all(env, options={"task": 4})
    context = env._reading.context.text
    assert "".join(section(observation) for observation, _ in reading) == context
    assert context not in answer
    assert "<section>" not in answer


def test_the_memory_is_the_last_reply_and_nothing_else_is_carried(make):
    env = make()
    env.reset(seed=0)
    second = env.step("first memory")[0]
    third = env.step("second memory")[0]
    assert memory_of(second) == "first memory"
    assert memory_of(third) == "second memory"
    assert "first memory" not in third


def test_an_empty_memory_stays_empty(make):
    env = make()
    env.reset(seed=0)
    env.step("something")
    assert memory_of(env.step("")[0]) == ""


def test_a_memory_over_the_limit_is_cut_at_a_token_and_counted(make):
    env = make(max_memory=10)
    env.reset(seed=0)
    text = "many words " * 20
    kept = memory_of(env.step(text)[0])
    tokenizer = load_tokenizer("world")
    assert text.startswith(kept)
    assert tokenizer.count(kept) <= 10 < tokenizer.count(kept + " words many")
    while not env.episode.end:
        info = env.step("short")[4]
    assert info["metrics"]["memory_overflow"] == 1.0


@pytest.mark.parametrize(
    ("thoughts", "reply", "memory"),
    [
        ("strip", "<think>Is it her?</think>\n\nShe was.", "She was."),
        ("strip", "Is it her?</think> She was.", "She was."),  # the chat template wrote <think>
        ("strip", "<think>Is it h", ""),  # cut: no memory
        ("strip", "She <think>?</think> was.", "She <think>?</think> was."),  # it does not open the reply
        ("opened", "Is it h", ""),
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


def test_the_limit_of_a_memory_does_not_count_the_thought(make):
    env = make(max_memory=5)
    env.reset(seed=0)
    reply = "<think>" + "hm " * 100 + "</think>" + "a memory of many words " * 5
    start, end = env.step(reply)[4]["privileged"]["memory_span"]
    assert start == reply.index("</think>") + len("</think>")
    assert 0 < env.tokenizer.count(reply[start:end]) <= 5
    assert env.episode.overflows == 1


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


def test_what_stands_behind_max_answer_does_not_count(make):
    env = make(max_answer=20)
    read_all(env, options={"task": 3})
    assert env.step("very long " * 30 + "\\boxed{21}")[1] == 0.0


@pytest.mark.parametrize(
    ("answer_format", "reply", "outcome"),
    [
        ("boxed", "It is \\boxed{21}.", 1.0),
        ("boxed", "\\boxed{number 21}", 1.0),
        ("boxed", "21", 0.0),
        ("boxed", "<answer>21</answer>", 0.0),
        ("tag", "<answer>21</answer>", 1.0),
        ("tag", "\\boxed{21}", 0.0),
    ],
)
def test_the_answer_counts_in_its_format(make, answer_format, reply, outcome):
    env = make(answer_format=answer_format)
    read_all(env, options={"task": 3})
    _, reward, terminated, truncated, info = env.step(reply)
    assert (reward, terminated, truncated) == (outcome, True, False)
    assert info["metrics"]["success"] == outcome


def test_an_answer_given_while_reading_earns_nothing(make):
    env = make()
    read_all(env, memory="\\boxed{21}", options={"task": 3})
    assert env.step("I said it before")[1] == 0.0


@pytest.mark.parametrize(
    ("metric", "reply", "outcome"),
    [
        ("em", "\\boxed{code 21}", 0.0),
        ("f1", "\\boxed{code 21}", pytest.approx(2 / 3)),
        ("sub_em", "\\boxed{code 21}", 1.0),
        ("boxed_em", "\\boxed{21}", 1.0),
        ("math_em", "\\boxed{21}", 1.0),
        ("string_match_part", "the code is 21", 1.0),
        ("string_match_all", "the code is 21", 0.5),  # one of the two accepted answers is contained
    ],
)
def test_the_outcome_is_the_metric_asked_for(make, metric, reply, outcome):
    env = make(metric=metric)
    read_all(env, options={"task": 3})
    assert env.step(reply)[1] == outcome


def test_evidence_is_whole_in_all_and_in_parts_in_the_chunks(make, small_set):
    seen = read_all(make(chunk_size=64), options={"task": 5})
    whole = small_set.shown(small_set[5].evidence)
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


def test_prompt_tokens_are_those_of_the_observations(make):
    env = make()
    seen = read_all(env, memory="some memory of it", seed=2)
    info = env.step("x")[4]
    counts = load_tokenizer("world").counts([observation for observation, _ in seen])
    assert info["metrics"]["turns"] == len(counts)
    assert info["metrics"]["prompt_tokens"] == pytest.approx(sum(counts), rel=0.02)  # seams between parts
    assert info["metrics"]["prompt_tokens_peak"] == pytest.approx(max(counts), rel=0.02)


def test_fewer_documents_keep_the_evidence_and_the_order(make, small_set):
    env = make(n_documents=6)
    env.reset(seed=3, options={"task": 8})
    documents, task = env.episode.documents, small_set[8]
    assert len(documents) == 6
    assert set(task.evidence) <= set(documents)
    assert list(documents) == [document for document in task.documents if document in documents]
    env.reset(seed=4, options={"task": 8})
    assert env.episode.documents != documents


def test_fewer_documents_are_as_many_as_asked_for_where_the_haystack_repeats_some(tmp_path):
    tokenizer = load_tokenizer("world")
    hay = niah(variant="single_1", count=2, tokens=800, prose=(), tokenizer=tokenizer, split="train", seed=0)
    tasks = write_task_set(tmp_path / "noise", hay, Card("niah"), tokenizer)
    assert len(set(tasks[0].documents)) < 10 < len(tasks[0].documents)
    env = ChunkQAEnv(str(tasks.path), n_documents=10)
    env.reset(seed=0, options={"task": 0})
    assert len(env.episode.documents) == 10
    assert tasks[0].evidence[0] in env.episode.documents


def test_the_short_wording_shows_the_memory_behind_the_section(make):
    env = make(template="short")
    observation, info = env.reset(seed=0)
    observation, _, _, _, _ = env.step("what was noted")
    asked = (
        WORDINGS["short"]["read"].rpartition("\n\n")[2].replace("{question}", info["privileged"]["question"])
    )
    assert observation.endswith("Notes:\nwhat was noted\n\n" + asked)
    assert info["privileged"]["teacher_prompt"].startswith("Text:\n")
    with pytest.raises(ValueError, match="template must be 'short'"):
        make(template="long")


def test_another_template_is_used_and_its_braces_kept(make):
    template = {"read": "{question}|{memory}|{chunk}|{x}", "answer": "Q {question} M {memory} \\boxed{}"}
    env = make(template=template, chunk_size=10_000)
    observation, _ = env.reset(options={"task": 3})
    assert observation == f"What is the code of Thing 3?||{env._reading.context.text}|{{x}}"
    assert env.step("{question}")[0] == "Q What is the code of Thing 3? M {question} \\boxed{}"


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"chunk_size": 0}, "chunk_size must be a whole number, at least 1, got 0"),
        ({"n_documents": 1}, "n_documents=1"),
        ({"ask": "all"}, "together, each, later"),
        ({"metric": "bleu"}, "string_match_all"),
        ({"tokenizer": "/no/such"}, "tokenizer"),
        ({"template": {"read": "{question}"}}, "{memory}"),
        ({"template": {"write": ""}}, "'read' and 'answer'"),
    ],
)
def test_a_wrong_argument_is_one_line_at_the_door(make, kwargs, said, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError) as error:
        make(**kwargs)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "answer", ["{memory}" * 3 + "{question}", "{question}{memory}" + "y" * 50_000, "{question}{memory}"]
)
def test_observations_stay_in_the_space_with_any_template(make, answer):
    env = make(template={"read": "{question}{memory}{chunk}", "answer": answer}, max_memory=500)
    for observation, _ in read_all(env, memory="many words " * 1000, seed=0):
        assert env.observation_space.contains(observation)


def test_the_space_is_no_longer_than_the_template_and_the_set_ask_for(make, small_set):
    env = make(template={"read": "{chunk}{question}{memory}", "answer": "{question}{memory}"}, max_memory=10)
    counts = small_set.card.counts
    assert env.observation_space.max_chars == counts["max_chars"] + counts["max_question_chars"] + 16 * 10


def test_the_lexical_policy_beats_random_text_on_the_bundled_world():
    env = gym.make("MemChunkQA-v0", tasks="world-test")
    f1 = {
        name: sum(play_tasks(env, make_policy(name, env), range(40))["f1"]) / 40
        for name in ("lexical", "random_text")
    }
    assert f1["lexical"] > f1["random_text"] + 0.05
