"""Prompt templates, tags in replies, and sentences."""

from __future__ import annotations

import copy
import os
import re
import string
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from memenvs.core.data import shown
from memenvs.core.files import json_sha256
from memenvs.core.spaces import replace_surrogates

KNOWN_TAGS = (
    *("think", "search", "answer", "information", "mem"),
    *("reasoning", "tool", "result", "tool_call", "tool_response"),
)
"""Tags that agents or environments use."""

_KNOWN_TAGS = re.compile(rf"<(/?\s*(?:{'|'.join(KNOWN_TAGS)})\s*)>", re.IGNORECASE)

Thoughts = Literal["strip", "opened", "keep"]
"""What to do with the thought that opens a reply; see `thought_end`."""


Texts = dict[str, str] | str
"""What an argument `template` takes: prompts by the names of their parts, or a file; see `read_prompts`."""

OTHER_NAMES = {
    "prompt": "question",  # MemAgent, ReMemR1, InfoMem D, ReSearch
    "questions": "question",  # MEM1
    "query": "question",  # InfoMem C.3
    "ground_truth_candidates": "reference",  # InfoMem C.3
    "ground_truth_text": "reference",  # MT-PPO D.2
    "gold_answer": "reference",  # InfoMem B.2
    "turns_text": "transcript",  # MT-PPO D.2
    "prompt_text": "first_prompt",  # MT-PPO D.2
    "len(turns)": "turns",  # MT-PPO D.2
}
"""Placeholders as papers and their code print them, and what they are called here."""

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{\s*([A-Za-z_]\w*(?:\(\s*\w+\s*\))?)\s*\}")
_LATEX = re.compile(  # what makes the braces after it LaTeX's
    r"(?:\\[A-Za-z]+(?:\[[^\[\]{}]*\]|\{(?:[^{}]|\{[^{}]*\})*\})*[ \t]*|[\^_])\Z"
)
_HEADING = re.compile(r"===[ \t]*([A-Za-z][\w-]*)[ \t]*===[ \t]*")


class Template:
    r"""A text with placeholders such as `{question}`; every other brace is plain text (`\boxed{…}`).

    Args:
        text: the template.
        required: placeholders it must have.
        optional: placeholders it may have.
        name: what the template is called in errors.

    Raises:
        ValueError: a required placeholder is missing.

    >>> Template("Q: {question} {x}", required=["question"], name="read").fill(question="{question}?")
    'Q: {question}? {x}'
    """

    def __init__(
        self,
        text: str,
        *,
        required: Collection[str] = (),
        optional: Collection[str] = (),
        name: str = "template",
    ) -> None:
        self.required, self.optional = tuple(required), tuple(optional)
        known = "|".join((*required, *optional))
        self._parts = re.split(r"\{(" + known + r")\}", text) if known else [text]
        self._check(name)

    @property
    def places(self) -> tuple[str, ...]:
        """The placeholders that it has, in their order."""
        return tuple(self._parts[1::2])

    def reworded(self, text: str, name: str) -> Template:
        r"""The same prompt in the words of a user.

        A placeholder may have the name that a paper prints (`OTHER_NAMES`), and `{{word}}` stands for
        `{word}`. Where every brace is doubled or a placeholder's, the text is one that a paper's code passes
        to `str.format`: doubled braces and doubled backslashes become single ones, and lines that end in a
        backslash are joined. Braces around anything but a word are plain text, and so are those of a LaTeX
        command around a word that is not a placeholder.

        Args:
            text: the other words, which must, and may, have the same placeholders.
            name: what the template is called in errors.

        Raises:
            ValueError: a required placeholder is missing, or one is unknown.

        >>> ask = Template("{question}", required=["question"])
        >>> ask.reworded('Use {"tool": "x"} or \\boxed{answer}: {prompt}', "ask").fill(question="Why?")
        'Use {"tool": "x"} or \\boxed{answer}: Why?'
        >>> ask.reworded(r"Answer {prompt} in \\boxed{{}}.", "ask").fill(question="Why?")
        'Answer Why? in \\boxed{}.'
        """
        places = (*self.required, *self.optional)
        known = {place: place for place in places}
        others = {other: place for other, place in OTHER_NAMES.items() if place in places}
        known |= {other: place for other, place in others.items() if other not in places}
        parts = _format_parts(text, known)
        if parts is None:
            parts, at = [""], 0
            for match in _PLACEHOLDER.finditer(text):
                escaped, word = match[1], re.sub(r"\s", "", match[2] or "")
                parts[-1] += text[at : match.start()]
                at = match.end()
                if word in known:
                    parts += [known[word], ""]
                    continue
                parts[-1] += f"{{{escaped}}}" if escaped else match[0]
                if word and match[0] == f"{{{word}}}" and not _LATEX.search(text[: match.start()]):
                    may = f"may have {_listed(known)}" if known else "has no placeholders"
                    raise ValueError(
                        f"the {name!r} template has an unknown placeholder {{{word}}}; it {may}. Write "
                        f"{{{{{word}}}}} for the text {{{word}}}"
                    )
            parts[-1] += text[at:]
        template = copy.copy(self)
        template._parts = parts
        template._check(name)
        return template

    def fill(self, until: str = "", /, **values: object) -> str:
        """The text with its placeholders filled; values without a placeholder are left out.

        Args:
            until: a placeholder of the text; stop before its first occurrence.
            **values: what fills each placeholder, by name.
        """
        parts = list(self._parts)
        if until:
            parts = parts[: 2 * parts[1::2].index(until) + 1]
        parts[1::2] = [str(values[place]) for place in parts[1::2]]
        return "".join(parts)

    def _check(self, name: str) -> None:
        for place in self.required:
            if place not in self.places:
                raise ValueError(f"the {name!r} template has no placeholder {{{place}}}; add it")


