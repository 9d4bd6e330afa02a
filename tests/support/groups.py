"""Groups of episodes with given replies."""

from memenvs import collect
from memenvs.core.episode import Reply
from memenvs.rollout.policy import TurnPolicy


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
