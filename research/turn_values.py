"""Which credit finds the turn that mattered? What methods pay turns, against what the turns were worth.

python -m research.turn_values runs/values --minutes 45
python -m research.turn_values runs/values --agents caller --tasks 20 --continuations 8

The shipped agents play tasks of the bundled test world, and play on from every state (`Continuations`). The
value of a state is how often that succeeds. A turn is worth the value after it less the value before it; the
last value is whether the episode succeeded. Then every method pays the same turns. The report says how well
its credit tells turns that lost value from the others in failed episodes, and turns that gained value from
the others in successful ones. A run resumes where it stopped; the report is about what has been played.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from tyro.conf import Positional

from memenvs.core.arguments import run_command
from memenvs.core.data import Count, NonNegative, checked
from memenvs.core.episode import Episode
from memenvs.core.episode_file import EPISODES, EpisodeWriter, read_episodes
from memenvs.core.files import ARGS, read_json, whole_lines, write_json
from memenvs.evaluation.plots import line_style, new_figure, plain_axis
from memenvs.models import HFPolicy
from memenvs.rollout.collect import Loop, maker
from memenvs.rollout.policy import TurnPolicy, as_policy
from memenvs.tasks.taskset import open_tasks
from memenvs.wrappers import (
    IGPO,
    OTC,
    TAMTRL,
    Continuations,
    FormatGate,
    GiGPO,
    InfoMem,
    Judge,
    MemPO,
    QuestionCredit,
    ReMemR1,
    RepeatedCalls,
    RewardMethod,
    SearchR1,
    SearchRewards,
    StepSearch,
    ToolRewards,
    assign_credit,
)
from memenvs.wrappers.credit import check_methods
from memenvs.wrappers.registry import make_scorer
from memenvs.wrappers.scorers import Scorer, ScoreRequest, TokenScores
from research.agent import AGENTS
from research.harness import RESULTS, markdown

RECORD = "turn_values"
TASKS = "world-test"
GROUP = 4  # episodes of a task
MOVED = 0.2  # a turn that changes the value by as much or more gained or lost
FEW = 10  # of fewer such turns an interval by a bootstrap says nothing
HALVES = ("first half", "second half")
COLUMNS = ("lost, in failures", "gained, in successes", "worst turn found", "rank correlation")
COUNTS = ("lost in failures", "gained in successes")  # of the record, for the first two columns
NOT_PAID: dict[str, Any] = {"numbers": [[None] * 3] * len(COLUMNS)}  # a method that a setting cannot use
Array = NDArray[np.float64]


class Setting(NamedTuple):
    """An agent, what it plays, how it replies, and how many documents its questions need."""

    agent: str
    env_args: Mapping[str, Any] = {}
    reply: int = 96  # most tokens
    documents: Sequence[int] = (1, 2, 3, 4)
    temperature: float = 0.8

    @property
    def env(self) -> str:
        """Id of the environment."""
        return AGENTS[self.agent].env

    @property
    def arguments(self) -> dict[str, Any]:
        """Its arguments."""
        return {**AGENTS[self.agent].env_args, "tasks": TASKS, **self.env_args}

    @property
    def tasks(self) -> list[int]:
        """The numbers of the tasks that it can solve."""
        return [i for i, task in enumerate(open_tasks(TASKS)) if len(task.evidence) in self.documents]


SettingName = Literal["reader", "reader, 8 sections", "caller"]
SETTINGS: dict[SettingName, Setting] = {
    "reader": Setting("reader"),
    "reader, 8 sections": Setting("reader", {"n_documents": 16}),
    # It makes one call. With three passages at temperature 0.8 no call changes what becomes of an episode.
    "caller": Setting("caller", {"k": 1}, reply=192, documents=(1,), temperature=1.2),
}


class FirstHalf(Continuations):
    """One Continuations, half by half of each state."""

    name = HALVES[0]


class SecondHalf(Continuations):
    """The other half."""

    name = HALVES[1]


def play(setting: Setting, file: Path, tasks: Sequence[int], samples: int, end: float) -> None:
    """Append the episodes of the tasks that a file lacks, with the values of their states, until a time."""
    done = {episode.number for episode in kept(file)}
    missing = [task for task in tasks if task not in done]
    if not missing or time.time() > end:
        return
    name, memory = f"smollm2-{setting.agent}", {"max_batch_tokens": 40_000}  # two GB of cache
    policy = HFPolicy.load(name, temperature=setting.temperature, dtype="auto", **memory)
    halves = [FirstHalf(samples // 2), SecondHalf(samples // 2)]
    make_env = maker(setting.env, setting.arguments)
    loop = Loop(make_env, as_policy(policy, setting.reply), halves, concurrency=512)
    with EpisodeWriter(file) as writer:
        while missing and time.time() < end:
            block, missing = missing[:2], missing[2:]  # so that enough is sampled at once
            for group in loop.play(planned(task) for task in block):
                for episode in group:
                    writer.write(episode)
            print(f"{file.parent.name}: task {block[-1]}", file=sys.stderr, flush=True)
    loop.close()


def planned(task: int) -> list[Episode]:
    """The episodes of a task, to be played."""
    return [Episode(seed=task, group=task, number=task, member=member) for member in range(GROUP)]


def kept(file: Path) -> list[Episode]:
    """The episodes of a file whose tasks were written whole, in order, without failed ones."""
    by_place = {(one.number or 0, one.member): one for one in (read_episodes(file) if file.exists() else ())}
    whole = {task for task, member in by_place if all((task, i) in by_place for i in range(GROUP))}
    return [one for (task, _), one in sorted(by_place.items()) if task in whole and not one.error]


class MeteredScorer:
    """A scorer that answers a request once, and knows the seconds of processor that each request took."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.known: dict[ScoreRequest, TokenScores] = {}
        self.cost: dict[ScoreRequest, float] = {}
        self.seconds = 0.0

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """The scores; `seconds` is then what these requests took, now or before."""
        new = [request for request in dict.fromkeys(requests) if request not in self.known]
        begin = time.process_time()
        self.known |= dict(zip(new, self.scorer.logprobs(new) if new else [], strict=True))
        share = (time.process_time() - begin) / max(sum(len("".join(request)) for request in new), 1)
        self.cost |= {request: share * len("".join(request)) for request in new}
        self.seconds = sum(self.cost[request] for request in dict.fromkeys(requests))
        return [self.known[request] for request in requests]


