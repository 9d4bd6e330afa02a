"""False contexts that a model at an endpoint writes."""

import json

from chat_stub import ChatStub

from research.discriminate import read_contexts
from research.false_contexts import main

PASSAGES = {
    "Who built the dam?": ("Ann Lee", "Ann Lee built the dam in 1931."),
    "When?": ("1950", "It was 1950."),
}


def squad(path):
    paragraphs = [
        {
            "context": context,
            "qas": [{"id": question, "question": question, "answers": [{"text": answer, "answer_start": 0}]}],
        }
        for question, (answer, context) in PASSAGES.items()
    ]
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "Dam", "paragraphs": paragraphs}]}))
    return str(path)


def reply(fields):
    """Two good contexts for the dam; for the other question one that holds the answer."""
    prompt = fields["messages"][0]["content"]
    texts = (
        ("Bo Roe built it.", "The dam burst.") if "the dam" in prompt else ("It was 1950!", "Nobody knows.")
    )
    pair = {f"hallucinated_context_{number}": text for number, text in enumerate(texts, 1)}
    return 200, f"Here they are:\n```json\n{json.dumps(pair)}\n```"


def test_the_contexts_are_read_by_discriminate_and_kept_replies_are_not_asked_for_again(tmp_path, capsys):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text('{question}|{gold_answer}|{context}\n{"hallucinated_context_1": "..."}')
    out = tmp_path / "contexts.jsonl"
    with ChatStub(reply) as stub:
        command = ["--source", squad(tmp_path / "dev.json"), "--url", stub.url, "--model", "m"]
        command += ["--out", str(out), "--template", str(prompt)]
        assert main(command) == 0
        assert "1 left out: a context holds the right answer" in capsys.readouterr().out
        asked = [body["messages"][0]["content"].partition("\n")[0] for body in stub.bodies]
        assert "Who built the dam?|Ann Lee|Ann Lee built the dam in 1931." in asked
        (contexts,) = read_contexts(out)
        assert contexts.true == "Ann Lee built the dam in 1931."
        assert contexts.corrupted == ("Bo Roe built it.", "The dam burst.")
        assert main(command) == 0
        assert len(stub.bodies) == 3  # the reply that could not be used is asked for again


def test_a_wrong_file_is_one_line(tmp_path, capsys):
    flags = ["--url", "http://127.0.0.1:1/v1", "--model", "m", "--out", str(tmp_path / "out")]
    assert main(["--source", str(tmp_path / "none.json"), *flags]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
