"""verl: a loop that plays episodes, and estimators for what their turns were paid."""
