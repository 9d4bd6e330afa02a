"""Scorers: log-probabilities of given text, from a model in this process, from a server, or from no model."""

from memenvs.wrappers.scorers.hf import HFScorer
from memenvs.wrappers.scorers.lexical import LexicalScorer
from memenvs.wrappers.scorers.protocol import Scorer, ScoreRequest, TemplateScorer, TokenScores
from memenvs.wrappers.scorers.server import ServerScorer
from memenvs.wrappers.scorers.vllm import VLLMScorer

__all__ = [
    "HFScorer",
    "LexicalScorer",
    "ScoreRequest",
    "Scorer",
    "ServerScorer",
    "TemplateScorer",
    "TokenScores",
    "VLLMScorer",
]
