"""The benchmarks that `python -m memenvs.build` reads: how, what scores them, and where a user gets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.build.readers.browsecomp_plus import read_browsecomp_plus
from memenvs.build.readers.flashrag import read_flashrag
from memenvs.build.readers.hotpotqa import read_2wiki, read_hotpotqa
from memenvs.build.readers.locomo import read_locomo
from memenvs.build.readers.longbench import read_longbench
from memenvs.build.readers.longmemeval import read_longmemeval
from memenvs.build.readers.memagent import read_memagent
from memenvs.build.readers.memoryagentbench import read_memoryagentbench
from memenvs.build.readers.mrcr import read_mrcr
from memenvs.build.readers.musique import read_musique


@dataclass(frozen=True)
class Source:
    """A benchmark.

    Attributes:
        name: of the command: `python -m memenvs.build NAME`.
        title: the benchmark's own.
        read: from `--source` and `--split` its examples, for tasks with distractors drawn from the whole
            file; or `KeptContexts`, for tasks over the documents that the file gives each question.
        files: what `--source` takes.
        address: where a user gets them.
        licence: of the data, as the address gives it.
        citation: of the paper.
        scored: by what: a metric's name, or several and when.
        documents: of a task.
        evidence: which documents are marked as needed.
        environment: the id of the environment that the tasks are made for.
        drawn: whether a task's documents are drawn, by `--documents` or `--tokens`.
        options: further arguments of `read` and of the command, with their help.
    """

    name: str
    title: str
    read: Callable[..., list[Example] | KeptContexts]
    files: str
    address: str
    licence: str
    citation: str
    scored: str = "`em`"
    documents: str = "its own, in their order"
    evidence: str = "none"
    environment: str = "MemChunkQA-v0"
    drawn: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


_SPLITS = "train.jsonl, dev.jsonl, test.jsonl"
_FLASHRAG = "https://huggingface.co/datasets/RUC-NLPIR/FlashRAG_datasets"


def _questions(name: str, title: str, files: str, citation: str) -> Source:
    """A data set of FlashRAG's collection: questions to be answered by searching."""
    return Source(
        name,
        title,
        read_flashrag,
        files=files,
        address=f"{_FLASHRAG}/tree/main/{name}",
        licence="CC BY-SA 4.0 (FlashRAG's collection)",
        citation=f"{citation}; Jin et al. 2025, FlashRAG, arXiv:2405.13576",
        documents="none, to be searched for",
        environment="MemSearchQA-v0",
    )


