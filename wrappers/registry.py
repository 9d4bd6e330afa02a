"""Methods and scorers as plain data, for specs: a name or `module:Class` with settings, both ways."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from memenvs.core.arguments import check_arguments, parameters_of, read_arguments
from memenvs.core.data import convert, parse_json
from memenvs.core.errors import unknown_name
from memenvs.core.optional import import_object
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.names import METHODS, SCORERS
from memenvs.wrappers.scorers import HFScorer, Scorer, TemplateScorer

SCORER_FORMS = '"lexical", "hf:MODEL", "vllm:MODEL", ["server", {"url": …, "model": …}] or a Scorer'

MethodSpec = RewardMethod | type[RewardMethod] | str | Sequence[Any]
ScorerSpec = Scorer | str | Sequence[Any] | None
_Named: Any = tuple[str, dict[str, Any]]


def make_methods(methods: Sequence[MethodSpec]) -> list[RewardMethod]:
    """The methods of a list: each a method, its class, a name, or one with settings.

    `["InfoMem", {"beta": 0.1}]` has settings. A name is one of `METHODS` in any case, or `module:Class` for a
    method of your own.

    Raises:
        ValueError: the list is empty, a name is unknown, or a method does not take a setting.
    """
    if isinstance(methods, (str, RewardMethod, Mapping)) or not methods:
        raise ValueError(f"methods must be a list of {', '.join(METHODS)}, e.g. ['InfoMem'], got {methods!r}")
    return [_make_method(method) for method in methods]


def read_methods(texts: Sequence[str]) -> list[MethodSpec]:
    """The methods that a command line names after `--methods`, checked.

    A text is a name, in any case; `NAME=VALUE`, a setting of the method before it; or JSON, a name with
    settings or a list of methods as for `make_methods`.

    Raises:
        ValueError: a text is something else, or names an unknown method or setting.

    >>> read_methods(["tamtrl", "length_norm=false", '["MemPO"]'])
    [['TAMTRL', {'length_norm': False}], 'MemPO']
    """
    specs: list[Any] = []
    for text in texts:
        if text.lstrip().startswith(("[", "{")):
            methods = convert(parse_json(text, "methods"), list[Any], "methods")
            specs += [methods] if len(methods) == 2 and isinstance(methods[1], Mapping) else methods
        elif "=" not in text:
            specs.append(method_name(text))
        elif specs:
            name, settings = (specs[-1], {}) if isinstance(specs[-1], str) else specs[-1]
            specs[-1] = [name, read_arguments([json.dumps(settings), text], f"methods: {name}")]
        else:
            raise ValueError(f"methods: {text!r} is a setting; write the name of its method before it")
    if specs:
        make_methods(specs)
    return specs


def plain_method(method: RewardMethod) -> list[Any]:
    """The name and the settings of a method; `make_methods` makes it again.

    Raises:
        TypeError: its settings are not plain data.
    """
    place = f"{type(method).__module__}:{type(method).__qualname__}"
    name = next((name for name, location in METHODS.items() if location == place), place)
    return [name, json.loads(json.dumps(method.settings()))]


def method_name(text: str) -> str:
    """The name in `METHODS` that a text spells, in upper or lower case; other texts unchanged."""
    return next((name for name in METHODS if name.lower() == text.lower()), text)


def make_scorer(scorer: ScorerSpec, template: str | None = None) -> Scorer | None:
    """A scorer by its name; an object or None unchanged. Equal names and settings share one object.

    Args:
        scorer: `"lexical"`, `"hf:MODEL"`, `"vllm:MODEL"`, or a name of `SCORERS` with settings
            (`["hf", {"model": MODEL, "dtype": "float32"}]`, also as the text of this JSON), or a `Scorer`.
        template: chat template around its prompts; see `memenvs.wrappers.scorers.TemplateScorer`.

    Raises:
        ValueError: no such scorer, settings that it does not take, or a spec recorded with an object.
    """
    if template is not None:
        bare = make_scorer(scorer)
        return bare and TemplateScorer(bare, template)
    if scorer is None or (isinstance(scorer, Scorer) and not isinstance(scorer, type)):
        return scorer
    if isinstance(scorer, str) and scorer.lstrip().startswith("["):
        scorer = parse_json(scorer, "scorer", f"a scorer is {SCORER_FORMS}")
    if isinstance(scorer, str):
        name, _, model = scorer.partition(":")
        scorer = [name, {"model": model} if model else {}]
    name, settings = convert(scorer, _Named, "scorer", f"a scorer is {SCORER_FORMS}")
    if name not in SCORERS:
        raise ValueError(unknown_name("no scorer", name, SCORERS, f"; give {SCORER_FORMS}"))
    if "api_key" in settings:
        raise ValueError("a spec must not contain a key; make the scorer yourself and pass the object")
    check_arguments(f"the scorer {name}", settings, parameters_of(import_object(SCORERS[name])))
    return _load_scorer(name, json.dumps(settings, sort_keys=True))


def choose_scorer(scorer: ScorerSpec, model: Any) -> Scorer | None:
    """The scorer of the reward methods of a policy that plays.

    Args:
        scorer: as for `make_scorer`, or `"policy"`; None is the policy if that is a model in this process.
        model: that model, an `HFPolicy`, which reads prompts in its chat template; or None.
    """
    if scorer in ("policy", None) and hasattr(model, "model"):
        return make_scorer(HFScorer(model.model, model.tokenizer), model.template)
    return make_scorer(scorer)


def plain_scorer(scorer: ScorerSpec) -> str | list[Any] | None:
    """A scorer's name and settings; for an object, a note that it has none, which `make_scorer` refuses."""
    if isinstance(scorer, Scorer):
        return f"object {type(scorer).__name__}, which has no name"
    return list(scorer) if isinstance(scorer, Sequence) and not isinstance(scorer, str) else scorer


@functools.lru_cache(maxsize=8)
def _load_scorer(name: str, settings: str) -> Scorer:
    scorer: Scorer = import_object(SCORERS[name])(**json.loads(settings))
    return scorer


def _make_method(method: MethodSpec) -> RewardMethod:
    if isinstance(method, RewardMethod):
        return method
    kind: Any = method
    if isinstance(method, type):
        name, settings = method.__name__, {}
    else:
        pair = [method, {}] if isinstance(method, str) else method
        wanted = "give a RewardMethod, its class, its name, or [name, settings]"
        name, settings = convert(pair, _Named, "a method", wanted)
        name = method_name(name)
        if name not in METHODS and ":" not in name:
            raise ValueError(unknown_name("no method", name, METHODS, ", or module:Class of your own"))
        kind = import_object(METHODS.get(name, name))
    fits = isinstance(kind, type) and issubclass(kind, RewardMethod) and dataclasses.is_dataclass(kind)
    if not fits:
        raise ValueError(
            f"{name} is not a reward method; give a subclass of RewardMethod that is a dataclass"
        )
    check_arguments(name, settings, parameters_of(kind))
    new: RewardMethod = kind(**settings)
    return new
