"""A folder of texts and a table of questions become tasks."""

from __future__ import annotations

import json

import openpyxl
import pypdf
import pytest
from build_command import command

from memenvs.tasks.taskset import open_tasks

LEASE = "The lease.\nNotice is\n60 days. The rent is 5 dollars. The law is Delaware's.\n"
LOAN = "The loan. The law is Delaware's. It ends in May.\n"
NOTICE = {"document": "lease.txt", "question": "How long is the notice?", "answer": "60"}


@pytest.fixture
def folder(tmp_path):
    """Two texts, of which one is in a folder inside, and a hidden one."""
    texts = tmp_path / "texts"
    (texts / "2024").mkdir(parents=True)
    (texts / "lease.txt").write_text(LEASE)
    (texts / "2024" / "loan.md").write_bytes(b"\xef\xbb\xbf" + LOAN.replace("\n", "\r\n").encode())
    (texts / ".draft.txt").write_text("A draft.")
    return texts


@pytest.fixture
def built(tmp_path, folder):
    """Builds rows of a table; the task set, and the sentences that each task needs."""

    def make(*rows, args=()):
        table = tmp_path / "qa.jsonl"
        table.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        out = tmp_path / "set"
        assert command("texts", "--documents", folder, "--questions", table, *args, "--out", out) == 0
        tasks = open_tasks(out)
        return tasks, [tasks.needed_sentences(task) for task in tasks]

    return make


def refusal(capsys, folder, table, *args):
    """The line by which a build is refused."""
    capsys.readouterr()
    assert command("texts", "--documents", folder, "--questions", table, *args, "--out", "set") == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_question_is_asked_about_the_document_that_it_names(built):
    tasks, _ = built(NOTICE, {"file": "loan", "question": "When does it end?", "answers": ["May"]})
    assert [tasks.document_texts(task.documents) for task in tasks] == [
        [f"lease\n{LEASE}"],
        [f"2024/loan\n{LOAN}"],
    ]
    assert [task.answers for task in tasks] == [(("60",),), (("May",),)]
    assert tasks.card.environment == "MemChunkQA-v0"
    assert sorted(tasks.card.inputs) == ["lease.txt", "loan.md", "qa.jsonl"]


@pytest.mark.parametrize(
    ("evidence", "sentence"),
    [
        ("Notice is 60 days.", "Notice is\n60 days."),
        ([[11, 20]], "Notice is"),
        ("[11, 20]", "Notice is"),
        ([["lease", 11, 20]], "Notice is"),
        ("lease.txt", LEASE.strip()),
    ],
)
def test_evidence_is_a_quote_characters_or_the_whole_document(built, capsys, evidence, sentence):
    _, (needed,) = built({**NOTICE, "evidence": evidence})
    assert needed == [("lease", sentence)]
    assert capsys.readouterr().err == ""


def test_several_quotes_are_a_list_in_a_cell(built):
    _, (needed,) = built({**NOTICE, "quote": '["Notice is 60 days.", "The rent is 5 dollars."]'})
    assert [text for _, text in needed] == ["Notice is\n60 days.", "The rent is 5 dollars."]


def test_a_quote_that_is_not_exact_is_the_nearest_sentence_with_a_warning(built, capsys):
    _, (needed,) = built({**NOTICE, "quote": "The notice is sixty (60) days"})
    assert needed == [("lease", "Notice is\n60 days.")]
    assert "Notice is" in capsys.readouterr().err


def test_a_quote_that_is_like_no_sentence_is_refused(folder, tmp_path, capsys):
    (tmp_path / "qa.csv").write_text("document,question,answer,quote\nlease,How?,60,A tower by the sea.\n")
    assert "'A tower by the sea.' as evidence" in refusal(capsys, folder, tmp_path / "qa.csv")