class JudgeStub(BaseHTTPRequestHandler):
    """A judge without a model: a turn is worth 1 if its reply holds an accepted answer, otherwise 0."""

    def do_POST(self) -> None:
        """Answer a request of chat completions."""
        fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        _, _, rest = fields["messages"][-1]["content"].partition("\nRecord:\n")
        record, end = json.JSONDecoder().raw_decode(rest)
        answers, _ = json.JSONDecoder().raw_decode(rest[rest.index("see:\n", end) + 5 :])
        accepted = [answer.lower() for of_objective in answers for answer in of_objective]
        held = [any(answer in turn["reply"].lower() for answer in accepted) for turn in record]
        message = {"role": "assistant", "content": json.dumps({"scores": [float(one) for one in held]})}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        body = {"id": "0", "object": "chat.completion", "created": 0, "model": "stub", "choices": choices}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


def methods_of(setting: Setting, judge: str) -> dict[str, tuple[RewardMethod, Any]]:
    """The methods that can pay in a setting, each with its scorer, by the name of its row."""
    name = f"smollm2-{setting.agent}"
    model = MeteredScorer(scorer_of(name))
    lexical = MeteredScorer(scorer_of("lexical"))
    rows: dict[str, tuple[RewardMethod, Any]] = {
        "TAMTRL": (TAMTRL(), model),
        "TAMTRL, change": (TAMTRL(change=True), model),
        "TAMTRL, plus": (TAMTRL(combine="plus"), model),
        "InfoMem": (InfoMem(), model),
        "MemPO": (MemPO(), model),
        "MemPO, no bias": (MemPO(bias="none"), model),
        "IGPO": (IGPO(target="bare"), model),
        "IGPO, log": (IGPO(measure="log", target="bare"), model),
        "IGPO, lexical": (IGPO(), lexical),
        "ReMemR1": (ReMemR1(), None),
        "GiGPO": (GiGPO(), None),
        "StepSearch": (StepSearch(), None),
        "SearchRewards": (SearchRewards(), None),
        "SearchR1": (SearchR1(), None),
        "ToolRewards": (ToolRewards(), None),
        "OTC": (OTC(), None),
        "RepeatedCalls": (RepeatedCalls(), None),
        "QuestionCredit": (QuestionCredit(), model),
        "FormatGate": (FormatGate(), None),
        "judge, stub": (Judge(url=judge, model="stub", rubric="general"), None),
    }
    info = maker(setting.env, setting.arguments)().reset(seed=0)[1]
    for row, (method, scorer) in [*rows.items()]:
        try:
            check_methods([method], scorer, info)
        except ValueError as error:
            print(f"{setting.agent}: without {row}: {error}", file=sys.stderr)
            del rows[row]
    return rows


