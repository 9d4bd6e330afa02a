"""Search: a corpus, lexical and dense retrievers, a server and its client, behind one protocol."""

from memenvs.retrieval.corpus import Corpus
from memenvs.retrieval.load import load_retriever
from memenvs.retrieval.protocol import Hits, Passage, Retriever

__all__ = ["Corpus", "Hits", "Passage", "Retriever", "load_retriever"]
