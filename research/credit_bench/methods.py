"""The methods of the bench: rollouts of a world as the suite's records, with credit by the suite's methods.

A reply is one token. Records are `Episode`s with their `Turn`s; reward methods assign credits to them, and
`group_advantages`, `tree_advantages` and `token_advantages` compare them, as in a training run. Scores are
read from the policy's table, because they are exact there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from memenvs.baselines.advantages import group_advantages, tree_advantages
from memenvs.baselines.mt_ppo import token_advantages
from memenvs.core.episode import Episode, Turn
from memenvs.credit import gigpo, mt_grpo
from memenvs.models import Reply
from memenvs.rollout.tree import Node
from memenvs.wrappers import (
    IGPO,
    TAMTRL,
    GiGPO,
    InfoMem,
    MemPO,
    ReMemR1,
    RewardMethod,
    StepSearch,
)
from memenvs.wrappers.comparison import ComparisonSettings
from research.credit_bench.worlds import (
    DISTRACTOR_SHOWN,
    EMPTY,
    END,
    NOTHING_SHOWN,
    TRUTH,
    Array,
    Ints,
    TabularWorld,
    observation_of,
)

GROUPS, GROUP = 8, 8  # tasks of a step, and episodes of each
TREES, BRANCHES, BRANCHING = 4, 4, 2  # a step of trees: also 64 episodes if none ends early
JUDGE_ERROR = 0.1
PRM_EPISODES, PRM_RIDGE = 1024, 1.0

# Writing nothing is one of the policy's choices here, with its own probability: a text with one token.
SYMBOL_NAMES = (*(f"symbol{number}" for number in range(EMPTY)), "nothing")
_TOKEN = Reply("m", np.zeros(1, np.int64), np.zeros(1), finished=True)
_STATE_NAMES = [f"observation {number}" for number in range(4096)]


# What compares asks a policy for the spans of tokens: each reply is one token of one character.
POLICY: Any = SimpleNamespace(spans=lambda ids: np.array([[0, 1]]))


class Rollouts(NamedTuple):
    """Episodes of a world; states after an episode's end are `END`.

    States, actions, turn rewards without the outcome and outcomes are (N, K); lengths (N,); groups (N,),
    equal for episodes of one task.
    """

    states: Ints
    actions: Ints
    pay: Array
    outcomes: Array
    lengths: Ints
    groups: Ints


class Batch(NamedTuple):
    """What a policy trains on: M replies, each with its advantage, and a critic's targets if there is one.

    `full` (K,) is the number of replies of each turn if no episode ended early; `others` counts replies that
    were sampled besides, to value states.
    """

    states: Ints
    actions: Ints
    advantages: Array
    full: Ints
    returns: Array | None = None
    others: int = 0


@dataclass
class Learner:
    """What credit depends on besides the rollouts: a policy (O, A), its critic's values (O,), random draws.

    `kept` is the state of a method, such as a trained model.
    """

    world: TabularWorld
    probs: Array
    values: Array
    rng: np.random.Generator
    kept: dict[str, Any] = field(default_factory=dict)


def play(world: TabularWorld, probs: Array, starts: Ints, groups: Ints, rng: np.random.Generator) -> Rollouts:
    """Episodes from these states, with replies sampled from the policy (O, A)."""
    size, turns = len(starts), world.turns
    states, actions = np.full((size, turns), END), np.zeros((size, turns), np.int64)
    pay, outcomes = np.zeros((size, turns)), np.zeros((size, turns))
    now = starts.copy()
    for turn in range(turns):
        draws = rng.random(size)  # always as many, so that later tasks are the same
        noise = rng.normal(size=size)
        rows = np.flatnonzero(now != END)
        states[rows, turn] = now[rows]
        actions[rows, turn] = action = choose(world, probs, now[rows], draws[rows])
        pay[rows, turn] = world.pay[now[rows], action] + world.noise[now[rows]] * noise[rows]
        outcomes[rows, turn] = world.outcome[now[rows], action]
        now[rows] = world.follow[now[rows], action]
    return Rollouts(states, actions, pay, outcomes, (states != END).sum(1), groups)


def choose(world: TabularWorld, probs: Array, states: Ints, draws: Array) -> Ints:
    """The replies (N,) that draws (N,) from [0, 1) pick in states (N,)."""
    return (probs.cumsum(1)[world.observed[states], :-1] < draws[:, None]).sum(1)


def sample(learner: Learner) -> Rollouts:
    """A step's episodes: several for each of some tasks."""
    world = learner.world
    tasks = learner.rng.choice(world.starts, GROUPS)
    groups = np.arange(GROUPS).repeat(GROUP)
    return play(world, learner.probs, tasks.repeat(GROUP), groups, learner.rng)


