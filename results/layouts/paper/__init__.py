"""Tables as the papers print them, and our scores next to theirs. A table of a user's grid does not come here."""
