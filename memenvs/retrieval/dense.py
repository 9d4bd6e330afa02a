"""Dense retrieval: an encoder's vectors, searched by inner product, scored exactly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memenvs.retrieval.card import IndexCard
from memenvs.retrieval.corpus import Corpus
from memenvs.retrieval.encoder import Encoder, load_encoder
from memenvs.retrieval.indexes import INDEX, open_index
from memenvs.retrieval.nearest import Nearest
from memenvs.retrieval.protocol import Hits, Passage
from memenvs.retrieval.ranking import search_distinct
from memenvs.retrieval.vectors import open_vectors


class DenseRetriever:
    """Passages by the inner product of unit vectors; a `Retriever`.

    Whatever the index, its candidates are scored with their full vectors in float64, to six decimals, so
    scores of flat, HNSW and IVF-PQ compare. A flat index is exact, also in its ties; an approximate one
    may miss a passage, and breaks ties among those it found.

    Args:
        folder: what `memenvs.build.index.build_index` made.
        encoder: None: the one that the index was built with, by its name. A name or folder: the same
            encoder at another place.
        device: of torch; None: a GPU if there is one.

    Raises:
        FileNotFoundError: the index, or a part of it, is missing.
        ValueError: corpus, vectors, index and encoder do not fit together; both values are named.
    """

    def __init__(self, folder: Path | str, encoder: str | Encoder | None = None, device: str | None = None):
        folder = Path(folder)
        self.card = card = IndexCard.read(folder, kind="dense")
        self.corpus = Corpus.open(folder / "corpus")
        card.check_corpus(folder, self.corpus)
        card.check_files(folder)
        self.encoder = encoder if isinstance(encoder, Encoder) else self._load(encoder, device)
        self._check_encoder(folder)
        vectors = open_vectors(folder, card.count, card.dimension)
        find = open_index(card.index, vectors, card.settings, folder / INDEX)
        exact = card.index == "flat"
        self._nearest = Nearest(find, vectors, self.corpus.rank, exact, card.settings.get("rescore", 0))

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The best k passages of each query; see `Retriever.search`."""
        return search_distinct(queries, k, self._search)

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of these ids; KeyError for an id that is not in the corpus."""
        return self.corpus.passages(ids)

    def _search(self, queries: list[str], k: int) -> Hits:
        hits = Hits([], [])
        for scores, rows in self._nearest.search(self.encoder.queries(queries), k):
            hits.ids.append([self.corpus.id(row) for row in rows.tolist()])
            hits.scores.append(scores.tolist())
        return hits

    def _load(self, encoder: str | None, device: str | None) -> Encoder:
        built = self.card.encoder
        return load_encoder(
            encoder or built["model"],
            built["query_prefix"],
            built["passage_prefix"],
            built["max_tokens"],
            device,
        )

    def _check_encoder(self, folder: Path) -> None:
        for name, built, found in (
            ("dimension", self.card.dimension, self.encoder.dimension),
            ("fingerprint", self.card.encoder["fingerprint"], self.encoder.fingerprint),
        ):
            if built != found:
                raise ValueError(
                    f"the index in {folder} was built with an encoder of {name} {built} "
                    f"({self.card.encoder['model']}), {self.encoder.model} has {name} {found}; "
                    "give the encoder of the index, or build the index again"
                )