def records(world: TabularWorld, rollouts: Rollouts) -> list[Episode]:
    """The episodes as the suite's records."""
    found = []
    pays, outcomes = rollouts.pay.tolist(), rollouts.outcomes.tolist()
    for i, length in enumerate(rollouts.lengths.tolist()):
        metrics = {"success": float(sum(outcomes[i]) == 1.0), "format": 1.0}
        infos: list[dict[str, Any]] = [
            {
                "turn": k,
                "context": "append",
                "feedback": "",
                "rewards": {"outcome": outcomes[i][k - 1], "pay": pays[i][k - 1]} if k else {},
                "metrics": metrics,
                "turn_rewards": np.add(pays[i][:k], outcomes[i][:k]).tolist(),
                "privileged": {},
            }
            for k in range(length + 1)
        ]
        states, actions = rollouts.states[i, :length].tolist(), rollouts.actions[i, :length].tolist()
        for k in range(length):
            infos[k]["privileged"] |= _known_before(world, states[k])
            infos[k + 1]["privileged"] |= _known_after(world, states[k], actions[k], k + 1 == length)
        turns = [
            Turn("", infos[k], _TOKEN, infos[k + 1], "terminated" if k + 1 == length else "")
            for k in range(length)
        ]
        group = int(rollouts.groups[i])
        found.append(Episode(group=group, turns=turns, end="terminated", metrics=metrics))
    return found


def _known_before(world: TabularWorld, state: int) -> dict[str, Any]:
    known: dict[str, Any] = {"state": _STATE_NAMES[world.observed[state]]}
    if world.memory is not None:
        known |= {"memory": SYMBOL_NAMES[world.memory[state]], "answers": [[SYMBOL_NAMES[TRUTH]]]}
    return known


def _known_after(world: TabularWorld, state: int, action: int, over: bool) -> dict[str, Any]:
    known: dict[str, Any] = {}
    if world.memory is not None:
        memory = world.memory[state] if over else action
        known |= {"memory": SYMBOL_NAMES[memory], "memory_span": None if over else (0, 1)}
    if world.passages is not None:
        passage = world.passages[state, action]
        known |= {
            "passages": [] if passage < 0 else [f"document{passage}"],
            "evidence": [f"document{number}" for number in world.evidence],
        }
    return known


# Flat groups


def flat(learner: Learner, assign: Callable[[Learner, Rollouts], list[Array]]) -> Batch:
    """A step of episodes that are compared as a whole."""
    rollouts = sample(learner)
    advantages = np.concatenate(assign(learner, rollouts))
    played = rollouts.states != END
    full = np.full(learner.world.turns, len(played))
    return Batch(rollouts.states[played], rollouts.actions[played], advantages, full)


def compared(learner: Learner, rollouts: Rollouts, reward: Any, **options: Any) -> list[Array]:
    """`group_advantages` of the environment's rewards."""
    how = ComparisonSettings(**options)
    return group_advantages(records(learner.world, rollouts), POLICY, reward, how)


def rewarded(
    learner: Learner, rollouts: Rollouts, method: RewardMethod, reward: str | None = None
) -> list[Array]:
    """`group_advantages` with a reward method's signals and credits added to the environment's rewards.

    Without a `reward` the comparison is the method's own.
    """
    episodes = measured(learner, rollouts, method)
    for group in range(GROUPS):
        members = [episode for episode in episodes if episode.group == group]
        for episode, credits in zip(members, method.assign_credit(members), strict=True):
            for number, turn in enumerate(episode.turns):
                turn.credits[method.name] = [credit for credit in credits if credit.turn == number]
    return group_advantages(episodes, POLICY, reward or method)


