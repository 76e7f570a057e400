"""What finished trials leave: the record, its fast copy, scores over seeds, provenance, and why a record is missing."""
