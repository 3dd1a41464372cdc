"""Conversations with employees."""
