#!/bin/sh
# Before anything is made: what would make the deployment fail.
set -eu
cd "$(dirname "$0")/../.."
exec ./antwoord azure preflight
