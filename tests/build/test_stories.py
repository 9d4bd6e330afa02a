"""Conversations like MRCR's and stories like bAbI's: recomputed from the text, their budgets and errors."""

import re

import pytest
from build_command import command, one_line

from memenvs.build.stories import KINDS, PEOPLE, conversations, stories
from memenvs.tasks.metrics import em, mrcr_ratio
from memenvs.tasks.tokens import load_tokenizer

PROSE = tuple(
    " ".join(f"Line {i} of text {j} tells of {i * j + 3} ships and a {w}." for i in range(1, 30))
    for j, w in enumerate(("storm", "harbour", "lamp", "cold night"))
)
MOVED = re.compile(r"(\w+) went to the (\w+)\.")
TOOK = re.compile(r"(\w+) picked up the (\w+)\.")
LEFT = re.compile(r"(\w+) put down the (\w+)\.")


def talk(needles=4, count=12, tokens=2500, split="train", seed=5, tokenizer=None, prose=PROSE):
    tokenizer = tokenizer or load_tokenizer()
    return conversations(
        needles=needles, count=count, tokens=tokens, prose=prose, tokenizer=tokenizer, split=split, seed=seed
    )


def tell(kinds=KINDS, count=60, tokens=900, split="train", seed=5, tokenizer=None, prose=PROSE, events=16):
    tokenizer = tokenizer or load_tokenizer()
    return stories(
        kind=kinds, events=events, count=count, tokens=tokens, prose=prose, tokenizer=tokenizer,
        split=split, seed=seed,
    )  # fmt: skip


def text(draft, task):
    return "".join(draft.documents.texts[number] for number in task.documents)


# --- conversations


def replies(draft, task):
    """(form, topic) and reply of each round, read from the text."""
    found = re.findall(r"User: Write a ([a-z ]+) about the (\w+)\.\nAssistant: (.+)\n", text(draft, task))
    return [((form, topic), reply) for form, topic, reply in found]


@pytest.mark.parametrize("needles", [2, 8])
def test_the_answer_is_the_reply_that_the_question_numbers(needles):
    draft = talk(needles)
    ordinals = "first second third fourth fifth sixth seventh eighth".split()
    for task in draft.tasks:
        asked = re.fullmatch(
            r"Write (\w{10}) and right behind it, word for word, the (\w+) ([a-z ]+) about the (\w+) "
            r"that the assistant wrote, and nothing else\.",
            task.question,
        )
        own = [reply for request, reply in replies(draft, task) if request == (asked[3], asked[4])]
        assert len(own) == needles == task.meta["needles"]
        assert task.answers == ((asked[1] + own[ordinals.index(asked[2])],),)
        assert task.meta["asked"] == ordinals.index(asked[2]) + 1
        assert len(set(own)) == needles


def test_a_text_is_requests_and_replies_in_turn_and_others_share_form_or_topic():
    draft = talk(tokens=20_000, count=3)
    for task in draft.tasks:
        rounds = replies(draft, task)
        assert 2 * len(rounds) == len(task.documents) == text(draft, task).count("\n")
        form, topic = task.meta["request"]
        others = [request for request, _ in rounds if request != (form, topic)]
        assert any(one[0] == form for one in others)
        assert any(one[1] == topic for one in others)


def test_the_evidence_of_a_conversation_is_the_request_and_its_reply():
    draft = talk()
    for task in draft.tasks:
        request, reply = (draft.documents.texts[number] for number in task.evidence)
        assert request == "User: Write a {} about the {}.\n".format(*task.meta["request"])
        assert reply == f"Assistant: {task.answers[0][0][10:]}\n"
        assert task.documents.index(task.evidence[1]) == task.documents.index(task.evidence[0]) + 1


def test_recorded_depths_of_a_conversation_are_where_the_equal_requests_begin():
    draft = talk()
    for task in draft.tasks:
        whole, said = text(draft, task), "User: Write a {} about the {}.\n".format(*task.meta["request"])
        found = [match.start() / len(whole) for match in re.finditer(re.escape(said), whole)]
        assert task.meta["depths"] == pytest.approx(found)


def test_a_reply_without_the_random_string_scores_nothing_and_another_needle_less():
    draft = talk()
    assert draft.metric == "mrcr_ratio"
    for task in draft.tasks:
        ((answer,),) = task.answers
        own = [reply for request, reply in replies(draft, task) if [*request] == task.meta["request"]]
        assert mrcr_ratio(answer, [answer]) == 1.0
        assert mrcr_ratio(answer[10:], [answer]) == mrcr_ratio("", [answer]) == 0.0
        other = next(reply for reply in own if reply != answer[10:])
        assert mrcr_ratio(answer[:10] + other, [answer]) < 1.0


