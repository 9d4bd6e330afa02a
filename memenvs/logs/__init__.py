"""Logs of other agents: conversations in the forms of other tools, as episodes with credit."""
