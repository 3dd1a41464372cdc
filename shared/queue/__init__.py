"""The queue in Postgres: claims with leases, fenced writes, verdicts, retries and dead letters."""
