"""What azd's hooks run: checks before a deployment, secrets and the database after the resources are there, a look at the end."""
