"""Groups of episodes with given replies."""

from memenvs import collect
from memenvs.core.episode import Reply
from memenvs.rollout.policy import TurnPolicy
from memenvs.wrappers.scorers import LexicalScorer

AWAY = "ConnectionError: no scorer at http://node:8000"


class RecordingScorer(LexicalScorer):
    """The lexical scorer, which keeps its calls, and raises `AWAY` for texts that hold a word."""

    def __init__(self, word=None):
        super().__init__()
        self.word, self.calls = word, []

    def logprobs(self, requests):
        self.calls.append(list(requests))
        if self.word is not None and any(self.word in text for request in requests for text in request):
            raise ConnectionError(AWAY.removeprefix("ConnectionError: "))
        return super().logprobs(requests)


def play_group(env, *members, task=None, seed=0, **settings):
    """Episodes of one task, one for each member's list of replies.

    Args:
        env: as of `memenvs.collect`.
        members: the replies of each episode, turn by turn, texts or functions of the request. The last one is
            repeated.
        task: the task's number; by default the seed draws it.
        seed: of the episodes.
        settings: more arguments of `memenvs.collect`.
    """

    def reply(request):
        own = members[request.episode.member]
        said = own[min(len(request.episode.turns), len(own) - 1)]
        return Reply(said if isinstance(said, str) else said(request))

    return collect(env, TurnPolicy(reply), [seed], n=len(members), tasks=[task], **settings)


def gold(request):
    """What an agent that knows the answer would reply now."""
    return request.env.unwrapped.gold_reply()
