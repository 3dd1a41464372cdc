"""The measured figures: one script each, `python -m bench.NAME`; all of them: `./antwoord bench`."""
