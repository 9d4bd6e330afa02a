"""Methods and scorers as plain data, for specs: a name or `module:Class` with settings, both ways."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from memenvs.cli import check_arguments, parameters_of, read_arguments
from memenvs.core.optional import import_object
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import Scorer

METHODS = {
    "TAMTRL": "memenvs.wrappers.tamtrl:TAMTRLMethod",
    "InfoMem": "memenvs.wrappers.infomem:InfoMemMethod",
    "MemPO": "memenvs.wrappers.mempo:MemPOMethod",
    "SearchRewards": "memenvs.wrappers.search_rewards:SearchRewardsMethod",
    "SearchR1": "memenvs.wrappers.search_r1:SearchR1Method",
    "ToolRewards": "memenvs.wrappers.tool_rewards:ToolRewardsMethod",
    "GiGPO": "memenvs.wrappers.gigpo:GiGPOMethod",
    "IGPO": "memenvs.wrappers.igpo:IGPOMethod",
    "ReMemR1": "memenvs.wrappers.rememr1:ReMemR1Method",
    "StepSearch": "memenvs.wrappers.stepsearch:StepSearchMethod",
    "OTC": "memenvs.wrappers.otc:OTCMethod",
    "FormatGate": "memenvs.wrappers.format_gate:FormatGateMethod",
    "MovieRecall": "memenvs.wrappers.movie_recall:MovieRecallMethod",
    "QuestionCredit": "memenvs.wrappers.question_credit:QuestionCreditMethod",
    "Judge": "memenvs.wrappers.judge:JudgeMethod",
    "PRM": "memenvs.wrappers.prm:PRMMethod",
}
SCORERS = {
    "lexical": "memenvs.wrappers.scorers:LexicalScorer",
    "hf": "memenvs.wrappers.scorers:HFScorer",
    "vllm": "memenvs.wrappers.scorers:VLLMScorer",
    "server": "memenvs.wrappers.scorers:ServerScorer",
}
SCORER_FORMS = '"lexical", "hf:MODEL", "vllm:MODEL", ["server", {"url": …, "model": …}] or a Scorer'

MethodSpec = RewardMethod | str | Sequence[Any]
ScorerSpec = Scorer | str | Sequence[Any] | None
_UNNAMED = "object "


def make_methods(methods: Sequence[MethodSpec]) -> list[RewardMethod]:
    """The methods of a list.

    Args:
        methods: each a method, a name, or a name with settings (`["InfoMem", {"beta": 0.1}]`). A name is one
            of `METHODS`, or `module:Class` for a method of your own.

    Raises:
        ValueError: none is given, an unknown name, or settings that it does not take.
        TypeError: not a list.
    """
    if isinstance(methods, (str, RewardMethod, Mapping)) or not isinstance(methods, Sequence):
        raise TypeError(f"methods must be a list, e.g. ['InfoMem'], got {methods!r}")
    if not methods:
        raise ValueError(f"no method is given; choose of {', '.join(METHODS)}")
    return [_make_method(method) for method in methods]


def read_methods(texts: Sequence[str]) -> list[MethodSpec]:
    """The methods that a command line names behind `--methods`, checked.

    Args:
        texts: each a name, in any case; `NAME=VALUE`, a setting of the method before it; or JSON, a name with
            settings or a list of methods as of `make_methods`.

    Raises:
        ValueError: one is something else, or names no method or settings of one.

    >>> read_methods(["tamtrl", "length_norm=false", '["MemPO"]'])
    [['TAMTRL', {'length_norm': False}], 'MemPO']
    """
    found: list[Any] = []
    for text in texts:
        if text.lstrip().startswith(("[", "{")):
            found += _methods_in_json(text)
        elif "=" not in text:
            found.append(next((name for name in METHODS if name.lower() == text.lower()), text))
        elif found:
            name, settings = (found[-1], {}) if isinstance(found[-1], str) else found[-1]
            found[-1] = [name, read_arguments([json.dumps(settings), text], f"methods: {name}")]
        else:
            raise ValueError(f"methods: {text!r} is a setting; write the name of its method before it")
    if found:
        make_methods(found)
    return found


def plain_method(method: RewardMethod) -> list[Any]:
    """The name and the settings of a method; `make_methods` makes it again.

    Raises:
        TypeError: its settings are not plain data.
    """
    place = f"{type(method).__module__}:{type(method).__qualname__}"
    name = next((name for name, own in METHODS.items() if own == place), place)
    try:
        settings = json.loads(json.dumps(method.settings()))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the settings of {name} must be plain data, or no spec can hold them: {error}"
        ) from error
    return [name, settings]


def make_scorer(scorer: ScorerSpec) -> Scorer | None:
    """A scorer by its name; an object, or None, as it is. Equal names and settings give one object a process.

    Args:
        scorer: `"lexical"`, `"hf:MODEL"`, `"vllm:MODEL"`, or a name of `SCORERS` with settings
            (`["hf", {"model": MODEL, "dtype": "float32"}]`, also as the text of this JSON), or a `Scorer`.

    Raises:
        ValueError: no such scorer, settings that it does not take, or a spec recorded with an object.
    """
    if isinstance(scorer, type):
        raise ValueError(f"the scorer {scorer.__name__} is a class; make an object: {scorer.__name__}(…)")
    if scorer is None or isinstance(scorer, Scorer):
        return scorer
    if isinstance(scorer, str) and scorer.startswith(_UNNAMED):
        raise ValueError(
            f"this spec was recorded with a scorer that has no name ({scorer[len(_UNNAMED) :]}); "
            f"give it by name from the start: {SCORER_FORMS}"
        )
    if isinstance(scorer, str) and scorer.lstrip().startswith("["):
        scorer = _parsed(scorer)
    if isinstance(scorer, str):
        name, _, model = scorer.partition(":")
        settings = {"model": model} if model else {}
    elif isinstance(scorer, Sequence) and len(scorer) == 2 and isinstance(scorer[1], Mapping):
        pair: Sequence[Any] = scorer
        name, settings = str(pair[0]), dict(pair[1])
    else:
        raise ValueError(f"a scorer is {SCORER_FORMS}; got {scorer!r}")
    if name not in SCORERS:
        raise ValueError(f"no scorer {scorer!r}; give {SCORER_FORMS}")
    if "api_key" in settings:
        raise ValueError("a spec must hold no key; make the scorer yourself and pass the object")
    check_arguments(f"the scorer {name}", settings, parameters_of(import_object(SCORERS[name])))
    return _load_scorer(name, json.dumps(settings, sort_keys=True))


def plain_scorer(scorer: ScorerSpec) -> str | list[Any] | None:
    """A scorer's name and settings; of an object a note that it has none, which `make_scorer` refuses."""
    if isinstance(scorer, Scorer):
        return _UNNAMED + type(scorer).__name__
    if isinstance(scorer, str) or not isinstance(scorer, Sequence):
        return scorer
    return list(scorer)


