"""Tables as papers print them, and comparisons of our scores with theirs."""
