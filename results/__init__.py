"""What came out of trials, in rooms that each import only rooms above them in this list.

statistics/   intervals, tests and the analysis of variance, as functions of arrays
records/      the record of a finished trial, scores over seeds, provenance
reference/    what the papers print
tables/       the table, its averages, the papers' notation
pages/        templates of HTML pages and of an export's README
renderers/    a table in every format
layouts/      scores arranged as a table
analysis/     which axis matters, what is best, and how sure that is
figures/      plots; the only room that imports Matplotlib
export/       a table as it was asked for, the report page, the folder of `goalgrid export`
checks/       whether a written table, or a second run, is still the same
"""
