"""Conversations like MRCR's: recomputed from the text, their budgets and errors."""

import re

import pytest

from memenvs.build.conversations import ConversationOptions, conversations
from memenvs.tasks.metrics import mrcr_ratio
from memenvs.tasks.tokens import load_tokenizer

PROSE = tuple(
    " ".join(f"Line {i} of text {j} tells of {i * j + 3} ships and a {w}." for i in range(1, 30))
    for j, w in enumerate(("storm", "harbour", "lamp", "cold night"))
)


def talk(needles=4, count=12, tokens=2500, split="train", seed=5, tokenizer=None, prose=PROSE):
    tokenizer = tokenizer or load_tokenizer()
    options = ConversationOptions(needles=needles, num_tasks=count, tokens=tokens, split=split, seed=seed)
    return conversations(options, tokenizer, prose)


def text(draft, task):
    return "".join(draft.documents.texts[number] for number in task.documents)


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