def replace_templates(
    templates: Mapping[str, Template], given: Mapping[str, str] | str | None, main: Collection[str] = ()
) -> tuple[dict[str, Template], dict[str, str]]:
    """An environment's templates, with the texts that its argument `template` gives, and these texts.

    Args:
        templates: the environment's own, by their names.
        given: other texts for some of them, as for `read_prompts`. Each must, and may, have the same
            placeholders as the environment's own.
        main: names of the main prompts, as for `read_prompts`; by default the first.

    Raises:
        ValueError: an unknown name, a text without a required placeholder or with an unknown one, or a file
            that cannot be read.
    """
    texts = read_prompts(given, templates, main or list(templates)[:1])
    replaced = {name: templates[name].reworded(text, name) for name, text in texts.items()}
    return {**templates, **replaced}, texts


def read_prompts(
    given: Mapping[str, str] | str | None, parts: Collection[str], main: Collection[str]
) -> dict[str, str]:
    """The texts of prompts that a user gives.

    Args:
        given: texts, or files, by the names of the parts; or a file, or the text of one. A file is UTF-8; the
            break of its last line is not part of the prompt. If it begins with a heading, `=== PART ===`,
            each heading begins the prompt of a part; otherwise the file is the main prompt. The text of a
            part by its name may have lines of this form, if it does not begin with the heading of a part.
        parts: names of the parts.
        main: names of the main prompts.

    Raises:
        ValueError: there is no such file or part, a file is not UTF-8, or it has no headings where there is
            more than one main prompt.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        texts = _sections(file_or_text(given, "template", is_prompt=True))
        if "" in texts:
            if len(main) > 1:
                names = " and ".join(map(repr, main))
                raise ValueError(
                    f"template {shown(given)} holds one prompt, and the environment has {names}; begin each "
                    f"with a line such as === {next(iter(main))} ==="
                )
            texts = {next(iter(main)): texts[""]}
    else:
        texts = {name: file_or_text(text, f"template {name!r}") for name, text in given.items()}
        if several := [name for name, text in texts.items() if _first_heading(text) in parts]:
            raise ValueError(
                f"template {several[0]!r} begins with the heading of a part; give the whole as template=FILE"
            )
    for name in texts:
        if name not in parts:
            remedy = f"; if the line === {name} === is part of a prompt, give each prompt by its part's name"
            raise ValueError(
                f"template has an unknown part {name!r}; the parts are {', '.join(map(repr, parts))}"
                + (remedy if isinstance(given, str) else "")
            )
    return texts


def warn_of_tags(name: str, text: str, read: Collection[str], known: Collection[str] = KNOWN_TAGS) -> None:
    """Warn if a prompt asks for a tag that agents use elsewhere and that is not read here.

    Args:
        name: what the prompt is called.
        text: the prompt.
        read: the tags that the environment reads or writes.
        known: the tags that agents use.
    """
    if unread := [tag for tag in sorted(known) if tag not in read and f"<{tag}>" in text]:
        here = ", ".join(f"<{tag}>" for tag in sorted(read)) or "no such tag"
        warnings.warn(
            f"the {name!r} template asks for <{unread[0]}>, which is plain text here: the environment reads "
            f"{here}, and other tags in another form or memory mode (docs/prompts.md)",
            stacklevel=4,
        )


def prompts_hash(given: Any, where: str = "template") -> str:
    """A hash of the texts that `read_prompts` reads; anything else is hashed unchanged.

    Args:
        given: texts or files, as for `read_prompts`.
        where: the setting that holds them, for errors.

    Raises:
        ValueError: there is no such file, or it is not UTF-8.
    """
    texts = given if isinstance(given, Mapping) else {"": given}
    return json_sha256(
        {
            name: file_or_text(text, f"{where} {name!r}" if name else where)
            if isinstance(text, str)
            else text
            for name, text in texts.items()
        }
    )


def read_system_prompt(given: str) -> str:
    """The text of a system message, which has no placeholders, from a file or given directly; see `reworded`.

    Raises:
        ValueError: there is no such file, it is not UTF-8, or the text has a placeholder.
    """
    name = "system_prompt"
    return Template("").reworded(file_or_text(given, name), name).fill()


def read_prompt(path: str | Path) -> str:
    """The prompt in a file of UTF-8 text, with line feeds alone, without the break of its last line.

    Raises:
        ValueError: there is no such file, or it is not UTF-8.
    """
    try:
        text = Path(path).expanduser().read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot read the prompt in {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 from byte {error.start} on; save it as UTF-8") from error
    if "\0" in text:
        raise ValueError(f"{path} is not a text in UTF-8; save it as UTF-8")
    return _line_feeds(text).removesuffix("\n")


def file_or_text(given: str, where: str, is_prompt: bool = False) -> str:
    """The prompt in a file, or the text itself; a part of `read_prompts`.

    One word names a file if it has a suffix, begins as a path or names a folder that exists; "n/a" does not.
    One line without a brace names a file if `is_prompt`, because the main prompt has a placeholder.
    """
    if "\n" not in given and "\0" not in given and given.strip():
        path = Path(given).expanduser()
        if os.path.isfile(path):
            return read_prompt(path)
        is_path = bool(path.suffix) or given.startswith(("/", "./", "../", "~"))
        is_path = is_path or (bool(path.parent.name) and os.path.isdir(path.parent))  # False for a long text
        if "{" not in given and (is_prompt or (is_path and given.split() == [given])):
            what = "is a folder" if os.path.isdir(path) else "does not exist"
            raise ValueError(f"{where}: {shown(given)} {what}; give a file, or the text of the prompt")
    return _line_feeds(replace_surrogates(given))


def _sections(text: str) -> dict[str, str]:
    """The prompts of a text with headings, by their names; of one without headings as ""."""
    lines = text.split("\n")
    if not _first_heading(text):
        return {"": text}
    sections: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if heading := _HEADING.fullmatch(line):
            name = heading[1]
            if name in sections:
                raise ValueError(f"template has the heading === {name} === twice; keep one")
            sections[name] = []
        elif name:
            sections[name].append(line)
    return {name: "\n".join(lines) for name, lines in sections.items()}


def _first_heading(text: str) -> str:
    """The name in the heading that a text begins with; empty if it begins with none."""
    start = next((line for line in text.split("\n") if line.strip()), "")
    heading = _HEADING.fullmatch(start)
    return heading[1] if heading else ""


def _format_parts(text: str, known: Mapping[str, str]) -> list[str] | None:
    """Texts and placeholders in turn of a text for `str.format`; None where it is none."""
    if "{{" not in text and "}}" not in text:
        return None
    parts = [""]
    try:
        for literal, field, spec, conversion in string.Formatter().parse(text):
            parts[-1] += literal.replace("\\\n", "").replace("\\\\", "\\")
            if field is not None:
                if spec or conversion or field not in known:
                    return None
                parts += [known[field], ""]
    except ValueError:  # a single brace
        return None
    return parts


def _listed(known: Mapping[str, str]) -> str:
    """The placeholders, each with its other names."""
    others: dict[str, list[str]] = {place: [] for place in known.values()}
    for name, place in known.items():
        if name != place:
            others[place].append(f"{{{name}}}")
    return ", ".join(
        f"{{{place}}}" + (f" (or {', '.join(names)})" if names else "") for place, names in others.items()
    )


def _line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


class Tagged(NamedTuple):
    """The content between `<tag>` and `</tag>`.

    Attributes:
        text: the content, not stripped.
        start: where the opening tag begins, in characters.
        end: one past the closing tag.
    """

    text: str
    start: int
    end: int


def first_pair(reply: str, tag: str, start: int = 0) -> Tagged | None:
    """The first `<tag>` from `start` on, up to the first `</tag>` behind it; None without such a pair.

    >>> first_pair("<a>x</a><a>y</a>", "a")
    Tagged(text='x', start=0, end=8)
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    begin = reply.find(opening, start)
    end = reply.find(closing, begin + len(opening)) if begin >= 0 else -1
    if end < 0:
        return None
    return Tagged(reply[begin + len(opening) : end], begin, end + len(closing))


