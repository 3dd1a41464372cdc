"""The database: the pool with its limits, and the migrations."""
