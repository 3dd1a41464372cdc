"""`doctor`: checks of a live set-up, one area a file; each is a generator of findings that changes nothing outside."""
