"""What to run: grid files, their expansion into trials, trial identity, recipes, the runs folder, user errors.

Nothing here imports torch, ray or pandas, so `goalgrid plan` and `goalgrid status` start fast.
"""
