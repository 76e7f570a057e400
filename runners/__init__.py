"""How trials run, in rooms that each import only rooms below them in this list.

selftest/   faults on purpose, to prove on a user's machine that nothing is lost
launch/     the life of one command: its jobs, and the drivers that run them (Ray Tune, or this process)
watching/   the live matrix and MLflow
gpu/        how much of a GPU a trial needs
trial/      the life of one trial: its attempts, retries, events, and how it ends
training/   everything that decides a trial's numbers
"""