def in_order(reply: str, *tags: str) -> list[Tagged] | None:
    """The pairs of a reply that is nothing but one pair of each tag, in this order and with spaces between.

    >>> [pair.text for pair in in_order("<think>t</think> <answer>Up</answer>", "think", "answer")]
    ['t', 'Up']
    >>> in_order("well, <think>t</think><answer>Up</answer>", "think", "answer") is None
    True
    """
    pairs: list[Tagged] = []
    at = 0
    for tag in tags:
        pair = first_pair(reply, tag, at)
        if pair is None or reply[at : pair.start].strip():
            return None
        pairs.append(pair)
        at = pair.end
    return None if reply[at:].strip() else pairs


def escape_tags(text: str) -> str:
    """`text` with the tags that agents and environments use written in ‹ ›, so that none is one."""
    return _KNOWN_TAGS.sub("‹\\1›", text)


def holds_known_tag(text: str) -> bool:
    """Whether the text contains a tag that agents or environments use."""
    return _KNOWN_TAGS.search(text) is not None


def thought_end(reply: str, thoughts: Thoughts = "strip") -> int:
    """Where a reply resumes behind the thought that opens it, in characters; 0 where no thought does.

    The thought is a leading `<think>…</think>`, or all that comes before a `</think>` without a `<think>`
    before it (the chat template wrote that one), and the white space after it. A leading `<think>` that
    is never closed was cut by the limit of the reply: nothing is left, and the result is the reply's length.

    Args:
        reply: the reply.
        thoughts: `"strip"`; `"opened"`, where the chat template writes `<think>` before every reply, so that
            a reply without `</think>` is a thought that was cut; or `"keep"`, for which the answer is 0.

    >>> "<think>Ada?</think> She wrote it."[thought_end("<think>Ada?</think> She wrote it."):]
    'She wrote it.'
    >>> thought_end("Ada? </think>Ada"), thought_end("<think>Ada?"), thought_end("Ada <think>?</think>")
    (13, 11, 0)
    """
    if thoughts == "keep":
        return 0
    closing = reply.find("</think>")
    leads = thoughts == "opened" or reply.lstrip().startswith("<think>")
    if closing < 0:
        return len(reply) if leads else 0
    if not leads and "<think>" in reply[:closing]:
        return 0
    return len(reply) - len(reply[closing + len("</think>") :].lstrip())


