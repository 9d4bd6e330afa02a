"""Measurements, each a ratio to the plain way in the same process. docs/benchmarks.md keeps the numbers."""
