"""The contract of text environments, and what every other package shares."""
