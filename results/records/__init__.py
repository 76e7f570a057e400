"""Results of finished trials: records and their cache, scores over seeds, provenance, reasons for missing results."""
