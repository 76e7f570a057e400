"""What came out: a record per finished trial, scores over seeds, tables in the papers' layout."""
