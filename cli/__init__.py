"""The command: not deployed; may import shared and local."""
