"""Results of trials: records, statistics, tables, figures, exports, reports, and the numbers that papers print.

statistics, records, tables, reference, pages, renderers, layouts, analysis, figures, export: each imports
only folders listed before it.
"""