def test_questions_that_name_no_document_search_all_and_a_quote_finds_their_evidence(built, capsys):
    asked = {"question": "When does it end?", "answer": "May", "quote": "It ends in May."}
    tasks, (needed,) = built(asked)
    assert tasks.card.environment == "MemSearchQA-v0"
    assert tasks.titles(tasks[0].documents) == ["2024/loan", "lease"]
    assert needed == [("2024/loan", "It ends in May.")]
    built({**asked, "quote": "The law is Delaware's."})
    assert "2 documents say" in capsys.readouterr().err


def test_documents_are_hidden_among_the_others_of_the_folder(built, folder):
    for number in range(20):
        (folder / f"other{number}.txt").write_text(f"Contract {number} is about ships.")
    tasks, (needed,) = built({**NOTICE, "quote": "Notice is 60 days."}, args=("--tokens", 120))
    assert needed == [("lease", "Notice is\n60 days.")]
    assert 3 < len(tasks[0].documents) < 20
    tasks, _ = built(NOTICE, args=("--tokens", 120))
    assert tasks.titles(tasks[0].evidence) == ["lease"]


def test_the_columns_of_a_workbook_may_have_names_of_their_own(tmp_path, folder, capsys):
    book = openpyxl.Workbook()
    book.active.append(["Frage", "Antwort", "Datei", "Zitat"])
    book.active.append(["Wie lange?", 60, "lease.txt", "Notice is 60 days."])
    book.save(folder / "fragen.xlsx")  # beside the texts
    columns = ["question=Frage", "answer=Antwort", "documents=Datei", "evidence=Zitat"]
    args = ("texts", "--documents", folder, "--questions", folder / "fragen.xlsx", "--out", tmp_path / "set")
    assert command(*args, "--columns", *columns) == 0
    tasks = open_tasks(tmp_path / "set")
    assert (tasks[0].answers, tasks[0].question) == ((("60",),), "Wie lange?")
    assert tasks.needed_sentences(tasks[0]) == [("lease", "Notice is\n60 days.")]
    columns[-1] = "evidence=Beleg"
    assert "'beleg'" in refusal(capsys, folder, folder / "fragen.xlsx", "--columns", *columns)


def test_an_unknown_document_is_one_line_with_those_that_are_meant(folder, tmp_path, capsys):
    (tmp_path / "qa.csv").write_text("document,question,answer\nlaese.txt,How long?,60\n")
    assert "did you mean lease.txt" in refusal(capsys, folder, tmp_path / "qa.csv")


def test_the_text_of_a_pdf_is_read_and_a_page_without_text_is_left_out(built, folder, capsys):
    (folder / "deed.pdf").write_bytes(pdf("The deed is signed by Ann."))
    blank = pypdf.PdfWriter()
    blank.add_blank_page(100, 100)
    blank.write(folder / "scan.pdf")
    _, (needed,) = built({**NOTICE, "document": "deed", "quote": "The deed is signed by Ann."})
    assert needed == [("deed", "The deed is signed by Ann.")]
    assert "scan.pdf is left out" in capsys.readouterr().err


def pdf(text):
    """A PDF of one line."""
    content = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 400 200] /Contents 4 0 R "
        b"/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
    ]
    body, places = b"%PDF-1.4\n", []
    for number, part in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer << /Size 5 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(body)
    return body + b"xref\n0 5\n0000000000 65535 f \n" + table + end


def test_a_text_in_another_encoding_is_one_line_with_the_command_that_converts_it(folder, tmp_path, capsys):
    (folder / "old.txt").write_bytes("Gérard".encode("cp1252"))
    (tmp_path / "qa.csv").write_text("document,question,answer\nlease.txt,How long?,60\n")
    assert "iconv" in refusal(capsys, folder, tmp_path / "qa.csv")


def test_a_damaged_pdf_is_one_line_that_names_it(folder, tmp_path, capsys):
    (folder / "deed.pdf").write_bytes(pdf("The deed is signed by Ann.")[:300])
    (tmp_path / "qa.csv").write_text("document,question,answer\nlease.txt,How long?,60\n")
    assert "deed.pdf is damaged" in refusal(capsys, folder, tmp_path / "qa.csv")
