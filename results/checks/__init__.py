"""Whether results are still the same: a written table against the records, and one run of a grid against another."""
