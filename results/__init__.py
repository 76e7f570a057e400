"""What came out of trials: records, statistics, tables, figures, exports, reports, and what the papers print.

statistics, records, tables, reference, pages, renderers, layouts, analysis, figures, export: each imports only folders
that come before it here.
"""
