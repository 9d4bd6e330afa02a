"""The papers' orders of methods, on models small enough to be trained from nothing on a CPU."""