def measured(learner: Learner, rollouts: Rollouts, method: RewardMethod) -> list[Episode]:
    """The records of episodes with a method's signals."""
    episodes = records(learner.world, rollouts)
    likely = scores(learner, rollouts, method)
    for i, episode in enumerate(episodes):
        for k, turn in enumerate(episode.turns):
            turn.signals[method.name] = method.signal(turn, likely(i, k))
    return episodes


def by_turn(learner: Learner, rollouts: Rollouts, method: TAMTRL, scale: str = "std") -> list[Array]:
    """TAMTRL's rewards, each compared only with its group's at the same turn (ours).

    Eq. 7 compares it with those of all turns. Min-max runs over all episodes, as in eq. 5, not over a group.
    """
    episodes = measured(learner, rollouts, method)
    rewards = [[credit.value for credit in turns] for turns in method.assign_credit(episodes)]
    outcomes = [episode.outcome for episode in episodes]
    return mt_grpo(rewards, outcomes, alpha=0.0, groups=rollouts.groups.tolist(), scale=scale)


def scores(
    learner: Learner, rollouts: Rollouts, method: RewardMethod
) -> Callable[[int, int], Sequence[Array]]:
    """The log-probabilities that a method's scorer would give for turn k of episode i, from the table.

    The answer's, given a memory, is that of the policy's last turn. TAMTRL's teacher reads only the evidence
    of a turn, so it reads nothing where a turn shows a distractor.
    """
    world, probs = learner.world, learner.probs
    if world.memory is None or world.shown is None or isinstance(method, ReMemR1):
        return lambda i, k: ()
    last, before = world.turns - 1, world.memory[rollouts.states]
    answer = answer_likelihood(learner)
    if isinstance(method, TAMTRL):
        shown = world.shown[rollouts.states]
        teacher = np.where(shown == DISTRACTOR_SHOWN, NOTHING_SHOWN, shown)
        read = observation_of(np.arange(world.turns), teacher, before)
        texts = (rollouts.actions, before) if method.change else (rollouts.actions,)
        written = [np.log(probs[read, text]) for text in texts]
        return lambda i, k: () if k == last else [nats[i, k : k + 1] for nats in written]
    if isinstance(method, InfoMem):
        return lambda i, k: (answer[before[i, k], None], answer[EMPTY, None]) if k == last else ()
    return lambda i, k: (
        () if k == last else (answer[rollouts.actions[i, k], None], answer[before[i, k], None])
    )


def answer_likelihood(learner: Learner) -> Array:
    """The answer's log-probability given each memory, from the policy's last turn."""
    memories = np.arange(EMPTY + 1)
    return np.log(learner.probs[observation_of(learner.world.turns - 1, NOTHING_SHOWN, memories), TRUTH])


def stepsearch(learner: Learner, rollouts: Rollouts) -> list[Array]:
    """StepSearch's rewards in place of the environment's turn rewards, compared as MT-GRPO does."""
    bare = rollouts._replace(pay=np.zeros_like(rollouts.pay))
    return rewarded(learner, bare, StepSearch(), "turn")


def telescoped(learner: Learner, rollouts: Rollouts) -> list[Array]:
    """InfoMem with its bonus r~ divided among the memories that made the gain (ours).

    Gains of single memories g_k add up to r_gain; less their means over the successes and divided by the std
    of r_gain, they add up to r~ (eq. 9). A turn gets the bonus from it on, in addition to the outcome, and is
    compared with the others of its group at that turn, by the std of the whole reward. At the first turn this
    is InfoMem's advantage.
    """
    method, world = InfoMem(), learner.world
    if world.memory is None:
        raise ValueError(f"{world.name} has no memory")
    before = world.memory[rollouts.states]
    after = np.where(np.arange(world.turns) == world.turns - 1, before, rollouts.actions)
    answer = answer_likelihood(learner)
    gains, outcomes = answer[after] - answer[before], rollouts.outcomes.sum(1)
    advantages = np.zeros_like(gains)
    for group in range(GROUPS):
        rows = np.flatnonzero(rollouts.groups == group)
        right = rows[outcomes[rows] == 1]
        bonus = np.zeros_like(gains)
        bonus[right] = gains[right]
        if len(right) > 1:
            spread = gains[right].sum(1).std() + 1e-6
            bonus[right] = (gains[right] - gains[right].mean(0)) / spread
        onward = bonus[rows, ::-1].cumsum(1)[:, ::-1]
        rewards = outcomes[rows, None] + method.beta * onward
        advantages[rows] = (rewards - rewards.mean(0)) / (rewards[:, 0].std(ddof=1) + 1e-4)
    return list(advantages)


