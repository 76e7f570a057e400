"""Running trials: training, trial lifecycle, launches, GPUs, live view and trackers, self-tests.

Import order: selftest, launch, watching, gpu, trial, training. Each imports only folders listed after it.
"""
