"""Verbs, no logic: what a user says, by what it is about. Heavy packages are imported where a verb needs them."""
