"""Prompts of a user's own: their files, placeholders and braces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memenvs.core.text import (
    Template,
    prompts_hash,
    read_prompt,
    read_prompts,
    read_system_prompt,
    replace_templates,
    split_sentences,
)

READ = Template("{question}{memory}{chunk}", required=("question", "memory", "chunk"), optional=("turn",))
VALUES = {"question": "Q", "memory": "M", "chunk": "C", "turn": 1}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{question}|{memory}|{chunk}", "Q|M|C"),
        ("{prompt}|{memory}|{chunk}", "Q|M|C"),  # MemAgent
        ("{questions}|{memory}|{chunk}", "Q|M|C"),  # MEM1
        ("{query}|{memory}|{chunk}|{ turn }", "Q|M|C|1"),
        # as a paper prints Python, for str.format
        (r"{prompt}|{memory}|{chunk} \\boxed{{}}", r"Q|M|C \boxed{}"),
        (
            '{{"name": "x", "args": {{"q": "y"}}}} {prompt}{memory}{chunk}',
            '{"name": "x", "args": {"q": "y"}} QMC',
        ),
        ("Read \\\n{prompt}|{memory}|{chunk} {{}}", "Read Q|M|C {}"),
        # braces of JSON, LaTeX and prose
        ('{"name": "x", "args": {"q": {question}}} {memory}{chunk}', '{"name": "x", "args": {"q": Q}} MC'),
        (
            r"\boxed{answer} \frac{a}{b} x^{n} a_{i} {question}{memory}{chunk}",
            r"\boxed{answer} \frac{a}{b} x^{n} a_{i} QMC",
        ),
        (
            r"\boxed {answer} \boxed[1]{x} \frac{\sqrt{a}}{b} {question}{memory}{chunk}",
            r"\boxed {answer} \boxed[1]{x} \frac{\sqrt{a}}{b} QMC",
        ),
        (r"\boxed{question} turn_{turn} {memory}{chunk}", r"\boxedQ turn_1 MC"),  # placeholders
        ("{} {0} {the answer} {…} {question}{memory}{chunk}", "{} {0} {the answer} {…} QMC"),
        ('{"a": 1} {{answer}} {question}{memory}{chunk}', '{"a": 1} {answer} QMC'),
    ],
)
def test_placeholders_have_their_names_here_or_in_papers_and_other_braces_stay(text, filled):
    assert READ.reworded(text, "read").fill(**VALUES) == filled


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{question} {memory}", r"no placeholder {chunk}"),
        ("{{question}} {memory} {chunk}", r"no placeholder {question}"),
        ("{question} {memory} {chunk} {score}", r"{score}; .*{question} \(or {prompt}.*{turn}"),
        ('{"a": 1} {question} {memory} {chunk} {answer}', r"unknown placeholder {answer}"),
    ],
)
def test_a_missing_and_an_unknown_placeholder_are_named(text, said):
    with pytest.raises(ValueError, match=said.replace("{", r"\{").replace("}", r"\}")) as error:
        READ.reworded(text, "read")
    assert "\n" not in str(error.value)
    assert "'read'" in str(error.value)


@pytest.mark.parametrize(
    "data",
    [
        b"Q: {question}\nA:",
        b"Q: {question}\nA:\n",
        b"\xef\xbb\xbfQ: {question}\r\nA:\r\n",
        b"Q: {question}\rA:",
    ],
)
def test_marks_and_line_ends_of_an_editor_are_no_part_of_a_prompt(tmp_path, data):
    file = tmp_path / "ask.txt"
    file.write_bytes(data)
    assert read_prompt(file) == "Q: {question}\nA:"
    assert read_prompts(str(file), ["ask"], ["ask"]) == {"ask": "Q: {question}\nA:"}


def test_headings_divide_a_file_into_the_prompts_of_its_parts(tmp_path):
    file = tmp_path / "all.txt"
    file.write_text("\n=== read ===\nRead.\n\n=== no_memory ===\nNone.\n=== answer ===\n\nAnswer:\n\n")
    texts = read_prompts(str(file), ["read", "answer", "no_memory"], ["read", "answer"])
    assert texts == {"read": "Read.\n", "no_memory": "None.", "answer": "\nAnswer:\n"}


def test_a_part_of_one_word_is_a_file_only_if_it_looks_like_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    parts = ["read", "no_memory"]
    given = {"read": "Read {chunk}.", "no_memory": "n/a"}
    assert read_prompts(given, parts, ["read"])["no_memory"] == "n/a"
    for missing in ("prompts/none", "./none", "none.txt"):
        with pytest.raises(ValueError, match="does not exist"):
            read_prompts({**given, "no_memory": missing}, parts, ["read"])


def test_a_long_line_with_a_slash_is_a_text():
    line = "You answer a question by searching. " * 8 + "Give the answer in <answer>text</answer>: {question}"
    assert read_prompts(line, ["main"], ["main"]) == {"main": line}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("missing.txt", "'missing.txt' does not exist"),
        ("no such name", "'no such name' does not exist"),
        (".", "'.' is a folder"),
        ({"read": "missing.txt"}, "'missing.txt' does not exist"),
        ({"write": "text"}, "unknown part 'write'; the parts are 'read', 'answer'"),
        ("Read {chunk}.", "'read' and 'answer'; begin each with a line such as === read ==="),
        ("=== read ===\nx\n=== read ===\ny", "=== read === twice"),
        ("=======\nx {chunk}", "holds one prompt"),  # a rule of Markdown
        ("=== write ===\nx", "unknown part 'write'"),
        ({"read": "=== read ===\nx"}, "'read' begins with the heading of a part"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(given, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as error:
        read_prompts(given, ["read", "answer"], ["read", "answer"])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_prompt_may_have_lines_that_look_like_headings_where_its_part_is_named(tmp_path):
    file = tmp_path / "ask.txt"
    file.write_text("=== Task ===\n{question}\n=== Task ===\n")
    with pytest.raises(ValueError, match="=== Task === twice"):
        read_prompts(str(file), ["ask"], ["ask"])
    assert read_prompts({"ask": str(file)}, ["ask"], ["ask"]) == {
        "ask": "=== Task ===\n{question}\n=== Task ==="
    }


def test_a_lone_surrogate_does_not_reach_an_observation():
    assert read_prompts("{question}\udcff", ["ask"], ["ask"]) == {"ask": "{question}\ufffd"}


@pytest.mark.parametrize("data", ["é {question}".encode("latin-1"), "{question}".encode("utf-16"), b"a\0b"])
def test_another_encoding_is_refused(tmp_path, data):
    file = tmp_path / "ask.txt"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"ask.txt is not .*UTF-8"):
        read_prompt(file)


def test_a_system_message_is_read_by_the_same_rules_and_has_no_placeholders(tmp_path):
    file = tmp_path / "system.txt"
    file.write_bytes(b'Use {"name": "x"} or {{x}}.\r\n')
    assert read_system_prompt(str(file)) == 'Use {"name": "x"} or {x}.'
    assert read_system_prompt("Be brief.") == "Be brief."
    with pytest.raises(ValueError, match=r"unknown placeholder \{tool_descriptions\}"):
        read_system_prompt("Tools: {tool_descriptions}")


def test_a_text_is_a_text_and_equal_prompts_have_equal_hashes(tmp_path):
    file = tmp_path / "ask.txt"
    file.write_text("Q: {question}\n")
    _, texts = replace_templates({"ask": Template("{question}", required=["question"])}, "Q: {question}")
    assert texts == {"ask": "Q: {question}"}
    assert prompts_hash(str(file)) == prompts_hash("Q: {question}") != prompts_hash("Q: {question}\n")


@pytest.mark.parametrize("value", [3, ["a"], {"ask": 3}])
def test_a_template_that_is_no_text_has_a_hash_too(value):
    # an environment of the user's may take something else by this name
    assert prompts_hash(value) == prompts_hash(value) != prompts_hash("Q: {question}")


@given(
    st.text(
        alphabet=st.sampled_from("aZé9 .!?\"')\n\t\u3000\u3002\uff01\uff1f\u300d\u2014\u2026"), max_size=300
    )
)
def test_sentences_joined_are_the_text_up_to_white_space(text):
    parts = split_sentences(text)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(part.strip() == part != "" for part in parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One. Two!  Three?\nFour", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. No met J. Doe, e.g. Tuesday. Then?", ["Dr. No met J. Doe, e.g. Tuesday.", "Then?"]),
        ('"Go." He went (fast.) Yes', ['"Go."', "He went (fast.)", "Yes"]),
        ("It is 3.5 m. or so ... he said.", ["It is 3.5 m. or so ... he said."]),
        ("\u4f60\u597d\u3002\u518d\u89c1\uff01", ["\u4f60\u597d\u3002", "\u518d\u89c1\uff01"]),
    ],
)
def test_sentences_end_at_stops(text, parts):
    assert split_sentences(text) == parts


def test_prose_without_stops_is_cut():
    assert [len(part.split()) for part in split_sentences("word " * 250)] == [100, 100, 50]


def test_a_long_run_of_stops_ends_a_sentence_at_once():
    stops = "!" * 200_000  # of which a search from each stop to the end would take minutes
    assert split_sentences(f"{stops}b A") == [f"{stops}b A"]
    assert split_sentences(f"{stops} A") == [stops, "A"]
