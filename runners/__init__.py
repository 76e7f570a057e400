"""How trials run: training, the life of a trial, launches, GPUs, the live view and trackers, checks.

selftest, launch, watching, gpu, trial, training: each imports only folders that are behind it here.
"""
