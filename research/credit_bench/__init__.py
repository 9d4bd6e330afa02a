"""A bench for credit assignment: small worlds whose right credit is known exactly, each for one claim."""