def state_matched(learner: Learner, rollouts: Rollouts, scale: str) -> list[Array]:
    """What a reply earns from its turn on, compared with the group's replies to the same observation.

    The comparison of MT-GRPO's tree without the tree: GiGPO's step advantage alone (eq. 7), undiscounted.
    """
    earned, observed = rollouts.pay + rollouts.outcomes, learner.world.observed[rollouts.states]
    lengths = rollouts.lengths.tolist()
    return gigpo(
        [row[:length] for row, length in zip(earned, lengths, strict=True)],
        [row[:length].tolist() for row, length in zip(observed, lengths, strict=True)],
        gamma=1.0,
        groups=rollouts.groups.tolist(),
        scale=scale,
    )


def verdicts(learner: Learner, rollouts: Rollouts) -> Array:
    """(N, K) a judge's rewards: 1 for a reply of the best policy, otherwise 0; one in ten is flipped."""
    right = learner.world.good[rollouts.states, rollouts.actions]
    wrong = learner.rng.random(right.shape) < JUDGE_ERROR
    return (right != wrong).astype(np.float64)


def judged(learner: Learner, rollouts: Rollouts) -> list[Array]:
    """A judge's rewards, used as in `stepsearch`."""
    return _scored(learner, rollouts, verdicts(learner, rollouts))


def process_rewards(learner: Learner, rollouts: Rollouts) -> list[Array]:
    """A linear model's estimate of the outcome after a reply, fitted once and used as in `stepsearch`.

    It has one feature for each observation and reply. Its labels are the outcomes of 1,024 episodes of the
    first policy that it is used with; the regression has a ridge of 1.
    """
    world = learner.world
    if "model" not in learner.kept:
        starts = learner.rng.choice(world.starts, PRM_EPISODES)
        made = play(world, learner.probs, starts, np.arange(PRM_EPISODES), learner.rng)
        episode, turn = np.nonzero(made.states != END)
        shape = learner.probs.shape
        features = np.ravel_multi_index(
            (world.observed[made.states[episode, turn]], made.actions[episode, turn]), shape
        )
        labels = made.outcomes.sum(1)[episode]
        # Only one feature is on at a time, so the normal equations are diagonal.
        size = int(np.prod(shape))
        total, count = np.bincount(features, labels, size), np.bincount(features, minlength=size)
        learner.kept["model"] = (total / (count + PRM_RIDGE)).reshape(shape)
    return _scored(
        learner, rollouts, learner.kept["model"][world.observed[rollouts.states], rollouts.actions]
    )


def _scored(learner: Learner, rollouts: Rollouts, turns: Array) -> list[Array]:
    return compared(learner, rollouts._replace(pay=np.where(rollouts.states == END, 0.0, turns)), "turn")


# With a critic


def ppo(learner: Learner, reward: Any) -> Batch:
    """A step of PPO with rewards placed by `reward`."""
    rollouts = sample(learner)
    episodes = records(learner.world, rollouts)
    for i, episode in enumerate(episodes):
        (sequence,) = episode.samples
        observed = learner.world.observed[rollouts.states[i, : len(episode.turns)]]
        sequence.values = learner.values[observed]
    advantages, returns = token_advantages(episodes, reward=reward)
    played = rollouts.states != END
    full = np.full(learner.world.turns, len(played))
    own, targets = np.concatenate(advantages), np.concatenate(returns)
    return Batch(rollouts.states[played], rollouts.actions[played], own, full, targets)


# By playing on


