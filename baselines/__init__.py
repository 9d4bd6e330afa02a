"""Learners: one visible loop a file."""
