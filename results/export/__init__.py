"""Outputs for readers: requested tables, the report page, and the folder that `goalgrid export` writes."""
