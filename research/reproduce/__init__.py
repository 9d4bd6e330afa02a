"""Comparisons of the papers' methods, with models small enough to train from scratch on a CPU."""
