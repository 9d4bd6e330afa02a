"""Causal language models: loading, sampling, scoring, vLLM."""
