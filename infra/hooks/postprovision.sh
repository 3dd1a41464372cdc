#!/bin/sh
# The resources are there: the vault is filled and the database prepared.
set -eu
cd "$(dirname "$0")/../.."
exec ./antwoord azure provisioned
