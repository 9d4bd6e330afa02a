"""Measurements, each as a ratio to the plain way in the same process. docs/benchmarks.md has the numbers."""
