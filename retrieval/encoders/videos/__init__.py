"""Encoders of videos: vectors of experts, gated by one another (CE) or read by a transformer (MMT)."""