SOURCES = {
    source.name: source
    for source in (
        Source(
            "hotpotqa",
            "HotpotQA",
            read_hotpotqa,
            files="hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json",
            address="https://hotpotqa.github.io",
            licence="CC BY-SA 4.0",
            citation="Yang et al. 2018, HotpotQA, arXiv:1809.09600",
            evidence="paragraphs with supporting facts, and their sentences",
            drawn=True,
        ),
        Source(
            "2wiki",
            "2WikiMultihopQA",
            read_2wiki,
            files="train.json, dev.json of data_ids_april7.zip",
            address="https://github.com/Alab-NII/2wikimultihop",
            licence="Apache-2.0",
            citation="Ho et al. 2020, Constructing A Multi-hop QA Dataset, arXiv:2011.01060",
            evidence="paragraphs with supporting facts, and their sentences",
            drawn=True,
        ),
        Source(
            "musique",
            "MuSiQue",
            read_musique,
            files="musique_ans_v1.0_train.jsonl, musique_ans_v1.0_dev.jsonl",
            address="https://github.com/StonyBrookNLP/musique",
            licence="CC BY 4.0",
            citation="Trivedi et al. 2022, MuSiQue, arXiv:2108.00573",
            evidence="supporting paragraphs, in the order of the hops",
            drawn=True,
        ),
        Source(
            "memagent",
            "MemAgent's HotpotQA and RULER files",
            read_memagent,
            files="hotpotqa_train.parquet, hotpotqa_dev.parquet, eval_*.json",
            address="https://huggingface.co/datasets/BytedTsinghua-SIA/hotpotqa",
            licence="code Apache-2.0, texts of HotpotQA CC BY-SA 4.0",
            citation="Yu et al. 2025, MemAgent, arXiv:2507.02259",
            scored="`boxed_em` (Parquet), `memagent_sub_em` (JSON), `string_match_all` (needles)",
        ),
        Source(
            "longbench",
            "LongBench's NarrativeQA, Qasper, MultiFieldQA, HotpotQA, 2WikiMultihopQA, MuSiQue",
            read_longbench,
            files="narrativeqa.jsonl, qasper.jsonl, 2wikimqa.jsonl, musique.jsonl … of data.zip",
            address="https://huggingface.co/datasets/THUDM/LongBench",
            licence="MIT (its collection; each data set has its own)",
            citation="Bai et al. 2024, LongBench, arXiv:2308.14508",
            scored="`longbench_f1`",
        ),
        _questions("nq", "Natural Questions", _SPLITS, "Kwiatkowski et al. 2019, TACL 7"),
        _questions("triviaqa", "TriviaQA", _SPLITS, "Joshi et al. 2017, arXiv:1705.03551"),
        _questions("popqa", "PopQA", "test.jsonl", "Mallen et al. 2023, arXiv:2212.10511"),
        _questions("bamboogle", "Bamboogle", "test.jsonl", "Press et al. 2023, arXiv:2210.03350"),
        Source(
            "longmemeval",
            "LongMemEval",
            read_longmemeval,
            files="longmemeval_s_cleaned.json, longmemeval_m_cleaned.json, longmemeval_oracle.json",
            address="https://huggingface.co/datasets/xiaowu0162/longmemeval-cleaned",
            licence="MIT",
            citation="Wu et al. 2025, LongMemEval, arXiv:2410.10813",
            scored='a judge: `Judge(rubric="longmemeval")`; `f1` without one',
            evidence="sessions with the answer, and their turns marked `has_answer`",
        ),
        Source(
            "mrcr",
            "OpenAI's MRCR",
            read_mrcr,
            files="2needle.parquet, 4needle.parquet, 8needle.parquet",
            address="https://huggingface.co/datasets/openai/mrcr",
            licence="MIT",
            citation="OpenAI 2025; Vodrahalli et al. 2024, Michelangelo, arXiv:2409.12640",
            scored="`mrcr_ratio`",
            evidence="the reply asked for, and its request",
        ),
        Source(
            "locomo",
            "LoCoMo",
            read_locomo,
            files="locomo10.json",
            address="https://github.com/snap-research/locomo",
            licence="CC BY-NC 4.0",
            citation="Maharana et al. 2024, LoCoMo, arXiv:2402.17753",
            scored="`locomo_f1`",
            evidence="sessions with the turns named, and those turns",
            options={"category": "of the questions, 1 to 5 (default all)"},
        ),
        Source(
            "memoryagentbench",
            "MemoryAgentBench",
            read_memoryagentbench,
            files="Accurate_Retrieval-….parquet, Conflict_Resolution-….parquet and the others",
            address="https://huggingface.co/datasets/ai-hyz/MemoryAgentBench",
            licence="MIT",
            citation="Hu et al. 2026, MemoryAgentBench, arXiv:2507.05257",
            scored="`sub_em`, `em` (classification, DetectiveQA), a judge (LongMemEval; `f1` without one), "
            "`MovieRecall` (ReDial; `em` of its numbers without it)",
            options={"subset": "the source in the records' metadata, such as ruler_qa1_197K"},
        ),
        Source(
            "browsecomp_plus",
            "BrowseComp-Plus",
            read_browsecomp_plus,
            files="browsecomp_plus_decrypted.jsonl, or the obfuscated Parquet with --canary",
            address="https://github.com/texttron/BrowseComp-Plus",
            licence="Apache-2.0",
            citation="Chen et al. 2025, BrowseComp-Plus, arXiv:2508.06600",
            scored="a judge; `em` without one",
            documents="gold, evidence and negative, to be searched",
            evidence="gold_docs and evidence_docs",
            environment="MemSearchQA-v0",
            options={"canary": "the text that decodes an obfuscated file"},
        ),
    )
}


def sources_table() -> str:
    """The table of `docs/sources.md`: a row for each source."""
    head = [
        "source",
        "benchmark",
        "`--source` takes",
        "documents",
        "evidence",
        "scored by",
        "for",
        "licence",
        "paper",
    ]
    rows = [
        [
            f"`{one.name}`",
            f"[{one.title}]({one.address})",
            one.files,
            "with distractors" if one.drawn else one.documents,
            one.evidence,
            one.scored,
            f"`{one.environment}`",
            one.licence,
            one.citation,
        ]
        for one in SOURCES.values()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