def continued(learner: Learner, n: int, *, equal: bool) -> Batch:
    """A step of episodes whose states are valued by playing on n times from each (`Continuations`).

    Args:
        learner: what credit depends on.
        n: continuations of each state.
        equal: learn from as many of the episodes, with what is played on from their states, as have no more
            replies than the step of another method.
    """
    world, rollouts = learner.world, sample(learner)
    states = np.unique(rollouts.states[rollouts.states != END])
    others = play(world, learner.probs, states.repeat(n), np.arange(len(states)).repeat(n), learner.rng)
    # The last place is that of the end, which END = -1 finds.
    values, cost = np.zeros(len(world.turn) + 1), np.zeros(len(world.turn) + 1, np.int64)
    values[states] = (others.pay + others.outcomes).sum(1).reshape(-1, n).mean(1)
    cost[states] = others.lengths.reshape(-1, n).sum(1)
    if equal:
        rollouts = Rollouts(*(rows[_affordable(rollouts, cost)] for rows in rollouts))
    played = rollouts.states != END
    following = np.append(rollouts.states[:, 1:], np.full((len(played), 1), END), axis=1)
    changes = rollouts.pay + rollouts.outcomes + values[following] - values[rollouts.states]
    full = np.full(world.turns, len(played))
    sampled = int(cost[np.unique(rollouts.states)].sum())
    return Batch(rollouts.states[played], rollouts.actions[played], changes[played], full, others=sampled)


def _affordable(rollouts: Rollouts, cost: Ints) -> list[int]:
    """The episodes, of all tasks in turn, that have no more replies than all, with the cost of their states.

    There is at least one.
    """
    order = np.arange(len(rollouts.states)).reshape(GROUPS, GROUP).T.ravel().tolist()
    spent, valued = 0, set[int]()
    for count, row in enumerate(order):
        new = {*rollouts.states[row, : rollouts.lengths[row]].tolist()} - valued
        spent += int(rollouts.lengths[row] + cost[[*new]].sum())
        valued |= new
        if spent > rollouts.lengths.sum():
            return order[: max(count, 1)]
    return order


# Trees


def trees(learner: Learner, scale: str) -> Batch:
    """A step of trees: several replies to every state of the first turns, compared state by state."""
    tasks = learner.rng.choice(learner.world.starts, TREES)
    roots = [Node(Episode()) for _ in tasks]
    states_of = {id(root): int(task) for root, task in zip(roots, tasks, strict=True)}
    frontier = list(roots)
    for turn in range(learner.world.turns):
        width = BRANCHES if turn < BRANCHING else 1
        grown = _grow(learner, [node for node in frontier for _ in range(width)], states_of)
        frontier = [node for node in grown if states_of[id(node)] != END]
    edges = [
        (states_of[id(parent)], int(child.reply.ids[0]))
        for root in roots
        for parent in (root, *root.nodes())
        for child in parent.children
    ]
    states, actions = np.array(edges).T
    advantages = np.concatenate([values for _, _, values in tree_advantages(roots, scale=scale)])
    full = [TREES * BRANCHES ** min(turn + 1, BRANCHING) for turn in range(learner.world.turns)]
    return Batch(states, actions, advantages, np.array(full))


def _grow(learner: Learner, parents: Sequence[Node], states_of: dict[int, int]) -> list[Node]:
    """A reply to each state, with its reward; `states_of` gets the state of each new node."""
    if not parents:
        return []
    world, size = learner.world, len(parents)
    states = np.array([states_of[id(node)] for node in parents])
    actions = choose(world, learner.probs, states, learner.rng.random(size))
    pay = world.pay[states, actions] + world.noise[states] * learner.rng.normal(size=size)
    children = []
    for parent, state, action, earned in zip(parents, states, actions, pay.tolist(), strict=True):
        reply = Reply("m", np.array([action]), np.zeros(1), finished=True)
        rewards = {"outcome": float(world.outcome[state, action]), "pay": earned}
        before = {"turn": len(parent.episode.turns), "context": "append", "feedback": ""}
        turn = Turn("", before, reply, {**before, "rewards": rewards})
        child = Node(Episode(turns=[*parent.episode.turns, turn], end="terminated"), parent=parent)
        states_of[id(child)] = int(world.follow[state, action])
        parent.children.append(child)
        children.append(child)
    return children


# The table of methods


