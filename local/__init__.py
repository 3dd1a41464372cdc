"""What runs on a developer's machine only: the host, the stand-ins, the phone page and the demo content."""