def _parsed(text: str) -> list[Any]:
    """A scorer's name and settings out of JSON, as a command line gives them."""
    try:
        pair: list[Any] = json.loads(text)
    except ValueError as error:
        raise ValueError(f"a scorer is {SCORER_FORMS}; got {text!r}, which is no JSON ({error})") from error
    return pair


def _methods_in_json(text: str) -> list[Any]:
    try:
        methods = json.loads(text)
    except ValueError as error:
        raise ValueError(f"methods must be JSON, got {text!r} ({error})") from error
    if not isinstance(methods, list):
        raise ValueError(f"methods must be a JSON list, got {text!r}")
    return [methods] if len(methods) == 2 and isinstance(methods[1], Mapping) else methods


@functools.lru_cache(maxsize=8)
def _load_scorer(name: str, settings: str) -> Scorer:
    scorer: Scorer = import_object(SCORERS[name])(**json.loads(settings))
    return scorer


def _make_method(method: MethodSpec) -> RewardMethod:
    if isinstance(method, RewardMethod):
        return method
    pair: Sequence[Any] = [method, {}] if isinstance(method, str) else method
    if not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[1], Mapping):
        raise TypeError(f"a method is a name, [name, settings] or a RewardMethod object, got {method!r}")
    name, settings = str(pair[0]), dict(pair[1])
    if name not in METHODS and ":" not in name:
        raise ValueError(f"no method {name!r}; choose one of {', '.join(METHODS)}")
    kind = import_object(METHODS.get(name, name))
    check_arguments(name, settings, parameters_of(kind))
    made = kind(**settings)
    if not isinstance(made, RewardMethod):
        raise TypeError(f"{name!r} is no RewardMethod but {type(made).__name__}")
    return made