class Method(NamedTuple):
    """A method: its title in tables, and how it samples a step's replies and assigns their credit.

    `needs` is what it needs of a world: `""`, `"memory"` or `"passages"`.
    """

    title: str
    step: Callable[[Learner], Batch]
    needs: str = ""
    critic: bool = False

    def missing(self, world: TabularWorld) -> str:
        """Why it does not apply to a world; empty if it does."""
        if self.needs and getattr(world, self.needs) is None:
            return MISSING[self.needs]
        return ""


MISSING = {
    "memory": "no memory is written, and no answer has a likelihood to be measured",
    "passages": "no reply searches, so no passage can be matched with evidence",
}


def _flat(assign: Callable[..., list[Array]], **options: Any) -> Callable[[Learner], Batch]:
    return partial(flat, assign=partial(assign, **options))


_group, _states, _turns = (partial(_flat, assign) for assign in (compared, state_matched, by_turn))
_method = partial(_flat, rewarded)

PLAIN, CHANGE, OWN_TURN = TAMTRL(), TAMTRL(change=True), IGPO(measure="log", target="bare", gamma=0.0)
METHODS: dict[str, Method] = {
    "outcome": Method("GRPO-OR", _group(reward="outcome")),
    "merged": Method("GRPO-MR", _group(reward="merged")),
    "turn": Method("MT-GRPO", _group(reward="turn")),
    "turn-skip": Method("MT-GRPO, skip", _group(reward="turn", ended="skip")),
    "turn-noscale": Method("MT-GRPO, no std", _group(reward="turn", scale="none")),
    "tree": Method("MT-GRPO, tree", partial(trees, scale="std")),
    "tree-noscale": Method("MT-GRPO, tree, no std", partial(trees, scale="none")),
    "states": Method("state matching", _states(scale="none")),
    "states-std": Method("state matching, std", _states(scale="std")),
    "rloo": Method("RLOO", _group(reward="merged", estimator="rloo")),
    "turn-rloo": Method("MT-RLOO", _group(reward="turn", estimator="rloo")),
    "reinforce": Method("REINFORCE", _group(reward="turn", estimator="reinforce")),
    "ppo-outcome": Method("PPO-OR", partial(ppo, reward="outcome"), critic=True),
    "ppo-merged": Method("PPO-MR", partial(ppo, reward="merged"), critic=True),
    "ppo-turn": Method("MT-PPO", partial(ppo, reward="turn"), critic=True),
    "continuations": Method("Continuations", partial(continued, n=8, equal=False)),
    "continuations-equal": Method("Continuations, equal samples", partial(continued, n=2, equal=True)),
    "gigpo": Method("GiGPO", _method(method=GiGPO())),
    "tamtrl": Method("TAMTRL", _method(method=PLAIN), "memory"),
    "tamtrl-change": Method("TAMTRL, change", _method(method=CHANGE), "memory"),
    "tamtrl-turn": Method("TAMTRL, by turn", _turns(method=PLAIN, scale="std"), "memory"),
    "tamtrl-turn-noscale": Method(
        "TAMTRL, by turn, no std", _turns(method=PLAIN, scale="none"), needs="memory"
    ),
    "tamtrl-change-turn": Method(
        "TAMTRL, change, by turn", _turns(method=CHANGE, scale="std"), needs="memory"
    ),
    "tamtrl-change-turn-noscale": Method(
        "TAMTRL, change, by turn, no std", _turns(method=CHANGE, scale="none"), needs="memory"
    ),
    "infomem": Method("InfoMem", _method(method=InfoMem()), "memory"),
    "infomem-telescoped": Method("InfoMem, telescoped", _flat(telescoped), "memory"),
    "mempo": Method("MemPO", _method(method=MemPO(trajectory="outcome")), "memory"),
    "igpo": Method("IGPO", _method(method=IGPO(target="bare")), "memory"),
    "igpo-turn": Method("IGPO, log, own turn", _method(method=OWN_TURN), "memory"),
    "rememr1": Method("ReMemR1", _method(method=ReMemR1()), "memory"),
    "stepsearch": Method("StepSearch", _flat(stepsearch), "passages"),
    "judge": Method("judge", _flat(judged)),
    "prm": Method("PRM", _flat(process_rewards)),
}
