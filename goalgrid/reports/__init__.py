"""Report a grid's results from its records: tables, effects, comparisons, claims, figures and HTML reports."""