def test_every_place_is_asked_for():
    assert {task.meta["asked"] for task in talk(3, count=40).tasks} == {1, 2, 3}


# --- stories


def retold(draft, task):
    """Where each thing has been, where people are and what they carry, from the text alone."""
    at, carried, been = {}, {}, {}
    for number in task.documents:
        line = draft.documents.texts[number].strip()
        if found := MOVED.fullmatch(line):
            at[found[1]] = found[2]
            for thing in (thing for thing, who in carried.items() if who == found[1]):
                been[thing].append(found[2])
        elif found := TOOK.fullmatch(line):
            who, thing = found.groups()
            assert thing not in carried
            assert thing not in been or been[thing][-1] == at[who]  # it lies where it is taken
            carried[thing] = who
            if thing not in been:
                been[thing] = [at[who]]
        elif found := LEFT.fullmatch(line):
            assert carried.pop(found[2]) == found[1]
    return at, carried, been


def answer_of(question, at, carried, been):
    if found := re.fullmatch(r"Where is (\w+) at the end\?", question):
        return at[found[1]]
    if found := re.fullmatch(r"Where is the (\w+) at the end\?", question):
        return been[found[1]][-1]
    if found := re.fullmatch(r"Where was the (\w+) before it came to the (\w+)\?", question):
        assert been[found[1]].count(found[2]) == 1
        assert been[found[1]][-1] == found[2]
        return been[found[1]][-2]
    if found := re.fullmatch(r"Is (\w+) in the (\w+) at the end\?", question):
        return "yes" if at[found[1]] == found[2] else "no"
    person = re.fullmatch(r"How many things does (\w+) carry at the end\?", question)[1]
    return str([*carried.values()].count(person))


def test_answers_are_those_of_the_text_read_from_top_to_bottom():
    draft = tell(count=200)
    assert [task.meta["type"] for task in draft.tasks[:5]] == list(KINDS)
    for task in draft.tasks:
        assert em(answer_of(task.question, *retold(draft, task)), task.answers[0]), task.question


def test_the_evidence_alone_gives_the_answer():
    draft = tell(("qa1", "qa2", "qa6"), count=90)
    for task in draft.tasks:
        needed = [draft.documents.texts[number].strip() for number in task.evidence]
        place = [found[2] for found in map(MOVED.fullmatch, needed) if found][-1]
        if task.meta["type"] == "qa6":
            asked = re.search(r"in the (\w+) at", task.question)[1]
            place = "yes" if place == asked else "no"
        assert task.answers[0] == (place,)
        assert task.meta["hops"] == len(needed)


def test_questions_of_places_before_need_at_least_three_events():
    hops = [task.meta["hops"] for task in tell(("qa3",), count=40).tasks]
    assert min(hops) >= 3


def test_events_are_spread_over_the_prose_in_their_order():
    draft = tell(("qa7",), count=60, tokens=3000)
    depths = [depth for task in draft.tasks for depth in task.meta["depths"]]
    assert min(depths) < 0.25
    assert max(depths) > 0.75
    assert all(task.meta["depths"] == sorted(task.meta["depths"]) for task in draft.tasks)


def test_names_of_the_prose_are_not_used():
    prose = (*PROSE, " ".join(f"{name} is here." for name in PEOPLE[:18]))
    draft = tell(prose=prose)
    people = {found[1] for task in draft.tasks for found in MOVED.finditer(text(draft, task))}
    assert people <= set(PEOPLE[18:])


# --- what both have in common


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["mrcr_world", "--tokens", 100],
            "budget of 100 tokens is too small for 4 needles: they alone take",
        ),
        (["mrcr_world", "--tokens", 900, "--needles", 9], "needles must be a whole number, at least 2"),
        (["babi_world", "--tokens", 60], "budget of 60 tokens is too small for 16 events: they alone take"),
        (["babi_world", "--tokens", 900, "--events", 2], "events must be a whole number, at least 4"),
        (["mrcr_world", "--tokens", 900, "--essays", "nowhere"], "no *.txt in nowhere"),
    ],
)
def test_what_cannot_be_built_is_one_line_and_leaves_nothing(tmp_path, capsys, args, said):
    assert command(*args, "--num-tasks", 3, "--out", tmp_path / "o") == 2
    assert said in one_line(capsys)
    assert not (tmp_path / "o").exists()