def scorer_of(name: str) -> Any:
    """The lexical scorer, or an agent's model in its chat template."""
    template = None if name == "lexical" else HFPolicy.load(name).template
    scorer: Any = make_scorer(name if name == "lexical" else f"hf:{name}", template)
    return scorer


def score(setting: Setting, episodes: Sequence[Episode], file: Path) -> dict[str, Any]:
    """What every method pays each turn of recorded episodes, and its seconds an episode.

    A file has a line for each task that was scored; what it lacks is appended. Methods compare the episodes
    of one task.
    """
    lines = [line for _, line in whole_lines(file)] if file.exists() else []
    known = {scored["task"]: scored["methods"] for scored in map(json.loads, lines)}
    groups: dict[int, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.number or 0, []).append(episode)
    if missing := [task for task in groups if task not in known]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), JudgeStub)
        Thread(target=server.serve_forever, daemon=True).start()
        methods = methods_of(setting, f"http://127.0.0.1:{server.server_port}/v1")
        with file.open("a") as scores:
            os.truncate(file, sum(map(len, lines)))  # a killed process may have left an unfinished line
            for task in missing:
                known[task] = paid_by(methods, played_again(setting, groups[task]))
                print(json.dumps({"task": task, "methods": known[task]}), file=scores, flush=True)
        server.shutdown()
        server.server_close()
    names = next(iter(known.values()))
    return {
        name: {
            "seconds": sum(known[task][name]["seconds"] for task in groups) / len(episodes),
            "turns": [turns for task in groups for turns in known[task][name]["turns"]],
        }
        for name in names
    }


def played_again(setting: Setting, group: Sequence[Episode]) -> list[Episode]:
    """The episodes of a task with all that methods read, of which a file keeps only a part."""
    plan = [planned(episode.number or 0)[episode.member] for episode in group]
    replies = {episode.member: episode.replies for episode in group}
    policy = TurnPolicy(lambda request: replies[request.episode.member][len(request.episode.turns)])
    return Loop(maker(setting.env, setting.arguments), policy, errors="raise").play_all([plan])


def paid_by(methods: Mapping[str, tuple[RewardMethod, Any]], group: Sequence[Episode]) -> dict[str, Any]:
    """What each method pays the turns of a group, and its seconds."""
    result = {}
    for name, (method, scorer) in methods.items():
        copies = [
            replace(
                episode,
                turns=[replace(turn, signals={}, credits={}) for turn in episode.turns],
                measured={},
            )
            for episode in group
        ]
        begin = time.process_time()
        assign_credit(copies, [method], scorer, errors="raise")
        seconds = scorer.seconds if scorer else time.process_time() - begin
        paid = [[float(value) for value in episode.turn_rewards] for episode in copies]
        result[name] = {"seconds": seconds, "turns": paid}
    return result


# The comparison