_LONGEST = 100  # words of a sentence, where prose has no stops
_WORD = re.compile(
    r"[^\s\u3002\uff01\uff1f]*[\u3002\uff01\uff1f]+[^\w\s]*|\S+"
)  # Chinese: no space after a stop
_STOPS = frozenset(".!?\u2026\u3002\uff01\uff1f")
_TO_LETTER = re.compile(r".*\w", re.DOTALL)
_ABBREVIATIONS = frozenset("dr. e.g. etc. i.e. mr. mrs. ms. no. prof. st. u.s. vs.".split())


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, as it has them, without the white space between them.

    A sentence ends at a stop, unless a small letter follows or the stop is an abbreviation's or an initial's;
    and after 100 words.

    >>> split_sentences("Dr. No met J. Doe, e.g. here.  Then?")
    ['Dr. No met J. Doe, e.g. here.', 'Then?']
    """
    words = list(_WORD.finditer(text))
    sentences, first = list[str](), 0
    for last, word in enumerate(words):
        after = words[last + 1][0] if last + 1 < len(words) else ""
        if not after or _stops(word[0], after) or last + 1 - first == _LONGEST:
            sentences.append(text[words[first].start() : word.end()])
            first = last + 1
    return sentences


def _stops(word: str, after: str) -> bool:
    """Whether a sentence ends between two words."""
    if word[-1].isalnum() or after[:1].islower():  # most words end here
        return False
    # A search for a stop before the end would take quadratic time on a long run of stops.
    letters = _TO_LETTER.match(word)
    if _STOPS.isdisjoint(word[letters.end() if letters else 0 :]):
        return False
    bare = word.lstrip("([\"'").lower()
    return bare not in _ABBREVIATIONS and not (len(bare) == 2 and bare[0].isalpha() and bare[1] == ".")


def open_thought(reply: str) -> str:
    """`reply` behind the `<think>` of the chat template, where it closes a thought that it does not open.

    >>> open_thought("Ada? </think>Ada"), open_thought("Ada <think>?</think>")
    ('<think>Ada? </think>Ada', 'Ada <think>?</think>')
    """
    closing = reply.find("</think>")
    return f"<think>{reply}" if closing >= 0 and "<think>" not in reply[:closing] else reply