def ranks(values: Array) -> Array:
    """Ranks from 1, the mean rank for ties."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranked: Array = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranked


def correlation(first: Array, second: Array) -> float:
    """Spearman's; NaN where one of the two is constant."""
    first, second = (ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    norm = np.sqrt((first @ first) * (second @ second))
    return float(first @ second / norm) if norm else np.nan


def area(scores: Array, positive: Any) -> float:
    """AUC: the chance that a positive turn has the higher score, ties one half; NaN without both kinds."""
    count = int(positive.sum())
    if count in (0, len(positive)):
        return np.nan
    below = ranks(scores)[positive].sum() - count * (count + 1) / 2
    return float(below / (count * (len(positive) - count)))


class Turns(NamedTuple):
    """Turns before the answer, of all episodes: of each its task, its episode, the outcome and its worth."""

    task: NDArray[np.int64]
    episode: NDArray[np.int64]
    right: NDArray[np.bool_]
    worth: Array

    def take(self, rows: Any) -> Turns:
        """Some of the turns."""
        return Turns(*(values[rows] for values in self))


def turns_of(episodes: Sequence[Episode], names: Sequence[str]) -> Turns:
    """The turns of episodes, worth what the mean of these signals says; the last value is the success."""
    columns: list[tuple[int, int, bool, float]] = []
    for number, episode in enumerate(episodes):
        values = np.mean([episode.signals[name] for name in names], axis=0)
        worth = np.diff([*values, float(episode.success)])[:-1]
        columns += [(episode.number or 0, number, episode.success, value) for value in worth.tolist()]
    task, episode_number, right, worths = zip(*columns, strict=True)
    return Turns(np.array(task), np.array(episode_number), np.array(right), np.array(worths))


def numbers(turns: Turns, paid: Array) -> list[float]:
    """The columns of the table for what a method paid (N,) to turns."""
    wrong, right = ~turns.right, turns.right
    lost = area(-paid[wrong], turns.worth[wrong] <= -MOVED)
    gained = area(paid[right], turns.worth[right] >= MOVED)
    found = []
    for number in np.unique(turns.episode[wrong]):
        rows = turns.episode == number
        if turns.worth[rows].min() <= -MOVED:
            least = np.isclose(paid[rows], paid[rows].min())
            found.append(least[np.argmin(turns.worth[rows])] / least.sum())
    return [lost, gained, float(np.mean(found)) if found else np.nan, correlation(paid, turns.worth)]


def intervals(turns: Turns, paid: Array, draws: int = 1000) -> list[list[float | None]]:
    """Each number with its 95% interval by a bootstrap over tasks; None where there is none."""
    rng, tasks = np.random.default_rng(0), np.unique(turns.task)
    places = {task: np.flatnonzero(turns.task == task) for task in tasks}
    drawn = []
    for _ in range(draws):
        rows, again = [], []
        for number, task in enumerate(rng.choice(tasks, len(tasks))):
            rows.append(places[task])
            again.append(turns.episode[places[task]] + 100_000 * number)  # a task drawn twice is two
        chosen = np.concatenate(rows)
        sample = turns.take(chosen)._replace(episode=np.concatenate(again))
        drawn.append(numbers(sample, paid[chosen]))
    cells = []
    for value, column in zip(numbers(turns, paid), np.array(drawn).T, strict=True):
        known = column[np.isfinite(column)]
        low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (np.nan, np.nan)
        cells.append([float(number) if np.isfinite(number) else None for number in (value, low, high)])
    return cells


def losses(episodes: Sequence[Episode]) -> dict[str, int]:
    """What the turns that lost value in failures did to the lines of the memory, where there is one."""
    counts = {"dropped a line": 0, "added a line, dropped none": 0, "changed nothing": 0}
    for episode in episodes:
        worth = turns_of([episode], HALVES).worth
        for turn, value in zip(episode.turns, worth.tolist(), strict=False):
            if episode.success or value > -MOVED or "memory" not in turn.before["privileged"]:
                continue
            old, new = (set(info["privileged"]["memory"].splitlines()) for info in (turn.before, turn.info))
            kind = [bool(old - new), bool(new - old), True].index(True)
            counts[[*counts][kind]] += 1
    return counts


def compared(episodes: Sequence[Episode], scores: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a setting: its size, the reliability of the worth, and each method's numbers."""
    turns = turns_of(episodes, HALVES)
    first, second = (turns_of(episodes, [name]) for name in HALVES)
    half = correlation(first.worth, second.worth)
    rows = {"outcome": {"seconds": 0.0, "numbers": intervals(turns, turns.right.astype(np.float64))}}
    for name, of in scores.items():
        paid = np.concatenate([np.array(credit[:-1]) for credit in of["turns"]])
        rows[name] = {"seconds": of["seconds"], "numbers": intervals(turns, paid)}
    # Against the other half alone, whose turns are worth less surely what they seem.
    rows["Continuations, half by half"] = {"seconds": None, "numbers": intervals(second, first.worth)}
    return {
        "tasks": len(set(turns.task.tolist())),
        "episodes": len(episodes),
        "right": float(np.mean([episode.success for episode in episodes])),
        "turns": len(turns.worth),
        "lost in failures": int((turns.worth[~turns.right] <= -MOVED).sum()),
        "losses": losses(episodes),
        "gained in successes": int((turns.worth[turns.right] >= MOVED).sum()),
        "halves": half if np.isfinite(half) else None,
        "reliability": 2 * half / (1 + half) if half > 0 else None,
        "methods": rows,
    }


def methods_in(record: Mapping[str, Any]) -> list[str]:
    """The methods of all settings, in the order of the setting that has most."""
    most_first = sorted(record["settings"].values(), key=lambda of: -len(of["methods"]))
    return [*{method: None for of in most_first for method in of["methods"]}]


def table(record: Mapping[str, Any]) -> str:
    """A column for failures and one for successes of each setting, which says how reliable the worth is."""

    def cell(count: int, value: float | None, low: float, high: float) -> str:
        if value is None:
            return "–"
        return f"{value:.2f}" + (f" [{low:.2f}, {high:.2f}]" if count >= FEW else "")

    settings = record["settings"]
    titles = ["method"]
    for name, of in settings.items():
        sure = "unknown" if of["reliability"] is None else f"{of['reliability']:.2f}"
        titles += [f"{name}: {COLUMNS[0]} (reliability {sure})", COLUMNS[1]]
    rows = {
        method: [
            cell(of[COUNTS[place]], *(of["methods"].get(method) or NOT_PAID)["numbers"][place])
            for of in settings.values()
            for place in range(2)
        ]
        for method in methods_in(record)
    }
    return markdown(titles, rows)


def draw(record: Mapping[str, Any]) -> Any:
    """How well each method tells the turns of each setting, in failures and in successes."""
    settings = record["settings"]
    methods = methods_in(record)[::-1]
    figure = new_figure(1.8 + 2.6 * len(settings), 1.4 + 0.24 * len(methods))
    axes = iter(figure.subplots(1, 2 * len(settings), sharey=True))
    for title, of in settings.items():
        for place in range(2):
            axis = next(axes)
            for y, method in enumerate(methods):
                value, low, high = (of["methods"].get(method) or NOT_PAID)["numbers"][place]
                if value is None:
                    continue
                is_shown = of[COUNTS[place]] >= FEW
                color = line_style(0 if is_shown and low > 0.5 else 1)["color"]
                if is_shown:
                    axis.plot([low, high], [y, y], color=color, linewidth=1.6)
                inside = color if is_shown else "white"
                axis.plot(value, y, "o", color=color, markersize=4, markerfacecolor=inside)
            axis.axvline(0.5, color="gray", linestyle="dashed", linewidth=1)
            axis.set_yticks(range(len(methods)), methods)
            axis.tick_params(labelsize=8)
            axis.set_xlim(0, 1.05)
            axis.set_xlabel(COLUMNS[place], fontsize=8)
            axis.set_title(title if place == 0 else "", fontsize=9, loc="left")
            plain_axis(axis, "x")
    figure.suptitle("How well credit tells the turns that mattered (AUC)", fontsize=10)
    return figure


def report(folder: Path, names: Sequence[SettingName], samples: int, out: Path) -> None:
    """Score what settings have played, print the table, and write the record; other settings stay in it."""
    file = out / f"{RECORD}.json"
    record = read_json(file) if file.exists() else {"moved": MOVED, "settings": {}}
    for name in names:
        if episodes := kept(folder / name / EPISODES):
            scores = score(SETTINGS[name], episodes, folder / name / "scores.jsonl")
            of = {"continuations": samples, **compared(episodes, scores)}
            record["settings"][name] = of
            print(f"{name}:", {key: value for key, value in of.items() if key != "methods"})
    print(f"\n{table(record)}")
    write_json(file, record)


@checked
def measure(
    folder: Positional[Path],
    *,
    agents: Sequence[SettingName] = get_args(SettingName),
    tasks: Count = 100,
    continuations: Count = 32,
    minutes: NonNegative | None = None,
    record: bool = False,
) -> None:
    """Play, score and report.

    Args:
        folder: for episodes and scores; a run in it is resumed.
        agents: settings to measure.
        tasks: number of tasks of world-test.
        continuations: M, of each state, in two halves.
        minutes: stop playing after these; by default never, and with 0 only score and report.
        record: write the record to research/results instead.
    """
    if continuations % 2:
        raise ValueError(f"continuations must be even, since their halves are compared, got {continuations}")
    import torch

    torch.set_num_threads(1)
    end = math.inf if minutes is None else time.time() + 60 * minutes
    for name in agents:
        file = folder / name / ARGS
        begun = read_json(file).get("continuations") if file.exists() else continuations
        if begun != continuations:
            raise ValueError(
                f"{folder / name} was begun with continuations {begun}, now {continuations}; give the same "
                "number, or another folder"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"continuations": continuations})
        setting = SETTINGS[name]
        play(setting, folder / name / EPISODES, setting.tasks[:tasks], continuations, end)
    report(folder, agents, continuations, RESULTS if record else folder)


if __name__ == "__main__":
    sys.exit(run_command(measure, sys.argv[1:], "python -m research.turn_values"))
